// SPDX-License-Identifier: BSD-3-Clause
//
// Runs code that dies: in a forked child, which never returns into GoogleTest.
#ifndef ATO_TEST_SUPPORT_CHILD_H
#define ATO_TEST_SUPPORT_CHILD_H

#include <csignal>
#include <functional>

#include <sys/wait.h>
#include <unistd.h>

namespace support
{

// Exit status of a child that a fault (faults.h) ended.
constexpr int CUT = 77;

// Runs `what` in a child, which leaves by _exit() with its result: no destructors, no atexit() handlers, no
// leak check. Returns the exit status, or 256 + the signal that killed it.
int in_child(const std::function<int()> &what);

// The same, but leaves by exit(), as a program that ends normally.
int in_exiting_child(const std::function<int()> &what);

// A message from one process to another, made before the fork.
class Pipe
{
  public:
    Pipe();
    ~Pipe();
    Pipe(const Pipe &) = delete;
    Pipe &operator=(const Pipe &) = delete;
    bool tell();
    bool hear(); // waits; false when all writing ends are closed

  private:
    int ends_[2];
};

// A process that reports when it is ready, and goes on when told to.
class Peer
{
  public:
    // `what` gets a function that does both; its result is the exit status.
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
    void stop()
    {
        kill(pid_, SIGSTOP);
    }
    void resume()
    {
        kill(pid_, SIGCONT);
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
