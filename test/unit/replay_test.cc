// SPDX-License-Identifier: BSD-3-Clause
//
// What does the replay of a lane store? The words of its file and nothing else, durably, each time
// that it is repeated; and nothing at all if a word lies where no word can.
#include "journal_lab.h"
#include "support/faults.h"
#include "support/temp.h"

extern "C" {
#include "lib/recovery/replay.h"
#include "reflection/format/layout.h"
#include "reflection/format/manifest.h"
#include "reflection/media/report.h"
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
        target.map = reinterpret_cast<char *>(reflection.data());
        target.bytes = size;
        target.manifest = reinterpret_cast<char *>(manifest.data());
        snprintf(target.path, sizeof(target.path), "FOLDER/NAME");
    }

    journal_view committed(const std::vector<std::pair<uint64_t, uint64_t>> &words,
                           unsigned file = 0)
    {
        lab.write(0, {JournalLab::file(1, 10), JournalLab::file(2, 11)}, words, true, file);
        journal_view v;
        EXPECT_EQ(journal_look(&lab.j, 0, &v), JOURNAL_COMMITTED);
        return v;
    }

    // Replays for this file; the other file is gone.
    int apply(const journal_view &v, unsigned file = 0)
    {
        participants n = {};
        target.file = file ? JournalLab::file(2, 11) : JournalLab::file(1, 10);
        n.files = &target;
        n.nfiles = 1;
        return replay_apply(&v, &n);
    }

    JournalLab lab{PERSIST_PMEM};
    uint64_t size;
    Bytes reflection; // 8-byte aligned, as a mapping is
    std::vector<uint64_t> manifest;
    uint64_t &size_word = manifest[MANIFEST_SIZE_WORD / 8];
    participant target = {};
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
    journal_view v = committed(words);
    ASSERT_EQ(apply(v), 0);
    EXPECT_TRUE(reflection == expected);
}

TEST_F(Recover, StoresOnlyTheWordsOfTheGivenFile)
{
    Bytes expected = reflection;
    journal_view v =
        committed({{layout_word(LAYOUT_DENSE, 3), 5}, {layout_word(LAYOUT_DENSE, 4), 6}}, 1);
    ASSERT_EQ(apply(v), 0);
    EXPECT_TRUE(reflection == expected);
    ASSERT_EQ(apply(v, 1), 0);
    EXPECT_FALSE(reflection == expected);
}

TEST_F(Recover, MayBeRepeatedAfterACrashAtAnyWord)
{
    std::vector<std::pair<uint64_t, uint64_t>> words;
    for (uint64_t page = 0; page < 10; page++)
        words.emplace_back(layout_word(LAYOUT_DENSE, page * 50), page + 1);
    journal_view v = committed(words);
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
        JournalLab other(PERSIST_PMEM);
        other.write(
            0, {JournalLab::file(1, 10)},
            {{layout_word(LAYOUT_DENSE, 0), 1}, {offset, 2}, {layout_word(LAYOUT_DENSE, 1), 3}});
        journal_view v;
        ASSERT_EQ(journal_look(&other.j, 0, &v), JOURNAL_COMMITTED);
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
        JournalLab own(PERSIST_PMEM);
        own.write(0, {JournalLab::file(1, 10)},
                  {{JOURNAL_WORD_SIZE | MANIFEST_SIZE_WORD, manifest_encode_size(bytes)}});
        journal_view v;
        ASSERT_EQ(journal_look(&own.j, 0, &v), JOURNAL_COMMITTED);
        ASSERT_EQ(apply(v), 0);
        EXPECT_EQ(size_word, manifest_encode_size(bytes));
        ASSERT_EQ(apply(v, 1), 0); // the file is gone
    }
    size_word = 7;
    EXPECT_TRUE(manifest == others);
    EXPECT_TRUE(reflection == before);
}

TEST_F(Recover, RefusesASizeBeyondTheReflectionAndStoresNothing)
{
    Bytes before = reflection;
    lab.write(
        0, {JournalLab::file(1, 10)},
        {{layout_word(LAYOUT_DENSE, 0), 1},
         {JOURNAL_WORD_SIZE | MANIFEST_SIZE_WORD, manifest_encode_size(PAGES * PAGE_BYTES + 1)}});
    journal_view v;
    ASSERT_EQ(journal_look(&lab.j, 0, &v), JOURNAL_COMMITTED);
    EXPECT_EQ(apply(v), -1);
    EXPECT_EQ(errno, EUCLEAN);
    EXPECT_NE(std::string(report_sentence()).find("FOLDER/NAME"), std::string::npos);
    EXPECT_EQ(size_word, 7u);
    EXPECT_TRUE(reflection == before);
}

// The first commit is cut with any part of its line stored, and without the first words of its list; the second one, which
// begins with the same words, with any part of its own line. It is a commit only with all of its line.
TEST_F(Recover, WhatACutCommitLeftIsNotCompletedByTheNextOne)
{
    const std::vector<journal_file> files = {JournalLab::file(1, 10)};
    const auto mix = [](const uint64_t *a, const uint64_t *b, unsigned subset, char *to) {
        for (unsigned i = 0; i < 8; i++)
            memcpy(to + i * 8, (subset >> i & 1 ? b : a) + i, 8);
    };
    for (bool used : {false, true})
        for (unsigned first = 0; first < 256; first++) {
            JournalLab l;
            uint64_t before[8], line[8];
            if (used) {
                journal_writer w = l.write(0, files, {{0, 8}, {8, 8}});
                ASSERT_EQ(journal_retire(&w), 0);
            }
            memcpy(before, l.lane(0), 64);
            l.write(0, files, {{0, 1}, {8, 2}, {16, 3}});
            memcpy(line, l.lane(0), 64);
            mix(before, line, first, l.lane(0));
            memset(l.lane(0) + 128 + 32, 0, 16); // the first word
            for (replay_step step : {REPLAY_COLLECT, REPLAY_APPLY, REPLAY_RETIRE})
                ASSERT_EQ(replay_lanes(&l.j, step, nullptr, "FOLDER/NAME"), 0);
            memcpy(before, l.lane(0), 64);
            l.write(0, files, {{0, 1}, {8, 2}}, false);
            EXPECT_NE(look(l, 0), JOURNAL_COMMITTED) << first;
            l.write(0, files, {{0, 1}, {8, 2}});
            memcpy(line, l.lane(0), 64);
            for (unsigned second = 0; second < 256; second++) {
                char *now = l.lane(0);
                mix(before, line, second, now);
                EXPECT_EQ(look(l, 0) == JOURNAL_COMMITTED, memcmp(now, line, 64) == 0)
                    << first << " " << second;
            }
        }
}

TEST_F(Recover, IsDurableWhenItReturns)
{
    journal_view v =
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
    journal_view v = committed({{layout_word(LAYOUT_DENSE, 0), 1}});
    support::PersistFaults faults;
    faults.before = [](const support::PersistCall &c) {
        return std::string(c.op) == "flush_any" ? EIO : support::GO_ON;
    };
    EXPECT_EQ(apply(v), -1);
    EXPECT_EQ(errno, EIO);
}

} // namespace
