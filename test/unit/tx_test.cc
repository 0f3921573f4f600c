// SPDX-License-Identifier: BSD-3-Clause
//
// Which writes of a transaction are visible, and when: to itself, to its thread, to others?
// (What it reads: tx_reads_test.cc; limits, threads and ends: tx_ends_test.cc; two transactions that
// wait for each other: waits_test.cc.)
#include "tx_lab.h"

#include <random>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

using namespace tx_lab;

namespace
{

TEST_P(Tx, ShowsItsWritesToItselfOnlyUntilItCommits)
{
    ato_tx *t = begin();
    put(t, 10, pattern(5, 2));
    put(t, 3 * PAGE - 100, pattern(2 * PAGE, 3));
    put(t, SIZE - 300, pattern(300, 4));
    EXPECT_EQ(seen_by(t), mine);
    EXPECT_EQ(m->read(), model); // also for a plain read of its thread
    EXPECT_EQ(seen_by_others(), model);
    ASSERT_EQ(ato_tx_commit(t), 0) << ato_errormsg();
    EXPECT_EQ(m->read(), mine);
    map();
    EXPECT_EQ(m->read(), mine);
}

TEST_P(Tx, AbortChangesNothing)
{
    ato_tx *t = begin();
    put(t, 0, pattern(20 * PAGE, 2));
    ASSERT_EQ(ato_tx_abort(t), 0);
    EXPECT_EQ(m->read(), model);
    ASSERT_TRUE(m->write(5 * PAGE, pattern(100, 9))); // without waiting for its pages
    ASSERT_EQ(m->unmap(ATO_UNMAP_SPATIAL), 0);
}

TEST_P(Tx, SliceMayBeWrittenAgainAndInParts)
{
    for (unsigned flags : {0u, ATO_SKIP_EQUAL}) {
        ato_tx *t = begin();
        put(t, PAGE, pattern(PAGE, 2), flags);
        put(t, PAGE + 64, pattern(64, 3), flags);
        put(t, PAGE + 70, pattern(3, 4), flags);
        put(t, PAGE + 100, pattern(2000, 5), flags);
        put(t, PAGE + 10, pattern(1, 6), flags);
        EXPECT_EQ(seen_by(t), mine);
        EXPECT_EQ(seen_by_others(), model);
        ASSERT_EQ(ato_tx_commit(t), 0);
        EXPECT_EQ(m->read(), mine);
        model = mine;
    }
}

// Short writes to pages that the transaction has or has not, more writes and more bytes than are
// queued, with longer writes and reads between; some restore the old bytes.
TEST_P(Tx, AnyMixOfWritesMatchesAModel)
{
    std::mt19937 random(20261121);
    for (int round = 0; round < 40; round++) {
        ato_tx *t = begin();
        auto writes = random() % 700;
        for (unsigned i = 0; i < writes; i++) {
            const size_t most[] = {3, 64, 130, 700, PAGE, 3 * PAGE};
            size_t n = 1 + random() % most[random() % (round % 2 ? 4 : 6)];
            size_t pages =
                round % 3 ? SIZE : 3 * PAGE; // few pages: the same slices again and again
            size_t at = random() % (pages - std::min(n, pages - 1));
            n = std::min(n, SIZE - at);
            Bytes bytes = pattern(n, random() % 1000);
            if (random() % 4 == 0)
                bytes.assign(model.begin() + static_cast<long>(at),
                             model.begin() + static_cast<long>(at + n));
            put(t, at, bytes, random() % 3 == 0 ? ATO_SKIP_EQUAL : 0);
            if (random() % 64 == 0) {
                size_t from = random() % (SIZE - 500);
                ASSERT_EQ(seen_by(t, from, 500),
                          Bytes(mine.begin() + static_cast<long>(from),
                                mine.begin() + static_cast<long>(from + 500)));
            }
        }
        if (random() % 4 == 0) {
            ASSERT_EQ(ato_tx_abort(t), 0);
        } else {
            ASSERT_EQ(ato_tx_commit(t), 0) << ato_errormsg();
            model = mine;
        }
        ASSERT_EQ(m->read(), model) << "round " << round;
    }
    map();
    EXPECT_EQ(m->read(), model);
}

// A slice that equals its committed bytes, or the bytes that the transaction wrote, is not written.
TEST_P(Tx, SkipEqualComparesWithTheContentThatTheTransactionSees)
{
    Bytes old(model.begin() + PAGE, model.begin() + 2 * PAGE);
    ato_tx *t = begin();
    put(t, PAGE, pattern(PAGE, 2), ATO_SKIP_EQUAL);
    put(t, PAGE, old, ATO_SKIP_EQUAL); // back to what was committed
    put(t, PAGE + 7, Bytes(1, old[7]), ATO_SKIP_EQUAL);
    uint64_t flips = m->stat().flips;
    ASSERT_EQ(ato_tx_commit(t), 0);
    EXPECT_EQ(m->stat().flips, flips);
    EXPECT_EQ(m->read(), model);

    t = begin();
    put(t, PAGE, pattern(128, 3), ATO_SKIP_EQUAL);
    put(t, PAGE + 3, Bytes(1, static_cast<unsigned char>(~mine[PAGE + 3])), ATO_SKIP_EQUAL);
    put(t, PAGE, Bytes(old.begin(), old.begin() + 64), ATO_SKIP_EQUAL); // one slice of the two
    uint64_t media = m->stat().bytes_to_media;
    ASSERT_EQ(ato_tx_commit(t), 0);
    EXPECT_EQ(m->stat().bytes_to_media, media + 64 + 8);
    EXPECT_EQ(m->read(), mine);
}

TEST_P(Tx, SpansMappingsOfAFile)
{
    Mapped again(path, options(GetParam()), 4 * PAGE, 2 * PAGE);
    ASSERT_TRUE(again) << again.sentence;
    ato_tx *t = begin();
    put(t, 100, pattern(3 * PAGE, 99));
    ASSERT_NE(ato_tx_memcpy(t, again.base + 5, "hello", 5, 0), nullptr) << ato_errormsg();
    memcpy(&mine[2 * PAGE + 5], "hello", 5); // the same page
    Bytes seen(10 * PAGE);
    ASSERT_NE(ato_tx_memcpy(t, seen.data(), m->base, seen.size(), 0), nullptr);
    EXPECT_TRUE(std::equal(seen.begin(), seen.end(), mine.begin()));
    ASSERT_EQ(ato_tx_commit(t), 0) << ato_errormsg();
    EXPECT_EQ(m->read(), mine);
}

TEST_P(Tx, CopiesFromMappingToMappingLikeMemmove)
{
    for (unsigned flags : {0u, ATO_TX_READ_COMMITTED}) {
        for (auto move : {std::pair<size_t, size_t>{0, 100},
                          {100, 0},
                          {PAGE, 3 * PAGE + 7},
                          {6 * PAGE, PAGE}}) {
            ato_tx *t = begin(flags);
            // The source and the target have pending writes, too.
            put(t, 2 * PAGE, pattern(3 * PAGE, 7));
            size_t n = 5 * PAGE + 50;
            ASSERT_NE(ato_tx_memcpy(t, m->base + move.second, m->base + move.first, n, 0), nullptr)
                << ato_errormsg();
            Bytes moved(mine.begin() + static_cast<long>(move.first),
                        mine.begin() + static_cast<long>(move.first + n));
            std::copy(moved.begin(), moved.end(), mine.begin() + static_cast<long>(move.second));
            EXPECT_EQ(seen_by(t), mine);
            EXPECT_EQ(seen_by_others(), model);
            ASSERT_EQ(ato_tx_commit(t), 0) << ato_errormsg();
            EXPECT_EQ(m->read(), mine);
            model = mine;
        }
    }
}

// Each page is read as the transaction wrote it or as it is committed, whatever it has read before.
TEST_P(Tx, ReadCommittedSeesItsOwnWritesAndCommittedPages)
{
    ato_tx *t = begin(ATO_TX_READ_COMMITTED);
    EXPECT_EQ(seen_by(t, 3 * PAGE, 10).size(), 10u);
    std::thread([&] { EXPECT_TRUE(m->write(3 * PAGE, pattern(10, 6))); }).join();
    EXPECT_EQ(seen_by(t, 3 * PAGE, 10), pattern(10, 6));
    mine = model = m->read();
    put(t, 5 * PAGE + 10, pattern(100, 2));
    EXPECT_EQ(seen_by(t, 4 * PAGE, 3 * PAGE),
              Bytes(mine.begin() + 4 * PAGE, mine.begin() + 7 * PAGE));
    ASSERT_EQ(ato_tx_commit(t), 0);
    EXPECT_EQ(m->read(), mine);
}

// A reader that meets one commit after the other reserves its pages, except for pages of a
// transaction.
TEST_P(Tx, ReadersNeverWait)
{
    ato_tx *t = begin();
    put(t, 0, pattern(50 * PAGE, 2));
    for (int policy : {ATO_READ_LAZY, ATO_READ_GATHER, ATO_READ_EAGER}) {
        Mapped other(path, options(GetParam(), policy));
        ASSERT_TRUE(other) << other.sentence;
        for (int i = 0; i < 10; i++)
            EXPECT_EQ(other.read(), model);
    }
    ASSERT_EQ(ato_tx_abort(t), 0);
}

TEST_P(Tx, FailedCallLeavesTheTransactionUnchanged)
{
    ato_tx *t = begin();
    put(t, PAGE, pattern(100, 2));
    Bytes some = pattern(PAGE, 3);
    EXPECT_TRUE(refused(!ato_tx_memcpy(t, m->base + SIZE - 10, some.data(), 11, 0), EFAULT, "end"));
    EXPECT_TRUE(refused(!ato_tx_memcpy(t, some.data(), m->base + SIZE - 10, 11, 0), EFAULT, "end"));
    EXPECT_TRUE(
        refused(!ato_tx_memcpy(t, some.data(), some.data(), 11, 0), EINVAL, "lies in no mapping"));
    EXPECT_TRUE(refused(!ato_tx_memcpy(t, m->base, some.data(), 11, 64), EINVAL, "flags"));
    EXPECT_EQ(seen_by(t), mine);
    ASSERT_EQ(ato_tx_commit(t), 0);
    EXPECT_EQ(m->read(), mine);
}

TEST_P(Tx, ReadOnlyMappingsAreReadOnly)
{
    int fd = open(path.c_str(), O_RDWR);
    auto *view = static_cast<char *>(ato_mmap(nullptr, SIZE, PROT_READ, MAP_SHARED, fd, 0));
    close(fd);
    ASSERT_NE(view, MAP_FAILED) << ato_errormsg();
    ato_tx *t = begin();
    Bytes bytes(10);
    EXPECT_NE(ato_tx_memcpy(t, bytes.data(), view, 10, 0), nullptr) << ato_errormsg();
    EXPECT_TRUE(refused(!ato_tx_memcpy(t, view, bytes.data(), 10, 0), EACCES, "reading only"));
    ASSERT_EQ(ato_tx_abort(t), 0);
    ASSERT_EQ(ato_munmap(view, SIZE, ATO_UNMAP_FAST), 0) << ato_errormsg();
}

INSTANTIATE_TEST_SUITE_P(Domains, Tx,
                         testing::ValuesIn(domains({ATO_DOMAIN_PMEM, ATO_DOMAIN_EADR,
                                                    ATO_DOMAIN_DISK, ATO_DOMAIN_PROCESS})));

} // namespace
