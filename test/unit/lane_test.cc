// SPDX-License-Identifier: BSD-3-Clause
//
// Does a lane say `committed` exactly when it holds a whole commit? Written, torn at every word,
// retired, used again, damaged.
#include "lane_lab.h"
#include "support/faults.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

namespace
{

using Words = std::vector<std::pair<uint64_t, uint64_t>>;

bool has_no_commit(const LaneLab &lab, unsigned n)
{
    const lane_finding found = lab.look(n);
    return found == LANE_IDLE || found == LANE_CUT;
}

class EachLane : public testing::TestWithParam<unsigned>
{
};

TEST_P(EachLane, HoldsItsCommitUntilItIsRetired)
{
    LaneLab lab(PERSIST_PMEM);
    for (uint64_t round = 1; round <= 3; round++) {
        Words words = {{LANE_SIZE, manifest_encode_size(12345)}};
        for (uint64_t i = 1; i < LaneLab::capacity(GetParam()); i++)
            words.emplace_back(i * 8, i * round);
        lane_writer w = lab.write(GetParam(), words);
        for (unsigned other = 0; other < LaneLab::LANES; other++)
            if (other != GetParam()) {
                EXPECT_EQ(lab.look(other), LANE_IDLE);
            }
        lane_view v;
        ASSERT_EQ(lab.look(GetParam(), &v), LANE_COMMITTED);
        EXPECT_EQ(v.sequence, round);
        ASSERT_EQ(v.nwords, words.size());
        for (uint64_t i = 0; i < words.size(); i++) {
            ASSERT_EQ(v.words[i].word, words[i].first);
            ASSERT_EQ(v.words[i].value, words[i].second);
        }
        lane_writer found = {};
        found.persist = &lab.p;
        found.lane = lab.lane(GetParam()).at;
        found.line.sequence = v.sequence;
        ASSERT_EQ(lane_retire(round % 2 ? &w : &found), 0);
        EXPECT_EQ(lab.look(GetParam()), LANE_IDLE);
    }
}

INSTANTIATE_TEST_SUITE_P(FirstLastAndLong, EachLane,
                         testing::Values(0, LANE_SMALL - 1, LaneLab::LONG));

TEST(Lane, ListWithoutItsCommitLineIsIdle)
{
    LaneLab lab;
    lab.write(3, {{0, 1}, {8, 2}}, false);
    EXPECT_EQ(lab.look(3), LANE_IDLE); // the lane's first
    lane_writer w = lab.write(3, {{0, 1}, {8, 2}});
    ASSERT_EQ(lane_retire(&w), 0);
    lab.write(3, {{0, 5}, {16, 6}}, false);
    EXPECT_EQ(lab.look(3), LANE_CUT); // over an older commit
}

// Media tear at 8 bytes: any subset of the line's words may be new.
TEST(Lane, TornCommitLineIsNoCommit)
{
    for (bool first : {true, false}) {
        LaneLab lab;
        if (!first) {
            lane_writer w = lab.write(0, {{0, 1}, {8, 2}, {16, 3}});
            ASSERT_EQ(lane_retire(&w), 0);
        }
        char *line = lab.lane(0).at;
        uint64_t before[8], after[8];
        memcpy(before, line, 64);
        lab.write(0, {{24, 9}, {32, 8}});
        memcpy(after, line, 64);
        for (unsigned subset = 0; subset < 256; subset++) {
            uint64_t torn[8];
            for (unsigned i = 0; i < 8; i++)
                torn[i] = subset >> i & 1 ? after[i] : before[i];
            memcpy(line, torn, 64);
            bool whole = memcmp(torn, after, 64) == 0;
            EXPECT_TRUE(whole ? lab.look(0) == LANE_COMMITTED : has_no_commit(lab, 0))
                << "subset " << subset << (first ? " of a first commit" : "");
        }
    }
}

TEST(Lane, ListWithAnyWordChangedIsNoCommit)
{
    LaneLab lab;
    Words words;
    for (uint64_t i = 0; i < 40; i++)
        words.emplace_back(i * 8, i + 1);
    lab.write(1, words);
    ASSERT_EQ(lab.look(1), LANE_COMMITTED);
    for (size_t at = 128; at < 128 + 40 * 16; at += 8) {
        uint64_t *word = reinterpret_cast<uint64_t *>(lab.lane(1).at + at);
        uint64_t kept = *word;
        *word = kept ^ 0x100;
        EXPECT_EQ(lab.look(1), LANE_CUT) << "at byte " << at;
        *word = kept;
    }
    EXPECT_EQ(lab.look(1), LANE_COMMITTED);
}

// ---- damage -------------------------------------------------------------------------------------

TEST(Lane, SequenceBeyondTheNextIsDamage)
{
    for (uint64_t sequence : {2ull, 17ull, ~0ull}) {
        LaneLab lab;
        lab.write(0, {{0, 1}});
        memcpy(lab.lane(0).at, &sequence, 8);
        EXPECT_EQ(lab.look(0), LANE_DAMAGED) << sequence;
    }
}

TEST(Lane, CountBeyondTheLaneIsDamageAndFlushesNoMoreThanTheLane)
{
    for (unsigned n : {2u, LaneLab::LONG}) {
        LaneLab lab(PERSIST_PMEM);
        lab.write(n, {{0, 1}});
        const struct lane lane = lab.lane(n);
        auto *line = reinterpret_cast<struct lane_commit *>(lane.at);
        support::PersistFaults faults;
        size_t flushed = 0;
        faults.before = [&](const support::PersistCall &c) {
            flushed = std::max(flushed, c.n);
            return support::GO_ON;
        };
        for (uint64_t words :
             {LaneLab::capacity(n) + 1, uint64_t{UINT32_MAX}, UINT64_MAX / 16, UINT64_MAX}) {
            line->words = words;
            EXPECT_EQ(lab.look(n), LANE_DAMAGED);
            ASSERT_EQ(lane_settle(&lane, &lab.p), 0);
        }
        EXPECT_LE(flushed, lane.bytes);
        line->words = 1;
        EXPECT_EQ(lab.look(n), LANE_COMMITTED);
    }
}

TEST(Lane, InvalidWordsAreDamageDespiteTheChecksum)
{
    const std::pair<uint64_t, uint64_t> none[] = {
        {12, 1},                                    // no word's offset
        {LANE_SIZE, 4096},                          // a size without its check
        {LANE_SIZE, manifest_encode_size(1) ^ 1},   // damaged
        {LANE_SIZE, manifest_encode_size(~0ull)},   // more than a file can have
        {LANE_SIZE + 8, manifest_encode_size(4096)} // no place at all
    };
    for (const auto &word : none) {
        LaneLab lab;
        lab.write(0, {{8, 1}, word});
        EXPECT_EQ(lab.look(0), LANE_DAMAGED) << word.first;
    }
    LaneLab lab;
    lab.write(0, {{LANE_SIZE - 8, 1}}); // the farthest
    EXPECT_EQ(lab.look(0), LANE_COMMITTED);
}

TEST(Lane, CapacitiesAreThoseOfTheDocuments)
{
    EXPECT_EQ(LANE_SMALL * LANE_SMALL_BYTES, uint64_t{MANIFEST_AREA_BYTES});
    EXPECT_EQ(LANE_SMALL_WORDS, 248u);
    EXPECT_EQ(lane_bytes(249), 1u << 20);
    EXPECT_EQ(lane_bytes(1 << 18), (4u << 20) + (1 << 20)); // a GiB of pages
    EXPECT_LE(lane_bytes(LANE_MAX_WORDS), LANE_MAX_BYTES);
}

// The first commit is cut with any part of its line stored, and without the first words of its list; a recovery retires it. The second
// one, which begins with the same words, is cut with any part of its own line. It is a commit only with all of its line.
TEST(Lane, WhatACutCommitLeftIsNotCompletedByTheNextOne)
{
    const auto mix = [](const uint64_t *a, const uint64_t *b, unsigned subset, char *to) {
        for (unsigned i = 0; i < 8; i++)
            memcpy(to + i * 8, (subset >> i & 1 ? b : a) + i, 8);
    };
    for (bool used : {false, true})
        for (unsigned first = 0; first < 256; first++) {
            LaneLab lab;
            char *now = lab.lane(0).at;
            uint64_t before[8], line[8];
            if (used) {
                lane_writer w = lab.write(0, {{0, 8}, {8, 8}});
                ASSERT_EQ(lane_retire(&w), 0);
            }
            memcpy(before, now, 64);
            lab.write(0, {{0, 1}, {8, 2}, {16, 3}});
            memcpy(line, now, 64);
            mix(before, line, first, now);
            memset(now + 128, 0, 16); // the first word
            lane_view v;
            lane_writer w = {};
            if (lab.look(0, &v) != LANE_IDLE) {
                w.persist = &lab.p;
                w.lane = now;
                w.line.sequence = v.sequence;
                ASSERT_EQ(lane_retire(&w), 0);
            }
            memcpy(before, now, 64);
            lab.write(0, {{0, 1}, {8, 2}}, false);
            EXPECT_NE(lab.look(0), LANE_COMMITTED) << first;
            lab.write(0, {{0, 1}, {8, 2}});
            memcpy(line, now, 64);
            for (unsigned second = 0; second < 256; second++) {
                mix(before, line, second, now);
                EXPECT_EQ(lab.look(0) == LANE_COMMITTED, memcmp(now, line, 64) == 0)
                    << first << " " << second;
            }
        }
}

// ---- durability ---------------------------------------------------------------------------------

TEST(Lane, SettlingFlushesAllThatTheLaneHolds)
{
    LaneLab lab(PERSIST_PMEM);
    lab.write(2, {{0, 1}, {8, 2}});
    support::PersistFaults faults;
    const void *from = nullptr;
    size_t n = 0;
    faults.before = [&](const support::PersistCall &c) {
        if (std::string(c.op) == "flush_any") {
            from = c.address;
            n = c.n;
        }
        return support::GO_ON;
    };
    const struct lane lane = lab.lane(2);
    ASSERT_EQ(lane_settle(&lane, &lab.p), 0);
    EXPECT_EQ(from, lane.at);
    EXPECT_GE(n, 128u + 2 * 16);
    EXPECT_EQ(faults.counts.flush_any, 1);
}

TEST(Lane, EachStepIsDurableBeforeTheNext)
{
    LaneLab lab(PERSIST_PMEM);
    support::PersistFaults faults;
    lane_writer w = lab.write(0, {{0, 1}, {8, 2}}, false);
    faults.take();
    ASSERT_EQ(lane_commit(&w), 0); // one line, which media keep whole or tear (above); a fence
    support::PersistCounts commit = faults.take();
    EXPECT_EQ(commit.scatter, 1);
    EXPECT_EQ(commit.fence, 1);
    ASSERT_EQ(lane_retire(&w), 0);
    support::PersistCounts retire = faults.take();
    EXPECT_EQ(retire.store_word, 1);
    EXPECT_EQ(retire.flush_any, 1);
    EXPECT_EQ(retire.fence, 1);
}

} // namespace
