// SPDX-License-Identifier: BSD-3-Clause
//
// Is the arithmetic of both layouts right? Compared with a table of an independent program
// (test/data/make_golden.py), and checked for the properties that every layout must have.
#include "golden.h"

extern "C" {
#include "reflection/format/layout.h"
}

#include <gtest/gtest.h>

#include <functional>
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

// Compares the rows of a table with `layout`, which gets the numbers of a row except the last one, its result.
void compare(const char *table, size_t least,
             const std::function<uint64_t(const std::vector<uint64_t> &)> &layout)
{
    const auto rows = golden_table("layout.golden", table);
    EXPECT_GT(rows.size(), least);
    for (const auto &row : rows)
        EXPECT_EQ(layout(row), row.back())
            << table << ' ' << row[0] << ' ' << row[1] << ' ' << (row.size() > 3 ? row[2] : 0);
}

using Row = std::vector<uint64_t>;

uint32_t format_of(const Row &row)
{
    return static_cast<uint32_t>(row[0]);
}

TEST(Layout, EveryFunctionMatchesTheTable)
{
    compare("chunk", 1, [](const Row &r) { return layout_chunk(format_of(r)); });
    compare("meta", 8, [](const Row &r) { return layout_meta_page(format_of(r), r[1]); });
    compare("word", 60, [](const Row &r) { return layout_word(format_of(r), r[1]); });
    compare("refpage", 60, [](const Row &r) { return layout_refpage(format_of(r), r[1]); });
    compare("size", 40, [](const Row &r) { return layout_reflection_bytes(format_of(r), r[1]); });
    compare("chunks", 15, [](const Row &r) { return layout_chunks(format_of(r), r[1]); });
    compare("is", 400, [](const Row &r) { return layout_is_word(format_of(r), r[1], r[2]); });
}

class LayoutOf : public testing::TestWithParam<uint32_t>
{
  protected:
    const uint32_t format = GetParam();
    const uint64_t chunk = layout_chunk(format);
};

INSTANTIATE_TEST_SUITE_P(Formats, LayoutOf, testing::Values(LAYOUT_DENSE, LAYOUT_SPARSE),
                         [](const auto &which) { return which.param ? "Sparse" : "Dense"; });

TEST_P(LayoutOf, RefPagesAndEntriesNeverOverlap)
{
    constexpr uint64_t PLACES = 2000;
    std::set<uint64_t> pages; // RefPages
    for (uint64_t p = 0; p < PLACES; p++) {
        uint64_t home = layout_refpage(format, p);
        EXPECT_EQ(home % PAGE_BYTES, 0u);
        EXPECT_TRUE(pages.insert(home).second) << "place " << p;
    }
    std::set<uint64_t> entries; // each 8 bytes of them
    for (uint64_t p = 0; p < PLACES; p++) {
        uint64_t word = layout_word(format, p);
        EXPECT_TRUE(entries.insert(word).second) << "place " << p;
        if (format == LAYOUT_SPARSE) {
            EXPECT_TRUE(entries.insert(word - 8).second) << "place " << p;
        }
        for (uint64_t at : {word, word - (format == LAYOUT_SPARSE ? 8 : 0)}) {
            EXPECT_EQ(pages.count(at / PAGE_BYTES * PAGE_BYTES), 0u) << "place " << p;
            EXPECT_EQ(layout_meta_page(format, p / chunk), at / PAGE_BYTES * PAGE_BYTES);
        }
    }
}

TEST_P(LayoutOf, MetaPagesAreFull)
{
    const uint64_t entry = PAGE_BYTES / chunk;
    for (uint64_t p = 0; p < 3 * chunk; p++)
        EXPECT_EQ(layout_word(format, p) % PAGE_BYTES, (p % chunk + 1) * entry - 8);
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

TEST(Layout, SparseReflectionHasAPlaceForEachPageAndAChunkMore)
{
    for (uint64_t pages : {1ull, 2ull, 255ull, 256ull, 257ull, 512ull, 70000ull}) {
        const uint64_t bytes = layout_reflection_bytes(LAYOUT_SPARSE, pages * PAGE_BYTES),
                       chunks = layout_chunks(LAYOUT_SPARSE, bytes);
        EXPECT_EQ(bytes, layout_meta_page(LAYOUT_SPARSE, chunks)) << pages;
        EXPECT_GE(chunks * CHUNK_SPARSE, pages + CHUNK_SPARSE);
        EXPECT_LT(chunks * CHUNK_SPARSE, pages + 2 * CHUNK_SPARSE);
    }
    EXPECT_EQ(layout_reflection_bytes(LAYOUT_SPARSE, 0), 0u);
}

TEST_P(LayoutOf, IsWordExactlyForTheWordsOfTheReflection)
{
    for (uint64_t pages : {0ull, 1ull, 3ull, 255ull, 257ull, 511ull, 512ull, 513ull, 1025ull})
        for (uint64_t less : {0ull, 1ull, 4096ull}) {
            uint64_t bytes = layout_reflection_bytes(format, pages * PAGE_BYTES);
            bytes -= bytes < less ? bytes : less;
            std::set<uint64_t> words;
            for (uint64_t p = 0; layout_refpage(format, p) + PAGE_BYTES <= bytes; p++)
                words.insert(layout_word(format, p));
            // Each 4 bytes of meta pages; of RefPages some.
            const uint64_t end = bytes + 3 * layout_meta_page(format, 1);
            for (uint64_t page = 0; page < end; page += PAGE_BYTES)
                for (uint64_t in = 0; in < PAGE_BYTES;
                     in += page % layout_meta_page(format, 1) ? 508 : 4)
                    ASSERT_EQ(layout_is_word(format, page + in, bytes), words.count(page + in) == 1)
                        << "offset " << page + in << " of " << bytes;
        }
}

TEST_P(LayoutOf, IsWordIsFalseForExtremeNumbers)
{
    for (uint64_t at : {~0ull, ~0ull - 7, 1ull << 63, 0x00fffffffffffff8ull})
        for (uint64_t bytes : {0ull, 1ull, 4096ull, 8192ull, 1ull << 48})
            EXPECT_FALSE(layout_is_word(format, at, bytes)) << at;
}

TEST(Layout, LargestFileOverflowsNothing)
{
    uint64_t last = LAYOUT_MAX_BYTES - 1;
    EXPECT_GT(layout_reflected(last), last);
    EXPECT_LT(layout_word(LAYOUT_DENSE, last / PAGE_BYTES),
              1ull << 49); // what a lane can name
    EXPECT_LT(layout_word(LAYOUT_SPARSE, LAYOUT_PLACES - 1), 1ull << 49);
    EXPECT_LT(layout_reflection_bytes(LAYOUT_DENSE, LAYOUT_MAX_BYTES), 1ull << 49);
    EXPECT_LT(layout_reflection_bytes(LAYOUT_SPARSE, LAYOUT_MAX_BYTES), 1ull << 49);
}

} // namespace
