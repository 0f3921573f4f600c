/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Kills and power cuts of all engines, and of some that have a fault.
 *
 *   ATO_TEST_PERCENT=5000     fifty times as many rounds
 *   ATO_ENGINES_FORGET=STEP   power cuts find out whether each STEP (copy, flush, fence) is needed: each, or with :N each N-th, is
 *                             taken for not done. A test that still passes says that they are not, or that it looks at too little
 */
#include "crash.h"
#include "faulty.h"

#include <gtest/gtest.h>

namespace engines_test
{

namespace
{

std::vector<Case> those_that_promise(const std::vector<Domain> &domains,
                                     bool (*filter)(const Kind &))
{
    std::vector<Case> some;
    for (const Case &one : cases(domains))
        if (one.promise() != Promise::none && filter(*one.kind))
            some.push_back(one);
    return some;
}

const auto name = [](const auto &info) { return info.param.name(); };

class Kill : public testing::TestWithParam<Case>
{
};

TEST_P(Kill, AtAStepLeavesWhatIsPromised)
{
    SCOPED_TRACE(rig::replay());
    EXPECT_EQ(crash_rounds(GetParam(), End::kill, rig::rounds(16)), "");
}

INSTANTIATE_TEST_SUITE_P(Engines, Kill,
                         testing::ValuesIn(those_that_promise({Domain::pmem, Domain::process},
                                                              has_steps)),
                         name);

class KillAtAnyTime : public testing::TestWithParam<Case>
{
};

TEST_P(KillAtAnyTime, LeavesWhatIsPromised)
{
    SCOPED_TRACE(rig::replay());
    EXPECT_EQ(crash_rounds(GetParam(), End::alarm, rig::rounds(8)), "");
}

INSTANTIATE_TEST_SUITE_P(Engines, KillAtAnyTime,
                         testing::ValuesIn(those_that_promise({Domain::pmem, Domain::process},
                                                              [](const Kind &) { return true; })),
                         name);

class PowerCut : public testing::TestWithParam<Case>
{
};

TEST_P(PowerCut, LeavesWhatIsPromised)
{
    SCOPED_TRACE(rig::replay());
    EXPECT_EQ(crash_rounds(GetParam(), End::power, rig::rounds(12), forgotten_by_environment()),
              "");
}

/* Of each engine: without its fences nothing of what it acknowledges is durable. */
TEST_P(PowerCut, FindsThatFencesAreLeftOut)
{
    EXPECT_NE(crash_rounds(GetParam(), End::power, 1000, Forgotten{engine::Step::fence, 1}), "");
}

INSTANTIATE_TEST_SUITE_P(Engines, PowerCut,
                         testing::ValuesIn(those_that_promise({Domain::pmem}, goes_through_media)),
                         name);

TEST(KillControl, FindsAWriteThatIsTorn)
{
    EXPECT_NE(crash_rounds({&HALVES, Unit::write, Domain::pmem}, End::kill, 1000), "");
}

TEST(KillControl, FindsAPageThatIsTorn)
{
    EXPECT_NE(crash_rounds({&PAGES, Unit::write, Domain::pmem}, End::kill, 1000), "");
}

TEST(KillControl, FindsAWriteThatIsAcknowledgedTooEarly)
{
    EXPECT_NE(crash_rounds({&LATE, Unit::write, Domain::pmem}, End::kill, 1000), "");
}

TEST(KillControl, FindsATornWriteAtAnyTime)
{
    EXPECT_NE(crash_rounds({&HALVES, Unit::write, Domain::pmem}, End::alarm, 100000), "");
}

TEST(PowerCutControl, FindsAFenceThatIsMissing)
{
    EXPECT_EQ(crash_rounds({&UNFENCED, Unit::write, Domain::pmem}, End::kill, 20), "");
    EXPECT_NE(crash_rounds({&UNFENCED, Unit::write, Domain::pmem}, End::power, 1000), "");
}

} // namespace

} // namespace engines_test
