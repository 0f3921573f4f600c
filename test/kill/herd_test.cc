/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Do processes that share files keep them correct when any of them is killed at any moment? In each domain
 * and with each commit path; with several threads, with two users of a group, and beside read-only processes.
 *
 * A control kills processes that write the same records through a plain mmap(). If that tears no record, the
 * kills came at harmless moments, and the other tests have shown nothing.
 *
 * ATO_TEST_PERCENT=1000 lets the herds live ten times as long; give it more for hours.
 */
#include "herd.h"

#include <gtest/gtest.h>
#include <ostream>

namespace herds
{

struct Case {
    const char *name;
    Plan plan;
    unsigned ms = 1500;
    bool stored = false; /* the logs of files on a disk lie in memory, which counts as persistent */
};

static void PrintTo(const Case &c, std::ostream *out)
{
    *out << c.name;
}

static void report(const Herd &herd)
{
    std::printf(
        "%lu kills, %lu of them within a call that writes; %lu operations of writers, %lu of "
        "readers\n",
        herd.kills, herd.interrupted, herd.operations(false), herd.operations(true));
}

class Herds : public testing::TestWithParam<Case>
{
};

TEST_P(Herds, KeepEveryRecordAndTransferWholeWhileTheirMembersAreKilled)
{
    SCOPED_TRACE(rig::replay());
    const Case &c = GetParam();
    if (c.plan.users[0].uid && geteuid() != 0)
        GTEST_SKIP() << "only root can be two users";
    rig::Folder logs(rig::Medium::Memory);
    if (c.stored)
        setenv("ATO_LOG_DIR", logs.at.c_str(), 1);
    Herd herd(c.plan);
    ASSERT_EQ(herd.live(rig::rounds(c.ms)), "");
    EXPECT_EQ(herd.end(), "");
    unsetenv("ATO_LOG_DIR");
    EXPECT_GT(herd.interrupted, 0u) << "no kill came within a call that writes";
    EXPECT_GT(herd.operations(false), 0u);
    EXPECT_GT(herd.operations(true), 0u);
    report(herd);
}

static constexpr User owner{1000, 1005}, member{1001, 1005};

static std::vector<Case> cases()
{
    constexpr auto memory = rig::Medium::Memory, disk = rig::Medium::Disk;
    std::vector<Case> all = {
        {"Pmem", {ATO_DOMAIN_PMEM, 0}, 2500},
        {"Process", {ATO_DOMAIN_PROCESS, 0}},
        {"ProcessJournal", {ATO_DOMAIN_PROCESS, ATO_NO_RTM}},
        {"Eadr", {ATO_DOMAIN_EADR, 0, 2, 2}, 1000},
        {"EadrJournal", {ATO_DOMAIN_EADR, ATO_NO_RTM}, 1000},
        {"PmemThreads", {ATO_DOMAIN_PMEM, 0, 2, 1, 3}},
        {"ProcessThreads", {ATO_DOMAIN_PROCESS, 0, 2, 1, 3}},
        {"ProcessJournalThreads", {ATO_DOMAIN_PROCESS, ATO_NO_RTM, 2, 1, 3}},
        {"TwoUsers", {ATO_DOMAIN_PMEM, 0, 3, 2, 1, memory, {owner, member}}, 2000},
        {"ReadOnly", {ATO_DOMAIN_PMEM, 0, 3, 2, 1, memory, {}, true}, 2000},
    };
    if (!rig::is_second_round()) {
        all.push_back({"Disk", {ATO_DOMAIN_DISK, 0}, 2000});
        all.push_back({"DiskThreads", {ATO_DOMAIN_DISK, 0, 2, 1, 3}, 1000});
        all.push_back({"OnDisk", {ATO_DOMAIN_DISK, 0, 2, 1, 1, disk}, 2000});
        all.push_back({"StoredLog", {ATO_DOMAIN_DISK, 0, 2, 1, 1, disk}, 1500, true});
    }
    return all;
}

INSTANTIATE_TEST_SUITE_P(All, Herds, testing::ValuesIn(cases()),
                         [](const auto &info) { return std::string(info.param.name); });

TEST(Control, TheSameKillsTearRecordsWrittenThroughAPlainMmap)
{
    SCOPED_TRACE(rig::replay());
    Plan plan{ATO_DOMAIN_PROCESS, 0, 3, 0};
    plan.plain = true;
    Herd herd(plan);
    ASSERT_EQ(herd.live(rig::rounds(500)), "");
    report(herd);
    std::printf("%lu records torn\n", herd.torn);
    EXPECT_GT(herd.torn, 0u)
        << "kills come at harmless moments here: the other tests prove nothing";
}

} // namespace herds
