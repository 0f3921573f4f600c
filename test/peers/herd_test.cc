/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Do processes that share files stay right when any of them is killed at any instruction?
 *
 *   ATO_TEST_SECONDS   how long all of it lives; 60. Give it minutes, or hours
 */
#include "herd.h"

#include <gtest/gtest.h>
#include <ostream>

namespace peers
{

struct Case {
    const char *name;
    Plan plan;
    unsigned percent; /* of the time */
};

static void PrintTo(const Case &c, std::ostream *out)
{
    *out << c.name;
}

static uint64_t milliseconds(unsigned percent)
{
    const char *told = std::getenv("ATO_TEST_SECONDS");
    const uint64_t seconds = told ? std::strtoull(told, nullptr, 0) : 60;
    return rig::rounds(static_cast<unsigned>(seconds * 10 * percent));
}

class Herds : public testing::TestWithParam<Case>
{
};

TEST_P(Herds, KeepEveryRecordWholeWhileTheirMembersAreKilled)
{
    SCOPED_TRACE(rig::replay());
    const Case &c = GetParam();
    if (c.plan.users[0].uid && geteuid() != 0)
        GTEST_SKIP() << "only root can be two users";
    rig::Random random(rig::seed());
    Herd herd(c.plan);
    ASSERT_TRUE(herd.write_files());
    ASSERT_EQ(herd.live(milliseconds(c.percent), random), "");
    EXPECT_EQ(herd.end(), "");
    EXPECT_GT(herd.kills, 0u);
    EXPECT_GT(herd.operations(), 0u);
    EXPECT_GT(herd.reads(), 0u);
    std::printf(
        "%lu kills, %lu operations of writers, %lu of readers, the longest %lu ms\n",
        static_cast<unsigned long>(herd.kills), static_cast<unsigned long>(herd.operations()),
        static_cast<unsigned long>(herd.reads()), static_cast<unsigned long>(herd.longest_ms()));
}

INSTANTIATE_TEST_SUITE_P(
    All, Herds,
    testing::Values(
        Case{"Pmem", {ATO_DOMAIN_PMEM, 0, 3, 2, {}, false}, 20},
        Case{"Process", {ATO_DOMAIN_PROCESS, 0, 3, 2, {}, false}, 20},
        Case{"EadrJournal", {ATO_DOMAIN_EADR, ATO_NO_RTM, 3, 2, {}, false}, 10},
        Case{"Msync", {ATO_DOMAIN_MSYNC, 0, 2, 2, {}, false}, 15},
        Case{"TwoUsers", {ATO_DOMAIN_PMEM, 0, 3, 2, {{1000, 1005}, {1001, 1005}}, false}, 20},
        Case{"ReadOnly", {ATO_DOMAIN_PMEM, 0, 3, 2, {}, true}, 15}),
    [](const auto &info) { return std::string(info.param.name); });

} // namespace peers
