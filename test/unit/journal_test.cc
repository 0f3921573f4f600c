// SPDX-License-Identifier: BSD-3-Clause
//
// Does a lane say `committed` exactly when it holds a whole commit? Written, torn at every word,
// retired, used again, damaged. (The header: journal_header_test.cc.)
#include "journal_lab.h"
#include "support/faults.h"

extern "C" {
#include "reflection/format/manifest.h"
}

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

namespace
{

using Words = std::vector<std::pair<uint64_t, uint64_t>>;

bool has_no_commit(const JournalLab &lab, unsigned lane)
{
    journal_finding found = look(lab, lane);
    return found == JOURNAL_IDLE || found == JOURNAL_CUT;
}

TEST(Journal, NewJournalIsIdleInEveryLane)
{
    JournalLab lab;
    EXPECT_EQ(lab.j.lanes, JOURNAL_LANES + 1);
    for (unsigned lane = 0; lane < lab.j.lanes; lane++)
        EXPECT_EQ(look(lab, lane), JOURNAL_IDLE);
}

class JournalLanes : public testing::TestWithParam<unsigned>
{
};

TEST_P(JournalLanes, HoldTheirCommitUntilItIsRetired)
{
    JournalLab lab(PERSIST_PMEM);
    std::vector<journal_file> files = {JournalLab::file(1, 10), JournalLab::file(2, 20)};
    for (uint64_t round = 1; round <= 3; round++) {
        Words words;
        for (uint64_t i = 0; i < 100; i++)
            words.emplace_back(i * 8, i * round);
        journal_writer w = lab.write(GetParam(), files, words, true, 1);
        for (unsigned other = 0; other < lab.j.lanes; other++)
            if (other != GetParam()) {
                EXPECT_EQ(look(lab, other), JOURNAL_IDLE);
            }
        journal_view v;
        ASSERT_EQ(journal_look(&lab.j, GetParam(), &v), JOURNAL_COMMITTED);
        EXPECT_EQ(v.sequence, round);
        ASSERT_EQ(v.nfiles, 2u);
        EXPECT_EQ(memcmp(v.files, files.data(), sizeof(journal_file) * 2), 0);
        ASSERT_EQ(v.nwords, 100u);
        for (uint64_t i = 0; i < 100; i++) {
            EXPECT_EQ(journal_word_offset(&v.words[i]), i * 8);
            EXPECT_EQ(journal_word_file(&v.words[i]), 1u);
            EXPECT_EQ(v.words[i].value, i * round);
        }
        journal_writer found = {};
        found.persist = &lab.p;
        found.lane = v.lane;
        found.line.sequence = v.sequence;
        ASSERT_EQ(journal_retire(round % 2 ? &w : &found), 0);
        EXPECT_EQ(look(lab, GetParam()), JOURNAL_IDLE);
    }
}

INSTANTIATE_TEST_SUITE_P(FirstLastSmallAndLarge, JournalLanes,
                         testing::Values(0, JOURNAL_LANES - 1, JOURNAL_LANES));

TEST(Journal, ListWithoutItsCommitLineIsIdle)
{
    JournalLab lab;
    lab.write(3, {JournalLab::file(1, 10)}, {{0, 1}, {8, 2}}, false);
    EXPECT_EQ(look(lab, 3), JOURNAL_IDLE); // the lane's first
    journal_writer w = lab.write(3, {JournalLab::file(1, 10)}, {{0, 1}, {8, 2}});
    ASSERT_EQ(journal_retire(&w), 0);
    lab.write(3, {JournalLab::file(1, 10)}, {{0, 5}, {16, 6}}, false);
    EXPECT_EQ(look(lab, 3), JOURNAL_CUT); // over an older commit
}

// Media tear at 8 bytes: any subset of the line's words may be new.
TEST(Journal, TornCommitLineIsNoCommit)
{
    for (bool first : {true, false}) {
        JournalLab lab;
        if (!first) {
            journal_writer w = lab.write(0, {JournalLab::file(1, 10)}, {{0, 1}, {8, 2}, {16, 3}});
            ASSERT_EQ(journal_retire(&w), 0);
        }
        uint64_t before[8], after[8];
        memcpy(before, lab.lane(0), 64);
        lab.write(0, {JournalLab::file(1, 10), JournalLab::file(2, 11)}, {{24, 9}, {32, 8}});
        memcpy(after, lab.lane(0), 64);
        for (unsigned subset = 0; subset < 256; subset++) {
            uint64_t torn[8];
            for (unsigned i = 0; i < 8; i++)
                torn[i] = subset >> i & 1 ? after[i] : before[i];
            memcpy(lab.lane(0), torn, 64);
            bool whole = memcmp(torn, after, 64) == 0;
            EXPECT_TRUE(whole ? look(lab, 0) == JOURNAL_COMMITTED : has_no_commit(lab, 0))
                << "subset " << subset << (first ? " of a first commit" : "");
        }
    }
}

TEST(Journal, ListWithAnyWordChangedIsNoCommit)
{
    JournalLab lab;
    Words words;
    for (uint64_t i = 0; i < 40; i++)
        words.emplace_back(i * 8, i + 1);
    lab.write(1, {JournalLab::file(1, 10), JournalLab::file(3, 12)}, words);
    ASSERT_EQ(look(lab, 1), JOURNAL_COMMITTED);
    for (size_t at = 128; at < 128 + 2 * 32 + 40 * 16; at += 8) {
        uint64_t *word = reinterpret_cast<uint64_t *>(lab.lane(1) + at);
        uint64_t kept = *word;
        *word = kept ^ 0x100;
        EXPECT_EQ(look(lab, 1), JOURNAL_CUT) << "at byte " << at;
        *word = kept;
    }
    EXPECT_EQ(look(lab, 1), JOURNAL_COMMITTED);
}

// ---- damage -------------------------------------------------------------------------------------

TEST(Journal, SequenceBeyondTheNextIsDamage)
{
    for (uint64_t sequence : {2ull, 17ull, ~0ull}) {
        JournalLab lab;
        lab.write(0, {JournalLab::file(1, 10)}, {{0, 1}});
        memcpy(lab.lane(0), &sequence, 8);
        EXPECT_EQ(look(lab, 0), JOURNAL_DAMAGED) << sequence;
    }
}

TEST(Journal, CountsBeyondTheLaneAreDamage)
{
    for (bool large : {false, true}) {
        JournalLab lab;
        unsigned lane = large ? JOURNAL_LANES : 2;
        lab.write(lane, {JournalLab::file(1, 10)}, {{0, 1}});
        struct journal_commit *line = reinterpret_cast<struct journal_commit *>(lab.lane(lane));
        uint64_t most = journal_capacity(&lab.j, lane, 1);
        line->words = static_cast<uint32_t>(most + 1);
        EXPECT_EQ(look(lab, lane), JOURNAL_DAMAGED);
        line->words = UINT32_MAX;
        EXPECT_EQ(look(lab, lane), JOURNAL_DAMAGED);
        line->words = 1;
        line->files = JOURNAL_MAX_FILES + 1;
        EXPECT_EQ(look(lab, lane), JOURNAL_DAMAGED);
        line->files = UINT32_MAX;
        EXPECT_EQ(look(lab, lane), JOURNAL_DAMAGED);
        line->files = 1;
        EXPECT_EQ(look(lab, lane), JOURNAL_COMMITTED);
    }
}

TEST(Journal, InvalidFieldsAreDamageDespiteTheChecksum)
{
    {
        JournalLab lab;
        lab.write(0, {JournalLab::file(1, 10)}, {{0, 1}}, true, 1); // file 1 of 1
        EXPECT_EQ(look(lab, 0), JOURNAL_DAMAGED);
    }
    {
        JournalLab lab;
        lab.write(0, {JournalLab::file(1, 10)}, {{8, 1}, {12, 1}}); // no word's offset
        EXPECT_EQ(look(lab, 0), JOURNAL_DAMAGED);
    }
    const uint64_t size = JOURNAL_WORD_SIZE | MANIFEST_SIZE_WORD;
    const std::pair<uint64_t, uint64_t> none[] = {
        {size, 4096},                           // without its check
        {size, manifest_encode_size(1) ^ 1},    // damaged
        {size, manifest_encode_size(~0ull)},    // more than a file can have
        {size + 8, manifest_encode_size(4096)}, // the growth word
        {JOURNAL_WORD_SIZE, manifest_encode_size(4096)},
    };
    for (const auto &word : none) {
        JournalLab lab;
        lab.write(0, {JournalLab::file(1, 10)}, {{8, 1}, word});
        EXPECT_EQ(look(lab, 0), JOURNAL_DAMAGED) << word.first;
    }
}

// ---- the words of a lane ------------------------------------------------------------------------

TEST(Journal, WordHoldsTheLastFileAndTheLastOffset)
{
    JournalLab lab;
    std::vector<journal_file> files(JOURNAL_MAX_FILES, JournalLab::file(1, 10));
    const uint64_t far = JOURNAL_WORD_OFFSET & ~7ull;
    lab.write(JOURNAL_LANES, files, {{far, 1}, {0, 2}}, true, JOURNAL_MAX_FILES - 1);
    journal_view v;
    ASSERT_EQ(journal_look(&lab.j, JOURNAL_LANES, &v), JOURNAL_COMMITTED);
    EXPECT_EQ(journal_word_file(&v.words[0]), JOURNAL_MAX_FILES - 1);
    EXPECT_EQ(journal_word_offset(&v.words[0]), far);
    EXPECT_FALSE(journal_word_is_size(&v.words[0]));
    EXPECT_EQ(journal_word_offset(&v.words[1]), 0u);
}

TEST(Journal, SizeIsAWordLikeTheOthers)
{
    JournalLab lab;
    journal_file files[] = {JournalLab::file(1, 10), JournalLab::file(2, 20)};
    journal_writer w;
    journal_begin(&w, &lab.j, &lab.p, 0, 2, 2);
    for (const journal_file &name : files)
        journal_name(&w, &name);
    journal_add(&w, 0, 8, 7);
    journal_add(&w, 1, JOURNAL_SIZE, manifest_encode_size(12345));
    ASSERT_EQ(journal_commit(&w), 0);
    journal_view v;
    ASSERT_EQ(journal_look(&lab.j, 0, &v), JOURNAL_COMMITTED);
    EXPECT_FALSE(journal_word_is_size(&v.words[0]));
    EXPECT_TRUE(journal_word_is_size(&v.words[1]));
    EXPECT_EQ(journal_word_file(&v.words[1]), 1u);
    EXPECT_EQ(journal_word_offset(&v.words[1]), uint64_t{MANIFEST_SIZE_WORD});
    EXPECT_EQ(v.words[1].value, manifest_encode_size(12345));
}

// ---- capacity -----------------------------------------------------------------------------------

TEST(Journal, FilesThatDoNotFitIntoTheirLaneAreDamage)
{
    JournalLab lab;
    lab.write(0, {JournalLab::file(1, 10)}, {{0, 1}});
    auto *line = reinterpret_cast<struct journal_commit *>(lab.lane(0));
    line->files = (JOURNAL_LANE_BYTES - 128) / 32 + 1;
    for (uint32_t words : {0u, 1u}) {
        line->words = words;
        EXPECT_EQ(look(lab, 0), JOURNAL_DAMAGED);
    }
    EXPECT_EQ(journal_capacity(&lab.j, 0, line->files), 0u);
    support::PersistFaults faults;
    size_t n = 0;
    faults.before = [&](const support::PersistCall &c) {
        n = std::max(n, c.n);
        return support::GO_ON;
    };
    ASSERT_EQ(journal_settle(&lab.j, &lab.p, 0), 0);
    EXPECT_LE(n, JOURNAL_LANE_BYTES);
}

TEST(Journal, LargeLaneHoldsMostWritesWithoutGrowth)
{
    JournalLab lab;
    EXPECT_GE(journal_capacity(&lab.j, JOURNAL_LANES, 1), 65000u);
    EXPECT_GE(journal_capacity(&lab.j, JOURNAL_LANES, JOURNAL_MAX_FILES), 32500u);
    EXPECT_LE(journal_bytes(JOURNAL_MAX_WORDS), JOURNAL_MAX_BYTES);
}

TEST(Journal, LanesOfASlotHoldWritesOf242Pages)
{
    alignas(64) static char bytes[4 * 4032 + 64];
    struct journal j = journal_of_slot(bytes, PERSIST_PROCESS);
    struct persist p;
    persist_init(&p, PERSIST_PROCESS);
    const journal_file file = JournalLab::file(1, 10);
    ASSERT_EQ(j.lanes, JOURNAL_SLOT_LANES);
    for (unsigned lane = 0; lane < j.lanes; lane++) {
        ASSERT_EQ(journal_capacity(&j, lane, 1), 242u);
        EXPECT_EQ(JOURNAL_SLOT_WORDS, 242u);
        journal_writer w;
        journal_begin(&w, &j, &p, lane, 1, 242);
        journal_name(&w, &file);
        for (uint64_t i = 0; i < 242; i++)
            journal_add(&w, 0, 8 * i, ~i);
        ASSERT_EQ(journal_commit(&w), 0);
    }
    for (unsigned lane = 0; lane < j.lanes; lane++) {
        journal_view v;
        ASSERT_EQ(journal_look(&j, lane, &v), JOURNAL_COMMITTED);
        EXPECT_EQ(v.words[241].value, ~241ull);
    }
    for (size_t i = 4 * 4032; i < sizeof(bytes); i++)
        EXPECT_EQ(bytes[i], 0) << "behind the last lane";
}

TEST(Journal, LaneFilledToItsCapacityKeepsEveryWordAndItsNeighbours)
{
    for (unsigned lane : {0u, JOURNAL_LANES - 1, JOURNAL_LANES}) {
        for (unsigned nfiles : {1u, 64u, static_cast<unsigned>(JOURNAL_MAX_FILES)}) {
            JournalLab lab;
            std::vector<journal_file> files;
            if (journal_capacity(&lab.j, lane, nfiles) == 0) {
                EXPECT_TRUE(lane < JOURNAL_LANES && nfiles > 2000) << lane;
                continue;
            }
            for (unsigned i = 0; i < nfiles; i++)
                files.push_back(JournalLab::file(static_cast<uint8_t>(i + 1), i));
            Words words;
            for (uint64_t i = 0; i < journal_capacity(&lab.j, lane, nfiles); i++)
                words.emplace_back(i * 8, ~i);
            lab.write(lane, files, words);
            journal_view v;
            ASSERT_EQ(journal_look(&lab.j, lane, &v), JOURNAL_COMMITTED);
            ASSERT_EQ(v.nwords, words.size());
            for (uint64_t i = 0; i < v.nwords; i++)
                ASSERT_EQ(v.words[i].value, ~i);
            for (unsigned other = 0; other < lab.j.lanes; other++)
                if (other != lane) {
                    EXPECT_EQ(look(lab, other), JOURNAL_IDLE);
                }
            EXPECT_LE(reinterpret_cast<const char *>(v.words + v.nwords),
                      lane == JOURNAL_LANES ? lab.bytes + journal_bytes(0) : lab.lane(lane + 1));
        }
    }
}

// ---- durability ---------------------------------------------------------------------------------

TEST(Journal, SettlingFlushesAllThatTheLaneHolds)
{
    JournalLab lab(PERSIST_PMEM);
    lab.write(4, {JournalLab::file(1, 10)}, {{0, 1}, {8, 2}});
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
    ASSERT_EQ(journal_settle(&lab.j, &lab.p, 4), 0);
    EXPECT_EQ(from, lab.lane(4));
    EXPECT_GE(n, 128u + 32 + 2 * 16);
    EXPECT_EQ(faults.counts.flush_any, 1);
    // An invalid count flushes no more bytes than the lane has.
    reinterpret_cast<struct journal_commit *>(lab.lane(4))->words = UINT32_MAX;
    ASSERT_EQ(journal_settle(&lab.j, &lab.p, 4), 0);
    EXPECT_LE(n, JOURNAL_LANE_BYTES);
}

TEST(Journal, EachStepIsDurableBeforeTheNext)
{
    JournalLab lab(PERSIST_PMEM);
    support::PersistFaults faults;
    journal_writer w = lab.write(0, {JournalLab::file(1, 10)}, {{0, 1}, {8, 2}}, false);
    faults.take();
    ASSERT_EQ(journal_commit(&w), 0); // one line, which media keep whole or tear (above); a fence
    support::PersistCounts commit = faults.take();
    EXPECT_EQ(commit.scatter, 1);
    EXPECT_EQ(commit.fence, 1);
    ASSERT_EQ(journal_retire(&w), 0);
    support::PersistCounts retire = faults.take();
    EXPECT_EQ(retire.store_word, 1);
    EXPECT_EQ(retire.flush_any, 1);
    EXPECT_EQ(retire.fence, 1);
}

} // namespace
