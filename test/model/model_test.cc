/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Does a mapped file hold, after any operations, the bytes that a byte array holds after the same ones? With
 * every policy, domain and commit path, in the library as it is installed.
 */
#include "world.h"

/* reflection/media/persist.h; in a build without the seam that header is C only. */
extern "C" bool persist_rtm_works(void);

using model::Commit;
using rig::Medium;

namespace
{

class Model : public testing::TestWithParam<model::Setup>
{
};

/* Returns the counts of commits of each kind. */
void run(const model::Setup &s, size_t bytes, unsigned steps, model::Tally *sum)
{
    rig::Random random(rig::seed() ^ bytes);
    model::World world(s, random, bytes);
    for (unsigned i = 0; i < steps && !testing::Test::HasFailure(); i++)
        world.step();
    if (!testing::Test::HasFailure())
        world.compare_all();
    if (!testing::Test::HasFailure())
        world.finish();
    sum->single += world.tally.single;
    sum->rtm += world.tally.rtm;
    sum->journal += world.tally.journal;
    sum->deployed += world.tally.deployed;
}

TEST_P(Model, HoldsTheSameAsAByteArrayAfterAnyOperations)
{
    const model::Setup &s = GetParam();
    if (s.commit == Commit::Rtm && !persist_rtm_works())
        GTEST_SKIP() << "hardware transactions do not commit on this CPU";
    SCOPED_TRACE(rig::replay());
    /* Few on a disk, but enough for each kind of operation. */
    unsigned steps = s.medium == Medium::Disk ? 60 : rig::rounds(800);
    model::Tally sum;
    /* Unaligned sizes: less than a slice, some pages, more than the 512 pages that share a meta page. */
    rig::Random sizes(rig::seed());
    for (size_t bytes : {sizes.within(3, 60), sizes.within(5000, 40000) | 1,
                         sizes.within(4u << 20, 6u << 20) | 1}) {
        SCOPED_TRACE("a file of " + std::to_string(bytes) + " bytes");
        run(s, bytes, steps, &sum);
        if (HasFailure())
            return;
    }
    EXPECT_GT(sum.single, 0u);
    // A growth that finds other bytes than zeros after the end, in the last slice, commits zeros with the size.
    if (s.commit != Commit::Single) {
        EXPECT_EQ(sum.rtm > 0, s.commit == Commit::Rtm);
        EXPECT_TRUE(sum.journal > 0 || s.commit == Commit::Rtm);
    }
    EXPECT_EQ(sum.deployed > 0, s.domain != ATO_DOMAIN_DISK); // with a log all slices are home
}

INSTANTIATE_TEST_SUITE_P(All, Model, testing::ValuesIn(model::setups()),
                         [](const auto &info) { return model::name_of(info.param); });

} // namespace
