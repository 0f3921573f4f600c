// SPDX-License-Identifier: BSD-3-Clause
//
// What does each operation cost? Calls through `persist`, counted and pinned: every number below is
// the design's, with the reason beside it, and a change of a number is a change of the protocol.
// (The cost of page cache on a disk: log_test.cc.)
//
// W1 fence between slices and word, W2 fence behind the word, W3 fence between an eager write and
// its way home, W4 fence behind a write that failed; J1, J2, J4 (= W2), J3 the four fences of a
// commit by a lane: before the commit line, behind it, behind the words, behind `retired`.
#include "persist_counts_lab.h"

#include "support/copied.h"

#include <thread>

using namespace persist_counts;

namespace
{

// ---- one page -----------------------------------------------------------------------------------

TEST_P(PersistCountsOfCached, AlignedWriteWithinAPage)
{
    map(GetParam());
    ASSERT_TRUE(m->write(4096, pattern(1024, 2)));
    EXPECT_EQ(faults.slices, 16u);
    EXPECT_EQ(faults.take(), counts([](PersistCounts &c) {
                  c.scatter = 1;    // 16 slices by one kernel call
                  c.store_word = 1; // the commit
                  c.flush_any = 1;
                  c.fence = 2; // W1, W2
              }));
}

TEST_P(PersistCountsOfCached, WriteOfOneByte)
{
    map(GetParam());
    ASSERT_TRUE(m->write(4096 + 77, pattern(1, 2)));
    EXPECT_EQ(faults.take(), counts([](PersistCounts &c) {
                  c.scatter = 1; // its slice, completed
                  c.store_word = 1;
                  c.flush_any = 1;
                  c.fence = 2;
              }));
}

TEST_P(PersistCountsOfCached, UnalignedWriteWithinAPage)
{
    map(GetParam());
    ASSERT_TRUE(m->write(4096 + 10, pattern(300, 2)));
    EXPECT_EQ(faults.slices, 5u);
    EXPECT_EQ(faults.take(), counts([](PersistCounts &c) {
                  c.scatter = 3; // head and tail, completed; the three between
                  c.store_word = 1;
                  c.flush_any = 1;
                  c.fence = 2;
              }));
}

TEST_P(PersistCountsOfCached, MemsetOfAPage)
{
    map(GetParam());
    ASSERT_NE(ato_memset(m->base + 8192, 7, 4096), nullptr);
    EXPECT_EQ(faults.slices, 64u);
    EXPECT_EQ(faults.take(), counts([](PersistCounts &c) {
                  c.scatter = 1;
                  c.store_word = 1;
                  c.flush_any = 1;
                  c.fence = 2;
              }));
}

TEST_P(PersistCountsOfCached, EagerWriteOfAPage)
{
    map(GetParam());
    ASSERT_TRUE(m->write(4096, pattern(1024, 2), ATO_EAGER));
    EXPECT_EQ(faults.slices, 32u); // to R, and home
    EXPECT_EQ(faults.take(), counts([](PersistCounts &c) {
                  c.scatter = 2;
                  c.store_word = 2; // there and back
                  c.flush_any = 2;
                  c.fence = 5; // W1, W2, W3 before coming home, W1, W2
              }));
    EXPECT_EQ(m->stat().slices_in_reflection, 0u);
}

// The masks no longer name these slices, but their stores are non-temporal and could still arrive.
TEST_F(PersistCountsTest, SlicesThatATransactionDropsAreFencedBeforeItsPagesAreReleased)
{
    map(ATO_DOMAIN_PMEM);
    Bytes old = m->read(4096, 128), some = pattern(128, 9);
    for (bool shrinks : {false, true}) {
        SCOPED_TRACE(shrinks);
        ato_tx *t = ato_tx_begin(0);
        char byte;
        ASSERT_NE(ato_tx_memcpy(t, m->base + 4096, some.data(), 128, ATO_SKIP_EQUAL), nullptr);
        ASSERT_NE(ato_tx_memcpy(t, &byte, m->base + 4096, 1, 0),
                  nullptr); // which stores the slices
        if (shrinks) {
            ASSERT_EQ(ato_tx_ftruncate(t, m->base, 4096), 0);
        } else {
            ASSERT_NE(ato_tx_memcpy(t, m->base + 4096, old.data(), 128, ATO_SKIP_EQUAL), nullptr);
        }
        faults.take();
        ASSERT_EQ(ato_tx_abort(t), 0);
        EXPECT_EQ(faults.take().fence, 1);
    }
}

// Its stores are non-temporal: without the fence they could arrive when the page belongs to another
// writer.
TEST_F(PersistCountsTest, FailedWriteIsFencedBeforeItsPagesAreReleased)
{
    map(ATO_DOMAIN_PMEM);
    const Bytes old = read_at(path, 4096, 8192);
    faults.before = [&](const PersistCall &c) {
        if (std::string(c.op) == "scatter") {
            EXPECT_EQ(truncate(reflection_of(path).c_str(), 0), 0); // by another program
        }
        return GO_ON;
    };
    ASSERT_FALSE(m->write(4096, pattern(8192, 2)));
    EXPECT_EQ(m->error, EIO) << m->sentence;
    EXPECT_EQ(faults.take(), counts([](PersistCounts &c) {
                  c.scatter = 2;
                  c.copy = 2;  // its lane, which is not committed
                  c.fence = 1; // W4
              }));
    EXPECT_EQ(read_at(path, 4096, 8192), old);
}

// After 16 MiB of other writes a page counts as no longer in the CPU's caches.
TEST_F(PersistCountsTest, WriteToAColdPageBypassesTheCachesInDomainProcess)
{
    for (int domain : {ATO_DOMAIN_PROCESS, ATO_DOMAIN_PMEM}) {
        map(domain);
        Bytes page = pattern(4096, 2);
        ASSERT_TRUE(m->write(0, page));
        EXPECT_EQ(faults.cold_slices, 0u) << "at first";
        for (int i = 0; i < 32 << 8; i++) // 32 MiB
            ASSERT_TRUE(m->write(10 * 4096, page));
        EXPECT_EQ(faults.cold_slices, 0u) << "a page that is written again and again";
        bool past = domain == ATO_DOMAIN_PROCESS;
        ASSERT_TRUE(m->write(4096, pattern(1000, 3)));
        EXPECT_EQ(faults.cold_slices, 0u) << "too few bytes";
        ASSERT_TRUE(m->write(0, page));
        EXPECT_EQ(faults.cold_slices, past ? 64u : 0u);
        ASSERT_TRUE(m->write(0, page));
        EXPECT_EQ(faults.cold_slices, past ? 64u : 0u) << "just written";
        ASSERT_TRUE(m->write(4 * 4096, pattern(8192, 3)));
        EXPECT_EQ(faults.cold_slices, past ? 64u : 0u) << "pages that were never written";
        std::thread([&] {
            for (int i = 0; i < 32 << 8; i++)
                ASSERT_TRUE(m->write(10 * 4096, page));
            ASSERT_TRUE(m->write(0, page));
            EXPECT_EQ(faults.cold_slices, past ? 128u : 0u) << "writes of other threads count";
        }).join();
        ASSERT_TRUE(m->write(0, page));
        EXPECT_EQ(faults.cold_slices, past ? 128u : 0u) << "just written by another thread";
        ASSERT_TRUE(m->write(4 * 4096, pattern(8192, 4)));
        EXPECT_EQ(faults.cold_slices, past ? 256u : 0u) << "two pages";
        EXPECT_EQ(m->read(4 * 4096, 8192), pattern(8192, 4));
        EXPECT_EQ(m->unmap(ATO_UNMAP_SPATIAL), 0) << m->sentence;
        EXPECT_EQ(read_at(path, 4 * 4096, 8192), pattern(8192, 4));
        write_file(path, pattern(SIZE, 1));
    }
}

TEST_P(PersistCountsOfCached, SkippingEqualBytesCostsNothing)
{
    map(GetParam());
    ASSERT_TRUE(m->write(4096, read_at(path, 4096, 1024), ATO_SKIP_EQUAL));
    ASSERT_TRUE(m->write(4096 + 10, read_at(path, 4096 + 10, 10000), ATO_SKIP_EQUAL));
    EXPECT_EQ(faults.take(), PersistCounts());
}

TEST_P(PersistCountsOfCached, SkippingEqualBytesWritesOnlyDifferingSlices)
{
    map(GetParam());
    Bytes page = read_at(path, 4096, 4096);
    page[700] ^= 1;
    ASSERT_TRUE(m->write(4096, page, ATO_SKIP_EQUAL));
    EXPECT_EQ(faults.slices, 1u);
    EXPECT_EQ(faults.take(), counts([](PersistCounts &c) {
                  c.scatter = 1;
                  c.store_word = 1;
                  c.flush_any = 1;
                  c.fence = 2;
              }));
}

// ---- several pages ------------------------------------------------------------------------------

TEST_P(PersistCountsOfCached, WriteOfSeveralPagesByALane)
{
    map(GetParam());
    for (long k : {2, 7, 32}) {
        ASSERT_TRUE(m->write(4096, pattern(static_cast<size_t>(k) * 4096, 2)));
        PersistCounts expected;
        expected.scatter = k + 1;           // the commit line, too
        expected.copy = k;                  // the list
        expected.store_word = k + 1;        // the words; retired
        expected.flush_any = k / 8 + 1 + 1; // lines with words of pages 1 to k
        expected.fence = 4;                 // J1, J2, J4, J3
        EXPECT_EQ(faults.take(), expected) << k;
    }
}

TEST_P(PersistCountsOfCached, EagerWriteOfSeveralPages)
{
    map(GetParam());
    ASSERT_TRUE(m->write(4096, pattern(4 * 4096, 2), ATO_EAGER));
    PersistCounts c = faults.take();
    EXPECT_EQ(c.fence, 7);           // four of the commit, W3, two for bringing all pages home
    EXPECT_EQ(c.scatter, 4 + 1 + 4); // to R, the commit line, home
    EXPECT_EQ(c.flush_any, 3);       // the line with the words, retired, that line again
}

// ---- deploying and reading ----------------------------------------------------------------------

TEST_P(PersistCountsOfCached, DeployOfAPageAndOfMany)
{
    map(GetParam());
    ASSERT_TRUE(m->write(0, pattern(SIZE, 2)));
    faults.take();
    ASSERT_EQ(ato_deploy(m->base + 5000, 1), 0);
    EXPECT_EQ(faults.take(), counts([](PersistCounts &c) {
                  c.scatter = 1;
                  c.store_word = 1;
                  c.flush_any = 1;
                  c.fence = 2;
              }));
    ASSERT_EQ(ato_deploy(m->base, SIZE), 0);
    EXPECT_EQ(faults.take(), counts([](PersistCounts &c) {
                  c.scatter = 63; // one is home
                  c.store_word = 63;
                  c.flush_any = 9; // 8 lines, one of them in both batches
                  c.fence = 4;     // two batches, of 32 and 31 pages
              }));
    ASSERT_EQ(ato_deploy(m->base, SIZE), 0);
    EXPECT_EQ(faults.take(), PersistCounts()); // nothing to do
}

TEST_P(PersistCountsOfCached, GatheringReadCostsNothing)
{
    map(GetParam());
    Bytes written = pattern(9000, 2);
    ASSERT_TRUE(m->write(100, written));
    faults.take();
    EXPECT_EQ(m->read(100, 9000), written);
    EXPECT_EQ(m->read(100, 50), Bytes(written.begin(), written.begin() + 50));
    EXPECT_EQ(faults.take(), PersistCounts());
}

TEST_P(PersistCountsOfCached, LazyReadDeploysOnceAndThenCostsNothing)
{
    map(GetParam(), ATO_READ_LAZY);
    ASSERT_TRUE(m->write(0, pattern(1024, 2)));
    faults.take();
    EXPECT_EQ(m->read(0, 10).size(), 10u);
    EXPECT_EQ(faults.take(), counts([](PersistCounts &c) {
                  c.scatter = 1;
                  c.store_word = 1;
                  c.flush_any = 1;
                  c.fence = 2;
              }));
    EXPECT_EQ(m->read(0, 4096).size(), 4096u);
    EXPECT_EQ(faults.take(), PersistCounts());
}

TEST_P(PersistCountsOfCached, LazyReadBesideTheSlicesInRDeploysNothing)
{
    map(GetParam(), ATO_READ_LAZY);
    ASSERT_TRUE(m->write(0, pattern(1024, 2)));
    faults.take();
    EXPECT_EQ(m->read(1024, 3000).size(), 3000u);
    EXPECT_EQ(faults.take(), PersistCounts());
}

INSTANTIATE_TEST_SUITE_P(Domains, PersistCountsOfCached,
                         testing::Values(ATO_DOMAIN_PMEM, ATO_DOMAIN_EADR, ATO_DOMAIN_PROCESS),
                         [](const testing::TestParamInfo<int> &info) {
                             return info.param == ATO_DOMAIN_PMEM   ? "pmem"
                                    : info.param == ATO_DOMAIN_EADR ? "eadr"
                                                                    : "process";
                         });

// ---- hardware transactions ----------------------------------------------------------------------

TEST_F(PersistCountsTest, WriteOfSeveralPagesByRtm)
{
    if (!persist_rtm_works())
        GTEST_SKIP() << "no hardware transactions on this CPU";
    for (int domain : {ATO_DOMAIN_EADR, ATO_DOMAIN_PROCESS}) {
        map(domain, ATO_READ_GATHER, 0);
        faults.rtm = 1; // a real transaction may abort
        ASSERT_TRUE(m->write(4096, pattern(5 * 4096, 2))) << m->sentence;
        EXPECT_EQ(faults.take(), counts([](PersistCounts &c) {
                      c.scatter = 5;
                      c.flip_rtm = 1; // all five words; what is visible is durable: no flush
                      c.fence = 1;    // W1
                  }));
        EXPECT_EQ(m->read(4096, 5 * 4096), pattern(5 * 4096, 2));
        EXPECT_EQ(m->stat().commits_rtm, 1u);
        ASSERT_TRUE(m->write(4096, read_at(path, 4096, 5 * 4096)));
        ASSERT_EQ(m->unmap(ATO_UNMAP_SPATIAL), 0);
        write_file(path, pattern(SIZE, 1));
    }
}

TEST_F(PersistCountsTest, HardwareTransactionsThatAlwaysAbortFallBackToALane)
{
    if (!persist_rtm_works())
        GTEST_SKIP() << "no hardware transactions on this CPU";
    map(ATO_DOMAIN_EADR, ATO_READ_GATHER, 0);
    faults.rtm = 0;
    ASSERT_TRUE(m->write(4096, pattern(3 * 4096, 2))) << m->sentence;
    PersistCounts c = faults.take();
    EXPECT_EQ(c.flip_rtm, 6); // tries
    struct ato_stat st = m->stat();
    EXPECT_EQ(st.rtm_aborts, 6u);
    EXPECT_EQ(st.commits_rtm, 0u);
    EXPECT_EQ(st.commits_journal, 1u);
    EXPECT_EQ(m->read(4096, 3 * 4096), pattern(3 * 4096, 2));
}

TEST_F(PersistCountsTest, NoHardwareTransactionWhereVisibleIsNotDurable)
{
    map(ATO_DOMAIN_PMEM, ATO_READ_GATHER, 0);
    ASSERT_TRUE(m->write(4096, pattern(3 * 4096, 2))) << m->sentence;
    EXPECT_EQ(faults.take().flip_rtm, 0);
    EXPECT_EQ(m->stat().commits_journal, 1u);
}

TEST_F(PersistCountsTest, OnePageNeedsNeitherTransactionNorLane)
{
    map(ATO_DOMAIN_EADR, ATO_READ_GATHER, 0);
    ASSERT_TRUE(m->write(4096, pattern(4096, 2)));
    EXPECT_EQ(faults.take().flip_rtm, 0);
}

// ---- first touch after a kill -------------------------------------------------------------------

TEST_F(PersistCountsTest, WordsAreSettledAtFirstTouchOnlyAfterAKill)
{
    auto first_touches = [&] {
        Mapped again(path, options(ATO_DOMAIN_PMEM, ATO_READ_GATHER));
        EXPECT_TRUE(again) << again.sentence;
        faults.take();
        EXPECT_EQ(again.read(0, 3 * 4096).size(), 3u * 4096);
        long first = faults.take().flush_any;
        EXPECT_EQ(again.read(0, 3 * 4096).size(), 3u * 4096);
        EXPECT_EQ(faults.take().flush_any, 0);
        return first;
    };
    map(ATO_DOMAIN_PMEM);
    ASSERT_TRUE(m->write(0, pattern(3 * 4096, 2)));
    m.reset();
    EXPECT_EQ(first_touches(), 0);
    ASSERT_EQ(in_child([&] {
                  Mapped dies(path, options(ATO_DOMAIN_PMEM, ATO_READ_GATHER));
                  dies.base = nullptr;
                  return 0;
              }),
              0);
    EXPECT_EQ(first_touches(), 3); // one a page: visible is not durable after a kill
}

// A word that is visible as 0 may still be durable as it was before: with the older content.
TEST_F(PersistCountsTest, WordsThatAreZeroAreSettledBeforeTheyAreTakenAsDeployed)
{
    map(ATO_DOMAIN_PMEM);
    for (int i = 0; i < 2; i++)
        ASSERT_TRUE(m->write(0, pattern(3 * 4096, 2)));
    m.reset();
    ASSERT_NO_FATAL_FAILURE(die_mapped(ATO_DOMAIN_PMEM));
    Mapped again(path, options(ATO_DOMAIN_PMEM));
    ASSERT_TRUE(again);
    faults.take();
    ASSERT_EQ(ato_deploy(again.base, SIZE), 0);
    EXPECT_EQ(faults.take(), counts([](PersistCounts &c) {
                  c.flush_any = 1; // its one meta page
                  c.fence = 1;
              }));
    Bytes copied;
    ASSERT_EQ(copy_now(again.base, copied), SIZE);
    const PersistCounts c = faults.take();
    EXPECT_GE(c.flush_any, 3); // one a page
    EXPECT_EQ(c.store_word, 0);
}

// `clean` promises that all words are durable, also words that no call touched since the kill.
TEST_F(PersistCountsTest, UntouchedWordsAreSettledBeforeCleanIsWritten)
{
    map(ATO_DOMAIN_PMEM);
    ASSERT_TRUE(m->write(0, pattern(3 * 4096, 2)));
    m.reset();
    ASSERT_NO_FATAL_FAILURE(die_mapped(ATO_DOMAIN_PMEM));
    Mapped untouched(path, options(ATO_DOMAIN_PMEM));
    ASSERT_TRUE(untouched);
    faults.take();
    ASSERT_EQ(untouched.unmap(ATO_UNMAP_FAST), 0);
    EXPECT_EQ(faults.take().flush_any, 1); // its one meta page
}

} // namespace
