/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Do transactions, ato_writev() and epochs hold the same as byte arrays, through every mapping; and do they
 * fail with the expected error, and change nothing then? In each setup of model_test.cc.
 */
#include "steps.h"

/* reflection/media/persist.h; in a build without the seam that header is C only. */
extern "C" bool persist_rtm_works(void);

using model::Commit;
using rig::Medium;

namespace
{

class StepsModel : public testing::TestWithParam<model::Setup>
{
};

TEST_P(StepsModel, HoldTheSameAsByteArraysAndFailWithoutChanges)
{
    const model::Setup &s = GetParam();
    if (s.commit == Commit::Rtm && !persist_rtm_works())
        GTEST_SKIP() << "hardware transactions do not commit on this CPU";
    SCOPED_TRACE(rig::replay());
    unsigned steps = s.medium == Medium::Disk ? 100 : rig::rounds(1500);
    rig::Random sizes(rig::seed());
    uint64_t commits = 0, aborts = 0, elsewhere = 0, syncs = 0, too_big = 0, kept = 0, refused = 0,
             busy = 0, journal = 0;
    for (size_t bytes : {sizes.within(3, 60), sizes.within(20000, 60000) | 1,
                         sizes.within(4u << 20, 6u << 20) | 1}) {
        SCOPED_TRACE("a file of " + std::to_string(bytes) + " bytes");
        rig::Random random(rig::seed() ^ bytes);
        model::Steps world(s, random, bytes);
        for (unsigned i = 0; i < steps && !HasFailure(); i++)
            world.step();
        if (!HasFailure())
            world.finish();
        if (HasFailure())
            return;
        commits += world.commits;
        aborts += world.aborts;
        elsewhere += world.elsewhere;
        syncs += world.syncs;
        too_big += world.too_big;
        kept += world.kept_by_others;
        refused += world.refused;
        busy += world.busy;
        journal += world.tally.journal;
    }
    EXPECT_GT(commits, 0u);
    EXPECT_GT(syncs, 0u);
    EXPECT_GT(kept, 0u);
    EXPECT_TRUE(journal > 0 || s.commit != Commit::Journal);
    if (s.medium == Medium::Disk || rig::rounds(100) < 100)
        return; /* too few steps for all */
    EXPECT_GT(aborts, 0u);
    EXPECT_TRUE(elsewhere > 0 || s.commit == Commit::Single);
    EXPECT_GT(refused, 0u);
    EXPECT_GT(too_big, 0u);
    EXPECT_GT(busy, 0u);
}

INSTANTIATE_TEST_SUITE_P(All, StepsModel, testing::ValuesIn(model::setups()),
                         [](const auto &info) { return model::name_of(info.param); });

} // namespace
