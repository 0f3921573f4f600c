// SPDX-License-Identifier: BSD-3-Clause
//
// Is the arithmetic of the dense reflection right? Compared with a table of an independent program
// (test/data/make_golden.py), and checked for the properties that every layout must have.
#include "golden.h"

extern "C" {
#include "reflection/format/layout.h"
}

#include <gtest/gtest.h>

#include <set>

namespace
{

/* Formula (1) of FORMAT.md. */
uint64_t layout_reflected(uint64_t o)
{
    return layout_refpage(LAYOUT_DENSE, o / PAGE_BYTES) + o % PAGE_BYTES;
}

TEST(Layout, ReflectedOffsetMatchesFormulaOne)
{
    size_t rows = 0;
    for (const auto &row : golden_table("layout.golden", "reflected")) {
        EXPECT_EQ(layout_reflected(row[0]), row[1]) << "byte " << row[0];
        rows++;
    }
    EXPECT_GT(rows, 50u);
}

TEST(Layout, WordOfEveryPageMatchesTheTable)
{
    size_t rows = 0;
    for (const auto &row : golden_table("layout.golden", "word")) {
        EXPECT_EQ(layout_word(LAYOUT_DENSE, row[0]), row[1]) << "page " << row[0];
        rows++;
    }
    EXPECT_GT(rows, 30u);
}

TEST(Layout, SizeOfTheReflectionMatchesTheTable)
{
    size_t rows = 0;
    for (const auto &row : golden_table("layout.golden", "size")) {
        EXPECT_EQ(layout_reflection_bytes(LAYOUT_DENSE, row[0]), row[1]) << "size " << row[0];
        rows++;
    }
    EXPECT_GT(rows, 15u);
}

TEST(Layout, HomesAndWordsOfAFileNeverOverlap)
{
    constexpr uint64_t PAGES = 2000;
    std::set<uint64_t> pages; // RefPages of the reflection
    for (uint64_t p = 0; p < PAGES; p++) {
        uint64_t home = layout_reflected(p * PAGE_BYTES);
        EXPECT_EQ(home % PAGE_BYTES, 0u);
        EXPECT_TRUE(pages.insert(home).second) << "page " << p;
    }
    std::set<uint64_t> words;
    for (uint64_t p = 0; p < PAGES; p++) {
        uint64_t word = layout_word(LAYOUT_DENSE, p);
        EXPECT_TRUE(words.insert(word).second) << "page " << p;
        EXPECT_EQ(pages.count(word / PAGE_BYTES * PAGE_BYTES), 0u) << "page " << p;
        EXPECT_EQ(layout_meta_page(LAYOUT_DENSE, p / CHUNK_PAGES), word / PAGE_BYTES * PAGE_BYTES);
    }
}

TEST(Layout, BytesOfAPageStayTogetherAndInOrder)
{
    for (uint64_t page : {0ull, 511ull, 512ull, 513ull, 123456ull, (1ull << 36) - 2})
        for (uint64_t in : {1ull, 63ull, 4095ull})
            EXPECT_EQ(layout_reflected(page * PAGE_BYTES + in),
                      layout_reflected(page * PAGE_BYTES) + in);
}

TEST(Layout, ReflectionEndsWithItsLastRefPage)
{
    for (uint64_t pages : {1ull, 2ull, 511ull, 512ull, 513ull, 1024ull, 1025ull, 70000ull}) {
        uint64_t last = (pages - 1) * PAGE_BYTES;
        EXPECT_EQ(layout_reflection_bytes(LAYOUT_DENSE, pages * PAGE_BYTES),
                  layout_reflected(last) + PAGE_BYTES);
        EXPECT_EQ(layout_reflection_bytes(LAYOUT_DENSE, last + 1),
                  layout_reflected(last) + PAGE_BYTES);
    }
    EXPECT_EQ(layout_reflection_bytes(LAYOUT_DENSE, 0), 0u);
}

TEST(Layout, IsWordMatchesTheWordsOfTheReflection)
{
    for (uint64_t pages : {0ull, 1ull, 3ull, 511ull, 512ull, 513ull, 1025ull}) {
        uint64_t bytes = layout_reflection_bytes(LAYOUT_DENSE, pages * PAGE_BYTES);
        std::set<uint64_t> words;
        for (uint64_t p = 0; p < pages; p++)
            words.insert(layout_word(LAYOUT_DENSE, p));
        for (uint64_t at = 0; at < bytes + 3 * CHUNK_BYTES; at += 4)
            ASSERT_EQ(layout_is_word(LAYOUT_DENSE, at, bytes), words.count(at) == 1)
                << "offset " << at << " of " << bytes;
    }
}

TEST(Layout, IsWordIsFalseForExtremeNumbers)
{
    for (uint64_t at : {~0ull, ~0ull - 7, 1ull << 63, 0x00fffffffffffff8ull})
        for (uint64_t bytes : {0ull, 1ull, 4096ull, 8192ull, 1ull << 48})
            EXPECT_FALSE(layout_is_word(LAYOUT_DENSE, at, bytes)) << at;
}

TEST(Layout, LargestFileOverflowsNothing)
{
    uint64_t last = LAYOUT_MAX_BYTES - 1;
    EXPECT_GT(layout_reflected(last), last);
    EXPECT_LT(layout_word(LAYOUT_DENSE, last / PAGE_BYTES),
              1ull << 56); // what a journal's word can name
    EXPECT_LT(layout_reflection_bytes(LAYOUT_DENSE, LAYOUT_MAX_BYTES), 1ull << 49);
}

} // namespace
