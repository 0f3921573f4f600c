/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Is each snapshot a state of the file's history, while processes write to it, read it, and are killed at any moment?
 * history.h says what a process checks; here the snapshots of all of them are compared: of two, one contains the other.
 *
 * A case consists of ages. An age begins with the first snapshot of a file, whose commits have no numbers yet, and ends with the end, or
 * the death, of all processes.
 *
 * ATO_TEST_PERCENT=1000 lets the histories last ten times as long; give it more for hours.
 */
#include "history.h"

#include <algorithm>
#include <csignal>
#include <gtest/gtest.h>
#include <ostream>
#include <sys/wait.h>
#include <time.h>

namespace histories
{

struct Case {
    const char *name;
    Plan plan;
    unsigned ms;
};

static void PrintTo(const Case &c, std::ostream *out)
{
    *out << c.name;
}

static uint64_t now_ms()
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return static_cast<uint64_t>(t.tv_sec) * 1000 + static_cast<uint64_t>(t.tv_nsec) / 1000000;
}

class World
{
  public:
    explicit World(const Plan &p)
        : plan(p), folder(p.medium), path(folder / "history"), random(rig::seed())
    {
        void *at =
            mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        if (at == MAP_FAILED || !rig::write_file(path, Bytes(size_by(0))))
            std::abort();
        board = static_cast<Board *>(at);
        board->sized = static_cast<unsigned>(random.below(ACTORS));
    }

    ~World()
    {
        for (unsigned n = 0; n < PROCESSES; n++)
            kill(n);
        for (const std::string &path : objects_of(*board))
            unlink(path.c_str());
        munmap(board, sizeof(Board));
    }

    World(const World &) = delete;
    World &operator=(const World &) = delete;

    /* Lets ages pass for this time, and for up to 30 s more until something of each kind has happened. Returns "" or what is wrong. */
    std::string live(uint64_t ms)
    {
        const uint64_t end = now_ms() + ms;
        while (wrong.empty() && (now_ms() < end || (!is_convincing() && now_ms() < end + 30000)))
            live_an_age(std::min(std::max(end, now_ms() + 100),
                                 now_ms() + 20 + random.log_uniform(rig::rounds(400))));
        look(ATO_UNMAP_SPATIAL);
        return wrong;
    }

    bool is_convincing() const
    {
        const uint64_t *n = board->counts;
        return kills && n[COMMITS] && n[SNAPSHOTS] && n[READ_AGAIN] &&
               (n[GIVEN_UP] || !plan.bounded);
    }

    Board *board;
    uint64_t kills = 0, ages = 0;

  private:
    template <class Body> void start(unsigned n, Body body)
    {
        std::fflush(nullptr);
        pids[n] = fork();
        if (pids[n] < 0)
            std::abort();
        if (pids[n] == 0)
            body(random.next());
        (void)random.next();
        since[n] = now_ms();
    }

    void start(unsigned n)
    {
        start(n, [&](uint64_t seed) { histories::live(*board, plan, path, n, seed); });
    }

    /* Is it at an end? */
    bool reap(unsigned n, int options)
    {
        int status;
        if (pids[n] <= 0 || waitpid(pids[n], &status, options) != pids[n])
            return pids[n] <= 0;
        pids[n] = 0;
        const bool killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
        kills += killed;
        if (!killed && status != 0 && wrong.empty())
            wrong = board->failed ? board->why
                                  : "process " + std::to_string(n) + " ended with status " +
                                        std::to_string(status);
        return true;
    }

    void kill(unsigned n)
    {
        if (pids[n] > 0)
            ::kill(pids[n], SIGKILL);
        reap(n, 0);
    }

    void look_for_hanging()
    {
        for (unsigned n = 0; n < PROCESSES; n++) {
            const uint64_t is = __atomic_load_n(&board->done[n], __ATOMIC_RELAXED);
            if (is != done[n])
                since[n] = now_ms();
            else if (now_ms() - since[n] > 30000 && wrong.empty())
                wrong = "process " + std::to_string(n) + " has done nothing for 30 s";
            done[n] = is;
        }
    }

