// SPDX-License-Identifier: BSD-3-Clause
//
// Does the checksum match its definition (the golden table), and does it tell apart data that
// differ in one bit, in the number of zeros, or in the order of words?
#include "golden.h"

extern "C" {
#include "reflection/format/checksum.h"
}

#include <gtest/gtest.h>

#include <set>

namespace
{

// The golden file's lines: n words i * k + 1, and the sum of them.
TEST(Checksum, MatchesTheFormatsDefinition)
{
    size_t rows = 0;
    for (const auto &row : golden_table("layout.golden", "checksum")) {
        std::vector<uint64_t> words;
        for (uint64_t i = 0; i < row[0]; i++)
            words.push_back(i * row[1] + 1);
        EXPECT_EQ(checksum(words.data(), words.size() * 8), row[2]);
        rows++;
    }
    EXPECT_GT(rows, 5u);
}

TEST(Checksum, ChangesWithEveryBit)
{
    support::Bytes bytes = support::pattern(512, 3);
    std::set<uint64_t> seen = {checksum(bytes.data(), bytes.size())};
    for (size_t bit = 0; bit < bytes.size() * 8; bit++) {
        bytes[bit / 8] ^= static_cast<unsigned char>(1 << bit % 8);
        EXPECT_TRUE(seen.insert(checksum(bytes.data(), bytes.size())).second) << "bit " << bit;
        bytes[bit / 8] ^= static_cast<unsigned char>(1 << bit % 8);
    }
}

TEST(Checksum, TellsLengthsOfZerosApart)
{
    support::Bytes zeros(512);
    std::set<uint64_t> seen;
    for (size_t n = 0; n <= zeros.size(); n += 8)
        EXPECT_TRUE(seen.insert(checksum(zeros.data(), n)).second);
    EXPECT_EQ(seen.count(0), 0u) << "zeros must not look valid";
}

TEST(Checksum, OfPiecesEqualsChecksumOfTheWhole)
{
    support::Bytes bytes = support::pattern(1024, 4);
    for (size_t cut = 0; cut <= bytes.size(); cut += 8)
        EXPECT_EQ(checksum_add(checksum(bytes.data(), cut), bytes.data() + cut, bytes.size() - cut),
                  checksum(bytes.data(), bytes.size()));
}

TEST(Checksum, ChangesWhenWordsAreSwapped)
{
    uint64_t a[2] = {1, 2}, b[2] = {2, 1};
    EXPECT_NE(checksum(a, 16), checksum(b, 16));
}

} // namespace
