// SPDX-License-Identifier: BSD-3-Clause
//
// What does the replay of a lane store? Its words and nothing else, durably, each time
// that it is repeated; and nothing at all if a word lies where no word can.
#include "lane_lab.h"
#include "support/faults.h"
#include "support/temp.h"

extern "C" {
#include "reflection/format/layout.h"
#include "reflection/media/report.h"
#include "reflection/recovery/replay.h"
}

#include <gtest/gtest.h>

#include <cerrno>

using support::Bytes;

namespace
{

// A reflection of 515 pages: two chunks, the second with 3 RefPages.
constexpr uint64_t PAGES = 515;

class Recover : public testing::Test
{
  protected:
    Recover()
        : size(layout_reflection_bytes(LAYOUT_DENSE, PAGES * PAGE_BYTES)),
          reflection(size + 8, 0x11), manifest(MANIFEST_BYTES / 8, 7)
    {
        target.persist = lab.p;
        target.own = &own;
        target.map = reinterpret_cast<char *>(reflection.data());
        target.bytes = size;
        target.manifest = reinterpret_cast<char *>(manifest.data());
        snprintf(own.path, sizeof(own.path), "FOLDER/NAME");
    }

    lane_view committed(const std::vector<std::pair<uint64_t, uint64_t>> &words)
    {
        lab.write(0, words);
        lane_view v;
        EXPECT_EQ(lab.look(0, &v), LANE_COMMITTED);
        return v;
    }

    int apply(const lane_view &v)
    {
        return replay_apply(&v, &target);
    }

    LaneLab lab{PERSIST_PMEM};
    uint64_t size;
    Bytes reflection; // 8-byte aligned, as a mapping is
    std::vector<uint64_t> manifest;
    uint64_t &size_word = manifest[MANIFEST_SIZE_WORD / 8];
    pairing own = {};
    replay target = {};
};

TEST_F(Recover, StoresTheWordsAndNothingElse)
{
    Bytes expected = reflection;
    std::vector<std::pair<uint64_t, uint64_t>> words;
    for (uint64_t page : {0, 1, 511, 512, 514}) {
        uint64_t value = 0x0123456789abcdefull * (page + 1);
        words.emplace_back(layout_word(LAYOUT_DENSE, page), value);
        memcpy(&expected[layout_word(LAYOUT_DENSE, page)], &value, 8);
    }
    lane_view v = committed(words);
    ASSERT_EQ(apply(v), 0);
    EXPECT_TRUE(reflection == expected);
}

TEST_F(Recover, MayBeRepeatedAfterACrashAtAnyWord)
{
    std::vector<std::pair<uint64_t, uint64_t>> words;
    for (uint64_t page = 0; page < 10; page++)
        words.emplace_back(layout_word(LAYOUT_DENSE, page * 50), page + 1);
    lane_view v = committed(words);
    Bytes before = reflection;
    ASSERT_EQ(apply(v), 0);
    Bytes once = reflection;
    ASSERT_EQ(apply(v), 0);
    EXPECT_TRUE(reflection == once);
    for (unsigned subset = 0; subset < 1024; subset += 7) { // the words that a crash may leave
        reflection = before;
        for (unsigned i = 0; i < 10; i++)
            if (subset >> i & 1)
                memcpy(&reflection[words[i].first], &words[i].second, 8);
        ASSERT_EQ(apply(v), 0);
        ASSERT_TRUE(reflection == once);
    }
}

TEST_F(Recover, RefusesOffsetsThatAreNoWordsAndStoresNothing)
{
    const uint64_t bad[] = {
        PAGE_BYTES,                       // a RefPage
        CHUNK_BYTES - 8,                  // the end of a RefPage
        CHUNK_BYTES + PAGE_BYTES,         // a RefPage of the second chunk
        layout_word(LAYOUT_DENSE, PAGES), // in the last meta page, but of a page beyond the end
        layout_word(LAYOUT_DENSE, 1023),  // likewise
        layout_word(LAYOUT_DENSE, 1024),  // a meta page beyond the end
        size,                             // right behind it
        (1ull << 48),                     // far behind it
        (1ull << 49) - 8,                 // the largest there is
    };
    Bytes before = reflection;
    for (uint64_t offset : bad) {
        LaneLab other(PERSIST_PMEM);
        other.write(
            0, {{layout_word(LAYOUT_DENSE, 0), 1}, {offset, 2}, {layout_word(LAYOUT_DENSE, 1), 3}});
        lane_view v;
        ASSERT_EQ(other.look(0, &v), LANE_COMMITTED);
        EXPECT_EQ(apply(v), -1) << offset;
        EXPECT_EQ(errno, EUCLEAN);
        EXPECT_NE(std::string(report_sentence()).find("NAME"), std::string::npos);
        EXPECT_NE(std::string(report_sentence()).find(std::to_string(offset)), std::string::npos);
        EXPECT_TRUE(reflection == before) << offset;
    }
}

TEST_F(Recover, StoresASizeInTheSizeWordAndNowhereElse)
{
    Bytes before = reflection;
    std::vector<uint64_t> others = manifest;
    for (uint64_t bytes : {0ull, 1ull, PAGES * PAGE_BYTES}) {
        LaneLab own_lane(PERSIST_PMEM);
        own_lane.write(0, {{LANE_SIZE, manifest_encode_size(bytes)}});
        lane_view v;
        ASSERT_EQ(own_lane.look(0, &v), LANE_COMMITTED);
        ASSERT_EQ(apply(v), 0);
        EXPECT_EQ(size_word, manifest_encode_size(bytes));
    }
    size_word = 7;
    EXPECT_TRUE(manifest == others);
    EXPECT_TRUE(reflection == before);
}

TEST_F(Recover, RefusesASizeBeyondTheReflectionAndStoresNothing)
{
    Bytes before = reflection;
    const lane_view v = committed({{layout_word(LAYOUT_DENSE, 0), 1},
                                   {LANE_SIZE, manifest_encode_size(PAGES * PAGE_BYTES + 1)}});
    EXPECT_EQ(apply(v), -1);
    EXPECT_EQ(errno, EUCLEAN);
    EXPECT_NE(std::string(report_sentence()).find("FOLDER/NAME"), std::string::npos);
    EXPECT_EQ(size_word, 7u);
    EXPECT_TRUE(reflection == before);
}

TEST_F(Recover, IsDurableWhenItReturns)
{
    lane_view v =
        committed({{layout_word(LAYOUT_DENSE, 0), 1}, {layout_word(LAYOUT_DENSE, 600 - 100), 2}});
    support::PersistFaults faults;
    std::vector<std::string> order;
    faults.before = [&](const support::PersistCall &c) {
        order.push_back(c.op);
        return support::GO_ON;
    };
    ASSERT_EQ(apply(v), 0);
    EXPECT_EQ(faults.counts.store_word, 2);
    EXPECT_EQ(faults.counts.flush_any, 2);
    EXPECT_EQ(order.back(), "fence");
}

TEST_F(Recover, FailsWithEioWhenTheMediumFails)
{
    lane_view v = committed({{layout_word(LAYOUT_DENSE, 0), 1}});
    support::PersistFaults faults;
    faults.before = [](const support::PersistCall &c) {
        return std::string(c.op) == "flush_any" ? EIO : support::GO_ON;
    };
    EXPECT_EQ(apply(v), -1);
    EXPECT_EQ(errno, EIO);
}

} // namespace
