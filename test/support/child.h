// SPDX-License-Identifier: BSD-3-Clause
//
// How does a test run code that dies? In a forked child, which never comes back into GoogleTest.
#ifndef ATO_TEST_SUPPORT_CHILD_H
#define ATO_TEST_SUPPORT_CHILD_H

#include <csignal>
#include <functional>

#include <sys/wait.h>
#include <unistd.h>

namespace support
{

// Exit status of a child that a fault (faults.h) cut.
constexpr int CUT = 77;

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

// A process that says when it is ready, and goes on when it is told to.
class Peer
{
  public:
    // `what` is given a function that does both; its result is the exit status.
    explicit Peer(const std::function<int(const std::function<void()> &)> &what)
    {
        pid_ = fork();
        if (pid_ == 0)
            _exit(what([this] {
                ready_.tell();
                go_.hear();
            }));
    }
    ~Peer()
    {
        if (pid_ > 0)
            die();
    }
    bool is_ready()
    {
        return ready_.hear();
    }
    void go_on()
    {
        go_.tell();
    }
    int end()
    {
        int status = -1;
        go_on();
        waitpid(pid_, &status, 0);
        pid_ = 0;
        return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    }
    void die()
    {
        kill(pid_, SIGKILL);
        waitpid(pid_, nullptr, 0);
        pid_ = 0;
    }

  private:
    Pipe ready_, go_;
    pid_t pid_;
};

} // namespace support

#endif
