/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What does SIGKILL leave of SQLite's transactions over two databases in two folders? Processes that change
 * both, by transactions of 1 to 500 pages, with savepoints, rollbacks, spills and VACUUM, are killed again
 * and again. After each kill a fresh process must find both healthy, every acknowledged transaction there,
 * and the one that was interrupted in both or in neither; and after the last one so must SQLite's own VFS, with
 * nothing left behind.
 */
#include "depot.h"

#include <gtest/gtest.h>
#include <memory>
#include <ostream>

namespace depot
{

using kills::Process;
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
    std::unique_ptr<Process> writer()
    {
        const uint64_t seed = random.next();
        return std::make_unique<Process>(
            [this, seed](const Teller &t) { write_until_killed(script, place, seed, t); });
    }
    void hear(const Process &p)
    {
        book.hear(p.notes);
        place.hear(p.notes);
    }
    void kill(Process &p)
    {
        p.kill();
        hear(p);
        ASSERT_TRUE(p.was_killed()) << "the writer: " << p.end();
    }
    void judge(Process &p)
    {
        p.wait();
        place.hear(p.notes);
        ASSERT_TRUE(p.ended_well()) << "who looks: " << p.end();
        book.settle(heard(p.notes));
    }
    void look_and_leave(End end)
    {
        Process p([&](const Teller &t) { look(script, place, book, end, t); });
        judge(p);
    }
    void look_at_plain_files()
    {
        ASSERT_EQ(place.leftovers(*script.parameters), "");
        Process p([&](const Teller &t) { look_plainly(place, book, t); });
        judge(p);
    }
    void kill_who_recovers()
    {
        Process p([&](const Teller &t) { look(script, place, book, End::Plain, t); });
        p.listen(random.below(5000000), false);
        p.kill();
        place.hear(p.notes);
        ASSERT_TRUE(p.was_killed() || p.ended_well()) << "who looks: " << p.end();
    }
    void report(unsigned kills) const
    {
        EXPECT_GT(book.acknowledged, 0u);
        std::printf("%u kills, %lu transactions acknowledged, %lu interrupted in COMMIT\n", kills,
                    static_cast<unsigned long>(book.acknowledged),
                    static_cast<unsigned long>(book.interrupted));
    }

    const Script &script = GetParam();
    Place place;
    Book book{script.together};
    rig::Random random{rig::seed()};
};

class OneWriter : public SqliteKills
{
};

TEST_P(OneWriter, LeavesEveryAcknowledgedTransactionAndNoneByHalf)
{
    SCOPED_TRACE(rig::replay());
    const unsigned kills = rig::rounds(script.kills);
    for (unsigned i = 0; i < kills && !HasFailure(); i++) {
        SCOPED_TRACE("kill " + std::to_string(i));
        std::unique_ptr<Process> p = writer();
        const bool working = random.chance(85);
        p->listen(random.log_uniform(working ? 60000000 : 15000000), working);
        kill(*p);
        while (random.chance(15) && !HasFailure())
            kill_who_recovers();
        const auto end = static_cast<End>(random.below(3));
        if (!HasFailure())
            look_and_leave(end);
        if (!HasFailure() && end == End::Plain)
            look_at_plain_files();
    }
    if (!HasFailure())
        look_and_leave(End::Plain);
    if (!HasFailure())
        look_at_plain_files();
    if (!HasFailure())
        report(kills);
}

class SeveralWriters : public SqliteKills
{
};

TEST_P(SeveralWriters, GoOnWhenOneOfThemIsKilled)
{
    SCOPED_TRACE(rig::replay());
    std::vector<std::unique_ptr<Process>> all;
    for (unsigned i = 0; i < script.writers; i++)
        all.push_back(writer());
    const unsigned kills = rig::rounds(script.kills);
    for (unsigned i = 0; i < kills && !HasFailure(); i++) {
        SCOPED_TRACE("kill " + std::to_string(i));
        std::unique_ptr<Process> &p = all[random.below(all.size())];
        p->listen(random.log_uniform(60000000), random.chance(70));
        kill(*p);
        p = writer();
    }
    /* Those that are left have been doing well so far. */
    for (std::unique_ptr<Process> &p : all)
        kill(*p);
    if (!HasFailure())
        look_and_leave(End::Plain);
    if (!HasFailure())
        look_at_plain_files();
    if (!HasFailure())
        report(kills);
}

static const std::vector<const char *> rollback = {"delete", "truncate", "persist"};
static const std::vector<const char *> safe = {"normal", "full", "extra"};
static const std::vector<const char *> any = {"off", "normal", "full", "extra"};

static std::string name_of(const testing::TestParamInfo<Script> &info)
{
    return info.param.name;
}

INSTANTIATE_TEST_SUITE_P(
    Sqlite, OneWriter,
    testing::Values(
        Script{"Both", rollback, safe, "", nullptr, true, 1, 90},
        Script{"BothMsync", rollback, safe, "", "msync", true, 1, 25},
        Script{"BothProcess", rollback, safe, "", "process", true, 1, 40},
        Script{"BothWithJournals", rollback, safe, "journal=file", nullptr, true, 1, 40},
        Script{"EachInMemory", {"memory"}, any, "", nullptr, false, 1, 30},
        Script{"EachWithoutSync", rollback, {"off"}, "", nullptr, false, 1, 25},
        Script{"EachWithoutJournal", {"off"}, any, "", nullptr, false, 1, 25},
        Script{"EachByWal", {"wal"}, any, "", nullptr, false, 1, 40},
        Script{"EachByAnyMode", {"wal", "delete", "persist"}, safe, "", nullptr, false, 1, 30}),
    name_of);

INSTANTIATE_TEST_SUITE_P(
    Sqlite, SeveralWriters,
    testing::Values(Script{"Both", rollback, safe, "", nullptr, true, 3, 20},
                    Script{"BothMsync", rollback, safe, "", "msync", true, 3, 8},
                    Script{
                        "BothWithJournals", {"delete"}, safe, "journal=file", nullptr, true, 3, 8},
                    Script{"EachByWal", {"wal"}, any, "", nullptr, false, 3, 30}),
    name_of);

} // namespace depot
