// SPDX-License-Identifier: BSD-3-Clause
#include "workers.h"

#include "pack.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <stdexcept>
#include <vector>

#include <csignal>
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace crash
{

// A job without progress for this time hangs.
constexpr double HANGS = 60;

double now()
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

void Whereabouts::tell(const std::string &what)
{
    snprintf(place, sizeof(place), "%s", what.c_str());
    moves = moves + 1;
}

Workers::Workers(unsigned at_once) : limit(at_once)
{
}

Workers::~Workers()
{
    for (auto &r : running)
        kill(r.first, SIGKILL);
    for (auto &r : running)
        waitpid(r.first, nullptr, 0);
}

void Workers::start(int job, const Job &work)
{
    int ends[2];
    void *shared = mmap(nullptr, sizeof(Whereabouts), PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED || pipe(ends) < 0)
        throw std::runtime_error(std::string("cannot start a worker: ") + strerror(errno));
    auto *where = static_cast<Whereabouts *>(shared);
    fflush(nullptr);
    pid_t pid = fork();
    if (pid < 0)
        throw std::runtime_error(std::string("fork: ") + strerror(errno));
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        close(ends[0]);
        _exit(write_all(ends[1], work(*where)) ? 0 : 2);
    }
    close(ends[1]);
    running[pid] = {job, ends[0], where, 0, now(), ""};
}

Workers::Outcome Workers::finish(pid_t pid, const std::string &reason)
{
    Running r = std::move(running.at(pid));
    running.erase(pid);
    if (!reason.empty())
        kill(pid, SIGKILL);
    int status = 0;
    waitpid(pid, &status, 0);
    Outcome o = {r.job, std::move(r.bytes), reason, r.where->place};
    if (o.death.empty() && WIFSIGNALED(status))
        o.death = std::string("killed by ") + strsignal(WTERMSIG(status));
    else if (o.death.empty() && WEXITSTATUS(status) != 0)
        o.death = "exit status " + std::to_string(WEXITSTATUS(status));
    close(r.pipe);
    munmap(r.where, sizeof(Whereabouts));
    return o;
}

void Workers::stop(const std::function<bool(int)> &is_meant)
{
    std::vector<pid_t> meant;
    for (const auto &r : running)
        if (is_meant(r.second.job))
            meant.push_back(r.first);
    for (const pid_t pid : meant)
        (void)finish(pid, "stopped");
}

Workers::Outcome Workers::wait()
{
    for (;;) {
        std::vector<struct pollfd> polled;
        std::vector<pid_t> pids;
        for (const auto &r : running) {
            polled.push_back({r.second.pipe, POLLIN, 0});
            pids.push_back(r.first);
        }
        poll(polled.data(), polled.size(), 1000);
        for (size_t i = 0; i < pids.size(); i++) {
            Running &r = running.at(pids[i]);
            if (polled[i].revents) {
                char buffer[1 << 16];
                ssize_t n = read(r.pipe, buffer, sizeof(buffer));
                if (n <= 0)
                    return finish(pids[i], "");
                r.bytes.append(buffer, static_cast<size_t>(n));
                r.since = now();
            } else if (r.where->moves != r.moves) {
                r.moves = r.where->moves;
                r.since = now();
            } else if (now() - r.since > HANGS) {
                return finish(pids[i], "it hangs");
            }
        }
    }
}

} // namespace crash
