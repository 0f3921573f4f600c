// SPDX-License-Identifier: BSD-3-Clause
//
// Does exactly one thread of a cycle find it, in any order in which its threads look?
#include "use_labels.h"

#include <gtest/gtest.h>

namespace
{

class Labels : public testing::Test
{
  protected:
    void SetUp() override
    {
        ASSERT_EQ(use_labels_set_up(), 0);
    }
    void TearDown() override
    {
        use_labels_tear_down();
    }
    static void wait(int waiter, int holder)
    {
        use_labels_wait(waiter, holder);
        EXPECT_FALSE(use_labels_step(waiter)) << waiter;
    }
    // Threads 0 to n - 1 look, again and again. Returns how many find a cycle.
    static int found(int n)
    {
        int count = 0;
        for (int round = 0; round < 3 * n && !count; round++)
            for (int i = 0; i < n; i++)
                count += use_labels_step(i);
        return count;
    }
};

TEST_F(Labels, OneThreadOfACycleFindsIt)
{
    for (int n = 2; n < 6; n++) {
        for (int i = 0; i < n; i++)
            wait(i, (i + 1) % n);
        EXPECT_EQ(found(n), 1) << n;
    }
}

TEST_F(Labels, NoThreadOfAChainFindsACycle)
{
    for (int i = 0; i < 5; i++)
        wait(i, i + 1);
    EXPECT_EQ(found(5), 0);
}

// 2 waits for a long chain, and 1 copies its label. Then 2 gets its page, and waits for 0, which
// waits for 1 and has not copied the label yet.
TEST_F(Labels, OneThreadFindsTheCycleIfALabelFromOutsideGoesRound)
{
    wait(2, 3);
    wait(1, 2);
    wait(0, 1);
    for (int i = USE_LABELS_MOST - 2; i >= 3; i--)
        wait(i, i + 1);
    EXPECT_FALSE(use_labels_step(2));
    EXPECT_FALSE(use_labels_step(1));
    wait(2, 0);
    EXPECT_EQ(found(3), 1);
}

// The waiting thread no longer has the transaction, and the file of the transaction may be
// unmapped.
TEST_F(Labels, AreRemovedWithTheirTransaction)
{
    wait(0, 1);
    EXPECT_EQ(use_labels_shown(), 1u);
    use_labels_drop(0);
    EXPECT_EQ(use_labels_shown(), 0u);
}

} // namespace
