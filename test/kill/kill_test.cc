/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What does SIGKILL at a random moment leave? A child that writes records by one of the commit
 * paths is killed again and again: while it maps the files for the first time, makes its journal,
 * writes, deploys, unmaps, recovers. After each kill a fresh process must find every record wholly
 * old or wholly new, and none lost that was told to be done; and in the end nothing but the files.
 *
 * A control does the same through a plain mmap(): if that leaves no torn record, the kills came at
 * harmless moments, and the rest has proven nothing.
 */
#include "actors.h"

#include <gtest/gtest.h>
#include <ostream>

extern "C" bool persist_rtm_works(void);

namespace kills
{

static std::string name_of(const Script &s)
{
    std::string path = s.within_page                 ? "OnePage"
                       : s.flags & ATO_RTM_ONLY      ? "Rtm"
                       : s.domain == ATO_DOMAIN_EADR ? "Any"
                                                     : "Journal";
    return rig::policy_name(s.policy) + rig::domain_name(s.domain) + path +
           (s.on_disk ? "OnDisk" : "") + (s.writers > 1 ? "Threads" : "");
}

static void PrintTo(const Script &s, std::ostream *out)
{
    *out << name_of(s);
}

static constexpr size_t ONE_PAGE = 1500, SOME_PAGES = 21001;
static constexpr unsigned RECORDS = 12;

class Kills : public testing::TestWithParam<Script>
{
  protected:
    Kills()
        : script(GetParam()), folder(script.on_disk ? rig::Medium::Disk : rig::Medium::Memory),
          ledger(folder, RECORDS, script.within_page ? ONE_PAGE : SOME_PAGES, script.within_page),
          random(rig::seed())
    {
    }
    void SetUp() override
    {
        if ((script.flags & ATO_RTM_ONLY) && !persist_rtm_works())
            GTEST_SKIP() << "hardware transactions do not commit on this CPU";
        ASSERT_TRUE(ledger.write_files());
    }
    /* Kills a writer: some time after its start, or after its first acknowledged write. */
    void kill_a_writer()
    {
        uint64_t seed = random.next();
        Process p([&](const Teller &t) { write_until_killed(script, ledger, seed, t); });
        bool working = random.chance(60);
        p.listen(random.below(working ? 5000000 : 10000000), working);
        p.kill();
        ledger.hear(p.notes);
        ASSERT_TRUE(p.was_killed()) << "the writer: " << p.end();
    }
    void kill_a_recovery()
    {
        uint64_t seed = random.next();
        Process p([&](const Teller &t) { recover_until_killed(script, ledger, seed, t); });
        p.listen(random.below(random.chance(50) ? 1500000 : 8000000), false);
        p.kill();
        for (const Note &n : p.notes)
            ASSERT_EQ(n.say, Say::Object);
        ledger.hear(p.notes);
        ASSERT_TRUE(p.was_killed()) << "the recovery: " << p.end();
    }
    void look(End end)
    {
        uint64_t seed = random.next();
        Process p([&](const Teller &t) { check(script, ledger, seed, end, t); });
        p.wait();
        for (const Note &n : p.notes)
            if (n.say == Say::Verdict && n.value >= static_cast<uint32_t>(Found::Lost)) {
                ADD_FAILURE() << "record " << n.record << " is "
                              << (n.value == static_cast<uint32_t>(Found::Torn) ? "torn" : "lost");
            }
        ASSERT_TRUE(p.ended_well()) << "the checker: " << p.end();
        ledger.hear(p.notes);
        ledger.settle(p.notes);
    }
    /* The last look, after which nothing is left but the files. */
    void look_and_make_plain()
    {
        look(End::Spatial);
        EXPECT_EQ(ledger.leftovers(), "");
    }
    End any_end()
    {
        return static_cast<End>(random.below(4));
    }

