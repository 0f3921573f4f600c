/* SPDX-License-Identifier: BSD-3-Clause */
#include "herd.h"

#include <csignal>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <time.h>

namespace herds
{

static uint64_t now_ms()
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return static_cast<uint64_t>(t.tv_sec) * 1000 + static_cast<uint64_t>(t.tv_nsec) / 1000000;
}

Herd::Herd(const Plan &p)
    : plan(p), folder(p.medium), random(rig::seed()), pids(p.processes(), -1),
      progress(p.processes()), since(p.processes())
{
    board = static_cast<Board *>(
        mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    if (!write_files(plan, folder))
        wrong = "cannot write the files";
}

Herd::~Herd()
{
    for (int pid : pids)
        if (pid > 0) {
            ::kill(pid, SIGKILL);
            waitpid(pid, nullptr, 0);
        }
    for (std::string left = shared_memory(); !left.empty(); left = shared_memory())
        if (unlink(left.c_str()) < 0)
            break;
    munmap(board, sizeof(Board));
}

/* The objects of any generation. The name of one that belongs to another user may stay: other users cannot
 * remove it. */
std::string Herd::shared_memory() const
{
    for (const std::string &name : rig::names_in("/dev/shm"))
        for (const char *start : board->objects) {
            const std::string path = "/dev/shm/" + name;
            struct stat st;
            if (*start && path.rfind(start, 0) == 0 && stat(path.c_str(), &st) == 0 && st.st_size)
                return path;
        }
    return "";
}

static int fork_or_abort()
{
    std::fflush(nullptr); /* or a child that ends by exit() prints it again */
    const int pid = fork();
    if (pid < 0) {
        std::perror("fork");
        std::abort();
    }
    return pid;
}

void Herd::start(unsigned n)
{
    for (unsigned t = 0; n < plan.writers && t < plan.threads; t++)
        board->within[n * plan.threads + t] = false;
    const uint64_t seed = random.next();
    pids[n] = fork_or_abort();
    if (pids[n] == 0)
        herds::live(*board, plan, folder.at, n, seed);
    since[n] = now_ms();
}

/* Waits until a process has ended. False: it did not end in an expected way. */
bool Herd::reap(unsigned n)
{
    int status;
    if (waitpid(pids[n], &status, 0) != pids[n])
        std::abort();
    pids[n] = -1;
    const bool killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    if (!killed && !(WIFEXITED(status) && WEXITSTATUS(status) == 0) && wrong.empty())
        wrong = board->failed ? board->why
                              : "process " + std::to_string(n) + " ended with status " +
                                    std::to_string(status);
    for (unsigned t = 0; killed && n < plan.writers && t < plan.threads; t++) {
        const unsigned actor = n * plan.threads + t;
        interrupted += board->within[actor];
        torn += plan.plain && is_torn(folder.at, actor);
    }
    return killed;
}

void Herd::kill(const std::vector<unsigned> &victims)
{
    for (unsigned n : victims)
        if (pids[n] > 0)
            ::kill(pids[n], SIGKILL);
    for (unsigned n : victims)
        if (pids[n] > 0)
            kills += reap(n);
}

void Herd::kill_all()
{
    std::vector<unsigned> all;
    for (unsigned n = 0; n < pids.size(); n++)
        all.push_back(n);
    kill(all);
}

static uint64_t sum_of(const Board *board, unsigned from, unsigned n)
{
    uint64_t sum = 0;
    for (unsigned i = from; i < from + n; i++)
        sum += __atomic_load_n(&board->done[i], __ATOMIC_RELAXED);
    return sum;
}

uint64_t Herd::operations(bool of_readers) const
{
    return of_readers ? sum_of(board, plan.actors(), plan.readers * plan.threads)
                      : sum_of(board, 0, plan.actors());
}

void Herd::look_for_hanging()
{
    for (unsigned n = 0; n < pids.size(); n++) {
        const uint64_t is = sum_of(board, n * plan.threads, plan.threads);
        if (is != progress[n]) {
            progress[n] = is;
            since[n] = now_ms();
        } else if (pids[n] > 0 && now_ms() - since[n] > 30000 && wrong.empty()) {
            ::kill(pids[n], SIGABRT);
            wrong = "process " + std::to_string(n) + " has done nothing for 30 s";
        }
    }
    if (board->failed && wrong.empty())
        wrong = board->why;
}

/* Waits until a process has done something: its first commits give its lanes their space, which takes longer
 * than the others. Then, for a writer, until it is in a call that writes, and a little longer. */
void Herd::aim_at(unsigned n)
{
    const uint64_t end = now_ms() + 300, from = sum_of(board, n * plan.threads, plan.threads),
                   to = from + random.log_uniform(10);
    while (sum_of(board, n * plan.threads, plan.threads) < to && now_ms() < end)
        usleep(50);
    while (n < plan.writers && now_ms() < end &&
           !__atomic_load_n(&board->within[n * plan.threads], __ATOMIC_RELAXED))
        ;
    for (uint64_t turns = random.log_uniform(10000); turns; turns--)
        __builtin_ia32_pause();
}

bool Herd::is_convincing() const
{
    return plan.plain ? torn > 0
                      : interrupted >= 5 && operations(false) > 0 && operations(true) > 0;
}

void Herd::look(unsigned user, End end)
{
    const uint64_t seed = random.next();
    pids[0] = fork_or_abort();
    if (pids[0] == 0)
        herds::look(*board, plan, folder.at, user, end, seed);
    reap(0);
}

std::string Herd::live(uint64_t ms)
{
    const unsigned all = plan.processes();
    const uint64_t from = now_ms();
    auto start_all = [&] {
        for (unsigned n = 0; n < all; n++)
            if (pids[n] < 0)
                start(n);
    };
    while (wrong.empty() &&
           (now_ms() < from + ms || (!is_convincing() && now_ms() < from + ms + 30000))) {
        start_all();
        std::vector<unsigned> victims{static_cast<unsigned>(random.below(all))};
        if (random.chance(15))
            victims.push_back(static_cast<unsigned>(random.below(all)));
        usleep(static_cast<useconds_t>(random.log_uniform(10000)));
        for (unsigned n = 0; n < all; n++) {
            siginfo_t info = {};
            if (waitid(P_PID, static_cast<id_t>(pids[n]), &info, WEXITED | WNOHANG | WNOWAIT) ==
                    0 &&
                info.si_pid == pids[n])
                reap(n); /* it ended by itself */
        }
        look_for_hanging();
        if (random.chance(60) && pids[victims[0]] > 0)
            aim_at(victims[0]);
        if (random.chance(75)) {
            kill(victims);
            continue;
        }
        kill_all();
        while (random.chance(40)) {
            start_all();
            usleep(static_cast<useconds_t>(random.log_uniform(5000)));
            kill_all();
        }
        if (random.chance(50) && !plan.plain && wrong.empty())
            look(static_cast<unsigned>(random.below(2)), static_cast<End>(random.below(4)));
    }
    return wrong;
}

std::string Herd::end()
{
    __atomic_store_n(&board->stopping, true, __ATOMIC_SEQ_CST);
    for (unsigned n = 0; n < pids.size(); n++)
        if (pids[n] > 0)
            reap(n);
    if (wrong.empty())
        look(0, End::Spatial);
    if (!wrong.empty())
        return wrong;
    for (const std::string &name : rig::names_in(folder / ".ato")) {
        /* What is not complete is its maker's alone: it stays until that user makes the next one. */
        struct stat st;
        if (stat((folder / (".ato/" + name)).c_str(), &st) < 0 || st.st_uid == geteuid() ||
            st.st_mode & 077)
            wrong += ".ato/" + name + " is left; ";
    }
    for (const char *name : names)
        if (getxattr((folder / name).c_str(), "user.ato", nullptr, 0) >= 0)
            wrong += std::string("the attribute of ") + name + " is left; ";
    if (!shared_memory().empty())
        wrong += shared_memory() + " is left";
    return wrong;
}

} // namespace herds
