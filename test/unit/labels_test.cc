// SPDX-License-Identifier: BSD-3-Clause
//
// Is one of a circle told, and only one, in whatever order its threads look?
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
    static void wait(int who, int whom)
    {
        use_labels_wait(who, whom);
        EXPECT_FALSE(use_labels_step(who)) << who;
    }
    // All of 0 ... n - 1 look, again and again. How many are told?
    static int told(int n)
    {
        int count = 0;
        for (int round = 0; round < 3 * n && !count; round++)
            for (int i = 0; i < n; i++)
                count += use_labels_step(i);
        return count;
    }
};

TEST_F(Labels, TellOneOfACircle)
{
    for (int n = 2; n < 6; n++) {
        for (int i = 0; i < n; i++)
            wait(i, (i + 1) % n);
        EXPECT_EQ(told(n), 1) << n;
    }
}

TEST_F(Labels, TellNobodyOfAChain)
{
    for (int i = 0; i < 5; i++)
        wait(i, i + 1);
    EXPECT_EQ(told(5), 0);
}

// 2 waits for a long chain, whose label 1 copies. Then it gets its page, and waits for 0, which waits for 1 and has not
// copied it yet.
TEST_F(Labels, TellOneAlthoughALabelOfOneWhoIsNotInItGoesRound)
{
    wait(2, 3);
    wait(1, 2);
    wait(0, 1);
    for (int i = USE_LABELS_MOST - 2; i >= 3; i--)
        wait(i, i + 1);
    EXPECT_FALSE(use_labels_step(2));
    EXPECT_FALSE(use_labels_step(1));
    wait(2, 0);
    EXPECT_EQ(told(3), 1);
}

// The thread that waits has it no more, and with it its file may go.
TEST_F(Labels, OfATransactionGoWithIt)
{
    wait(0, 1);
    EXPECT_EQ(use_labels_shown(), 1u);
    use_labels_drop(0);
    EXPECT_EQ(use_labels_shown(), 0u);
}

} // namespace