    void live_an_age(uint64_t end)
    {
        ages++;
        board->noted = 0;
        board->stopping = board->anchored = false;
        std::memset(board->notes, 0, sizeof(board->notes));
        while (wrong.empty() && now_ms() < end) {
            for (unsigned n = 0; n < PROCESSES; n++)
                if (reap(n, WNOHANG))
                    start(n);
            usleep(static_cast<useconds_t>(random.chance(50) ? random.log_uniform(20000)
                                                             : random.below(20000)));
            look_for_hanging();
            do {
                const auto victim = static_cast<unsigned>(random.below(PROCESSES));
                if (victim != ANCHOR)
                    kill(victim);
            } while (random.chance(20));
        }
        if (random.chance(50))
            finish();
        for (unsigned n = 0; n < PROCESSES; n++)
            kill(n);
        compare();
        if (random.chance(50))
            look(random.chance(50) ? ATO_UNMAP_FAST : ATO_UNMAP_SPATIAL);
    }

    /* Lets all processes end by themselves. */
    void finish()
    {
        __atomic_store_n(&board->stopping, true, __ATOMIC_SEQ_CST);
        for (const uint64_t until = now_ms() + 30000; wrong.empty(); usleep(200)) {
            unsigned ended = 0;
            for (unsigned n = 0; n < PROCESSES; n++)
                ended += reap(n, WNOHANG);
            if (ended == PROCESSES)
                return;
            if (now_ms() > until)
                wrong = "a process does not end";
        }
    }

    /* The vectors have to be a chain: it is one if those that are neighbours by their sums are ordered. */
    void compare()
    {
        std::vector<Vector> all;
        for (uint64_t i = 0; i < std::min<uint64_t>(board->noted, Board::NOTES); i++)
            if (board->notes[i].valid)
                all.push_back(board->notes[i].is);
        std::sort(all.begin(), all.end(), [](const Vector &a, const Vector &b) {
            uint64_t sums[2] = {};
            for (unsigned i = 0; i < ACTORS; i++)
                sums[0] += a[i], sums[1] += b[i];
            return sums[0] < sums[1];
        });
        for (size_t i = 1; i < all.size() && wrong.empty(); i++)
            if (!is_within(all[i - 1], all[i]))
                wrong = "two snapshots are not ordered: " + text_of(all[i - 1]) + " and " +
                        text_of(all[i]);
    }

    void look(int mode)
    {
        if (!wrong.empty())
            return;
        start(0, [&](uint64_t seed) { histories::look(*board, plan, path, mode, seed); });
        reap(0, 0);
    }

    const Plan plan;
    rig::Folder folder;
    const std::string path;
    rig::Random random;
    int pids[PROCESSES] = {};
    uint64_t done[PROCESSES] = {}, since[PROCESSES] = {};
    std::string wrong;
};

class Histories : public testing::TestWithParam<Case>
{
};

TEST_P(Histories, HaveASnapshotAtEachMomentAndLoseNoCommit)
{
    SCOPED_TRACE(rig::replay());
    const Case &c = GetParam();
    World world(c.plan);
    ASSERT_EQ(world.live(rig::rounds(c.ms)), "");
    const uint64_t *counts = world.board->counts;
    std::printf(
        "%lu ages, %lu kills, %lu commits, %lu snapshots, read again %lu times, %lu given up\n",
        world.ages, world.kills, counts[COMMITS], counts[SNAPSHOTS], counts[READ_AGAIN],
        counts[GIVEN_UP]);
    EXPECT_TRUE(world.is_convincing());
}

constexpr Case cases[] = {
    {"Pmem", {ATO_DOMAIN_PMEM, ATO_FORMAT_DENSE}, 300},
    {"PmemSparse", {ATO_DOMAIN_PMEM, ATO_FORMAT_SPARSE}, 250},
    {"Process", {ATO_DOMAIN_PROCESS, ATO_FORMAT_DENSE}, 250},
    {"ProcessSparse", {ATO_DOMAIN_PROCESS, ATO_FORMAT_SPARSE}, 200},
    {"Disk", {ATO_DOMAIN_DISK, ATO_FORMAT_DEFAULT}, 300},
    {"OnDisk", {ATO_DOMAIN_DISK, ATO_FORMAT_DEFAULT, rig::Medium::Disk}, 250},
    {"Bounded", {ATO_DOMAIN_PROCESS, ATO_FORMAT_DENSE, rig::Medium::Memory, true}, 250},
};

INSTANTIATE_TEST_SUITE_P(All, Histories, testing::ValuesIn(cases),
                         [](const auto &info) { return std::string(info.param.name); });

} // namespace histories
