// SPDX-License-Identifier: BSD-3-Clause
//
// How does a test run code that dies? In a forked child, which never comes back into GoogleTest.
#ifndef ATO_TEST_SUPPORT_CHILD_H
#define ATO_TEST_SUPPORT_CHILD_H

#include <functional>

namespace support
{

// Exit status of a child that a fault (faults.h) cut.
constexpr int CUT = 77;

// From one place to the next where a test cuts child after child. With AddressSanitizer a fork takes long, and
// it is not what finds a wrong order.
#ifdef __SANITIZE_ADDRESS__
constexpr long NEXT_CUT = 4;
#else
constexpr long NEXT_CUT = 1;
#endif

// Runs `what` in a child, which leaves by _exit() with what it returns: no destructors, no atexit()
// handlers, no leak check. The exit status, or 256 + the signal that killed it.
int in_child(const std::function<int()> &what);

// The same, but leaves by exit(): as a program does that ends cleanly.
int in_exiting_child(const std::function<int()> &what);

// A word from one process to another, made before the fork.
class Pipe
{
  public:
    Pipe();
    ~Pipe();
    Pipe(const Pipe &) = delete;
    Pipe &operator=(const Pipe &) = delete;
    bool tell();
    bool hear(); // waits; false when all who could tell are gone

  private:
    int ends_[2];
};

} // namespace support

#endif