    const Script script;
    rig::Folder folder;
    Ledger ledger;
    rig::Random random;
};

TEST_P(Kills, LeaveEveryRecordOldOrNewAndLoseNothing)
{
    SCOPED_TRACE(rig::replay());
    unsigned kills = rig::rounds(script.on_disk ? 30 : 60);
    for (unsigned i = 0; i < kills && !HasFailure(); i++) {
        SCOPED_TRACE("kill " + std::to_string(i));
        kill_a_writer();
        if (!HasFatalFailure())
            look(any_end());
    }
    if (HasFailure())
        return;
    look_and_make_plain();
    EXPECT_GT(ledger.told, 0u);
    EXPECT_GT(ledger.interrupted, 0u) << "no kill came within a call";
    std::printf("%u kills, %lu writes acknowledged, %lu interrupted, of which %lu were done\n",
                kills, ledger.told, ledger.interrupted, ledger.became_new);
}

TEST_P(Kills, OfTheRecoveryLoseNothingEither)
{
    SCOPED_TRACE(rig::replay());
    for (unsigned i = 0; i < rig::rounds(script.on_disk ? 8 : 16) && !HasFailure(); i++) {
        SCOPED_TRACE("round " + std::to_string(i));
        kill_a_writer();
        for (uint64_t again = random.within(1, 4); again && !HasFailure(); again--)
            kill_a_recovery();
        if (!HasFailure())
            look(any_end());
    }
    if (!HasFailure())
        look_and_make_plain();
}

static std::vector<Script> scripts()
{
    std::vector<Script> all;
    for (int policy : {ATO_READ_LAZY, ATO_READ_EAGER}) {
        all.push_back({policy, ATO_DOMAIN_PROCESS, 0, true});
        all.push_back({policy, ATO_DOMAIN_PMEM, 0, true});
        all.push_back({policy, ATO_DOMAIN_PROCESS, ATO_RTM_ONLY, false});
        all.push_back({policy, ATO_DOMAIN_PROCESS, ATO_NO_RTM, false});
        all.push_back({policy, ATO_DOMAIN_PMEM, 0, false});
        all.push_back({policy, ATO_DOMAIN_MSYNC, 0, false});
    }
    all.push_back({ATO_READ_GATHER, ATO_DOMAIN_EADR, 0, false});
    all.push_back({ATO_READ_LAZY, ATO_DOMAIN_MSYNC, 0, false, true});
    for (unsigned flags : {ATO_RTM_ONLY, ATO_NO_RTM})
        all.push_back({ATO_READ_LAZY, ATO_DOMAIN_PROCESS, flags, false, false, 3, 2});
    all.push_back({ATO_READ_ADAPTIVE, ATO_DOMAIN_PMEM, 0, false, false, 3, 2});
    return all;
}

INSTANTIATE_TEST_SUITE_P(All, Kills, testing::ValuesIn(scripts()),
                         [](const auto &info) { return name_of(info.param); });

TEST(Control, TheSameKillsTearRecordsThatAPlainMmapWrites)
{
    SCOPED_TRACE(rig::replay());
    rig::Folder folder;
    Ledger ledger(folder, RECORDS, SOME_PAGES, false);
    rig::Random random(rig::seed());
    unsigned torn = 0, kills = 0;
    /* Not fewer under a sanitizer: the claim is that there are some. */
    while (kills < 100 || (torn == 0 && kills < 1000)) {
        ASSERT_TRUE(ledger.write_files());
        uint64_t seed = random.next();
        Process p([&](const Teller &t) { write_plainly_until_killed(ledger, seed, t); });
        p.listen(random.below(1000000), true);
        p.kill();
        ASSERT_TRUE(p.was_killed()) << p.end();
        ledger.hear(p.notes);
        for (unsigned r = 0; r < ledger.records(); r++) {
            std::vector<unsigned char> file = rig::read_file(ledger.path(Ledger::file(r)));
            torn += ledger.judge(r, file.data() + ledger.offset(r)) == Found::Torn;
        }
        ledger.settle({});
        kills++;
    }
    std::printf("%u kills, %lu writes acknowledged, %u records torn\n", kills, ledger.told, torn);
    EXPECT_GT(torn, 0u) << "kills come at harmless moments here: the other tests prove nothing";
}

} // namespace kills
