/* SPDX-License-Identifier: BSD-3-Clause */
#include "process.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>

namespace kills
{

static_assert(sizeof(Note) <= 512, "less than PIPE_BUF: notes do not mix");

void Teller::tell(const Note &n) const
{
    if (write(fd, &n, sizeof(n)) != sizeof(n))
        leave("cannot tell");
}

void Teller::tell_text(Say say, const std::string &text) const
{
    Note n{};
    n.say = say;
    std::snprintf(n.text, sizeof(n.text), "%s", text.c_str());
    tell(n);
}

void leave(const std::string &why)
{
    if (!why.empty())
        std::fprintf(stderr, "child: %s\n", why.c_str());
    _exit(why.empty() ? 0 : 1);
}

Process::Process(const std::function<void(const Teller &)> &body)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) < 0) {
        std::perror("pipe");
        std::abort();
    }
    std::fflush(nullptr); /* or a child that ends by exit() prints it again */
    pid = fork();
    if (pid < 0) {
        std::perror("fork");
        std::abort();
    }
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        close(ends[0]);
        body(Teller(ends[1]));
        leave("");
    }
    close(ends[1]);
    fd = ends[0];
    fcntl(fd, F_SETPIPE_SZ, 1 << 20);
}

Process::~Process()
{
    if (status == -1)
        kill();
    close(fd);
}

static constexpr int64_t PATIENCE = 2000000000; // ns

static int64_t now()
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return int64_t{t.tv_sec} * 1000000000 + t.tv_nsec;
}

bool Process::hear(int64_t ns)
{
    struct pollfd p = {fd, POLLIN, 0};
    struct timespec limit = {ns / 1000000000, ns % 1000000000};
    int r = ppoll(&p, 1, ns < 0 ? nullptr : &limit, nullptr);
    if (r <= 0)
        return r == 0 || errno == EINTR;
    Note some[64];
    ssize_t n = read(fd, some, sizeof(some));
    for (ssize_t i = 0; i < n / static_cast<ssize_t>(sizeof(Note)); i++)
        notes.push_back(some[i]);
    return n > 0;
}

void Process::listen(uint64_t ns)
{
    const int64_t end = now() + static_cast<int64_t>(ns);
    for (int64_t left = end - now(); left > 0 && hear(left);)
        left = end - now();
}

void Process::listen(uint64_t ns, Say from)
{
    /* A process that is not read may keep others waiting, including this one, with its locks. */
    const int64_t end = now() + PATIENCE;
    for (size_t heard = 0; now() < end && hear(end - now()); heard = notes.size())
        if (std::any_of(notes.begin() + static_cast<ptrdiff_t>(heard), notes.end(),
                        [&](const Note &n) { return n.say == from; }))
            return listen(ns);
}

void Process::wait()
{
    while (hear(-1))
        ;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
}

void Process::kill()
{
    ::kill(pid, SIGKILL);
    wait();
}

bool Process::was_killed() const
{
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
}

bool Process::ended_well() const
{
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

std::string Process::end() const
{
    if (WIFSIGNALED(status))
        return std::string("ended by ") + strsignal(WTERMSIG(status));
    return "exit status " + std::to_string(WEXITSTATUS(status));
}

} // namespace kills
