// SPDX-License-Identifier: BSD-3-Clause
//
// Do the masks name the slices they should? Every range, against one slice at a time.
extern "C" {
#include "reflection/media/bitmap.h"
}

#include <gtest/gtest.h>

namespace
{

TEST(Bitmap, SlicesFirstToLastForEveryPair)
{
    for (unsigned first = 0; first < 64; first++) {
        uint64_t expected = 0;
        for (unsigned last = first; last < 64; last++) {
            expected |= 1ull << last;
            ASSERT_EQ(bitmap_slices(first, last), expected) << first << " to " << last;
        }
    }
}

TEST(Bitmap, TouchedByEveryByteRange)
{
    for (unsigned begin = 0; begin < 4096; begin++) {
        uint64_t expected = 0;
        for (unsigned n = 1; begin + n <= 4096; n++) {
            expected |= 1ull << ((begin + n - 1) / 64);
            ASSERT_EQ(bitmap_touched(begin, n), expected) << n << " bytes from " << begin;
        }
    }
}

TEST(Bitmap, CountsItsBits)
{
    EXPECT_EQ(bitmap_count(0), 0u);
    EXPECT_EQ(bitmap_count(~0ull), 64u);
    EXPECT_EQ(bitmap_count(0x8000000000000001ull), 2u);
}

} // namespace
