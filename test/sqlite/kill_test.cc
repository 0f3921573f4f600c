/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What does SIGKILL leave of SQLite's transactions over two databases? Processes change both, by
 * transactions of 1 to 500 pages, with savepoints, rollbacks, spills and VACUUM, and are killed again and again. When
 * all are dead, a new process, which may be killed too, must find both databases intact, every acknowledged transaction
 * in them, and the interrupted transaction in both or in neither. SQLite's own VFS must find the same, and no other
 * file may be left. In the tests `Each...` a transaction is in each database by itself, and some change one alone: in domain disk their COMMIT
 * waits for no disk with PRAGMA synchronous=normal or off.
 *
 * ATO_TEST_PERCENT=1000 takes ten times as long.
 */
#include "depot.h"

#include <chrono>
#include <gtest/gtest.h>
#include <memory>
#include <ostream>

namespace depot
{

using kills::Process;
using kills::Say;
using kills::Teller;

static void PrintTo(const Script &s, std::ostream *out)
{
    *out << s.name;
}

class SqliteKills : public testing::TestWithParam<Script>
{
  protected:
    void SetUp() override
    {
        const uint64_t seed = random.next();
        Process p([&](const Teller &) { found(place, seed); });
        p.wait();
        ASSERT_TRUE(p.ended_well()) << "the founder: " << p.end();
    }
    void start_all()
    {
        for (std::unique_ptr<Process> &p : writers)
            if (!p) {
                const uint64_t seed = random.next();
                p = std::make_unique<Process>(
                    [this, seed](const Teller &t) { write_until_killed(script, place, seed, t); });
            }
    }
    void kill(std::unique_ptr<Process> &p)
    {
        p->kill();
        EXPECT_TRUE(p->was_killed()) << "the writer: " << p->end();
        book.hear(p->notes);
        p.reset();
        kills++;
    }
    void kill_all()
    {
        for (std::unique_ptr<Process> &p : writers)
            if (p)
                kill(p);
    }
    void kill_a_recovery()
    {
        Process p([&](const Teller &t) { look(script, place, book, End::Plain, t); });
        p.listen(random.log_uniform(5000000));
        p.kill();
        EXPECT_TRUE(p.was_killed() || p.ended_well()) << "the one that looks: " << p.end();
    }
    void look_and_leave(End end)
    {
        Process p([&](const Teller &t) { look(script, place, book, end, t); });
        p.wait();
        EXPECT_TRUE(p.ended_well()) << "the one that looks: " << p.end();
        book.settle(p.notes);
    }

    const Script &script = GetParam();
    Place place{rig::Folder(script.medium)};
    Book book{script.together};
    rig::Random random{rig::seed()};
    std::vector<std::unique_ptr<Process>> writers{script.writers};
    unsigned kills = 0;
};

TEST_P(SqliteKills, LeaveEveryAcknowledgedTransactionAndNonePartly)
{
    using clock = std::chrono::steady_clock;
    SCOPED_TRACE(rig::replay());
    const auto end = clock::now() +
                     std::chrono::milliseconds(rig::rounds(script.writers > 1 ? 1200 : 800)),
               last = end + std::chrono::seconds(30);
    /* Goes on if no kill has hit a COMMIT so far. */
    while (!HasFailure() && (clock::now() < end ||
                             (!(book.acknowledged && book.interrupted) && clock::now() < last))) {
        start_all();
        std::unique_ptr<Process> &p = writers[random.below(writers.size())];
        if (random.chance(75))
            p->listen(random.log_uniform(20000000), random.chance(70) ? Say::Begin : Say::Told);
        else
            p->listen(random.log_uniform(15000000));
        kill(p);
        if (script.writers > 1 && random.chance(70))
            continue;
        kill_all();
        while (random.chance(20) && !HasFailure())
            kill_a_recovery();
        if (!HasFailure())
            look_and_leave(static_cast<End>(random.below(3)));
    }
    kill_all();
    if (!HasFailure())
        look_and_leave(End::Plain);
    EXPECT_GT(book.acknowledged, 0u);
    EXPECT_GT(book.interrupted, 0u) << "no kill came within a COMMIT";
    std::printf("%u kills, %lu transactions acknowledged, %lu interrupted in COMMIT\n", kills,
                book.acknowledged, book.interrupted);
}

static std::vector<Script> scripts()
{
    const std::vector<const char *> rollback = {"delete", "truncate", "persist"},
                                    safe = {"normal", "full", "extra"},
                                    any = {"off", "normal", "full", "extra"};
    return {
        {"Both", rollback, safe, nullptr, true},
        {"BothDisk", rollback, safe, "disk", true},
        {"BothProcess", rollback, safe, "process", true},
        {"EachInMemory", {"memory"}, any, nullptr, false},
        {"EachWithoutSync", rollback, {"off"}, nullptr, false},
        {"EachWithoutJournal", {"off"}, any, nullptr, false},
        {"EachByWal", {"wal"}, any, nullptr, false},
        {"EachByAnyMode", {"wal", "delete", "persist"}, safe, nullptr, false},
        {"BothBySeveral", rollback, safe, nullptr, true, 3},
        {"BothDiskBySeveral", rollback, safe, "disk", true, 3, rig::Medium::Disk},
        {"BothProcessBySeveral", rollback, safe, "process", true, 3, rig::Medium::Disk},
        {"EachDiskBySeveral", {"memory"}, any, "disk", false, 3, rig::Medium::Disk},
        {"EachByWalBySeveral", {"wal"}, any, nullptr, false, 3},
    };
}

INSTANTIATE_TEST_SUITE_P(Sqlite, SqliteKills, testing::ValuesIn(scripts()),
                         [](const auto &info) { return std::string(info.param.name); });

} // namespace depot
