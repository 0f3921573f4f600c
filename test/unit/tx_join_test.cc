// SPDX-License-Identifier: BSD-3-Clause
//
// Two transactions become one: what does it contain, and which state has the other handle?
// (Refusals and waiting: tx_join_waits_test.cc; a crash in the commit: events_test.cc.)
#include "tx_join_lab.h"

#include <atomic>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

using namespace tx_join_lab;

namespace
{

TEST_P(TxJoin, OfTwoFilesIsOneCommit)
{
    for (bool large : {false, true}) {
        ato_tx *into = begin(), *from = begin();
        put(into, a, 70, pattern(5, 3)); // short writes wait in their queues
        put(from, b, 90, pattern(7, 4));
        if (large) {
            put(into, a, 3 * PAGE - 10, pattern(9 * PAGE, 5));
            put(from, b, PAGE - 10, pattern(15 * PAGE, 6));
        }
        put(into, a, 2 * PAGE - 3, pattern(5, 7));
        put(from, b, 2 * PAGE - 3, pattern(5, 8));
        const uint64_t before = a.m->stat().commits_journal;
        ASSERT_EQ(ato_tx_join(into, from), 0) << ato_errormsg();
        expect_others();
        expect_seen(into, a);
        expect_seen(into, b);
        put(into, b, 2 * PAGE - 5, pattern(50, 9)); // pages that it has now, and others
        put(into, b, 18 * PAGE + 9, pattern(PAGE, 10));
        commit(into);
        EXPECT_EQ(a.m->stat().commits_journal, before + 1);
        EXPECT_EQ(b.m->stat().commits_journal, before + 1); // the same commit
    }
    map(a);
    map(b);
    expect_others();
    expect_free();
}

TEST_P(TxJoin, AbortDiscardsTheWritesOfBoth)
{
    ato_tx *into = begin(), *from = begin();
    put(into, a, 70, pattern(3 * PAGE, 3));
    put(from, b, 90, pattern(8 * PAGE, 4));
    put(from, b, 100, pattern(8, 5));
    ASSERT_EQ(ato_tx_join(into, from), 0) << ato_errormsg();
    abort(into);
    expect_free();
}

TEST_P(TxJoin, OtherHandleIsInvalidAndItsMappingsStay)
{
    ato_tx *into = begin(), *from = begin(), *next;
    put(from, b, 90, pattern(10, 4));
    ASSERT_EQ(ato_tx_join(into, from), 0) << ato_errormsg();
    for (int i = 0; i < 2; i++) {
        EXPECT_TRUE(refused(ato_tx_commit(from) < 0, EINVAL, "open"));
        EXPECT_TRUE(refused(ato_tx_abort(from) < 0, EINVAL, "open"));
        EXPECT_TRUE(refused(!ato_tx_memcpy(from, b.m->base, "x", 1, 0), EINVAL, "open"));
        EXPECT_TRUE(refused(ato_tx_adopt(from) < 0, EINVAL, "open"));
        EXPECT_TRUE(refused(ato_tx_join(into, from) < 0, EINVAL, "open"));
        EXPECT_TRUE(refused(ato_tx_join(from, into) < 0, EINVAL, "open"));
        if (i == 0)
            next = begin(); // in its place
    }
    EXPECT_NE(next, from);
    put(next, a, 5 * PAGE, pattern(10, 5));
    EXPECT_EQ(b.m->unmap(ATO_UNMAP_FAST), -1);
    EXPECT_EQ(b.m->error, EBUSY);
    ASSERT_EQ(ato_tx_join(into, next), 0) << ato_errormsg(); // and one more
    commit(into);
    expect_free();
}

// Longer, shorter, and two changes in a row; `both`: the other transaction changes a size too. At
// the end no page is held.
TEST_P(TxJoin, HasTheSizesOfBoth)
{
    const std::vector<std::vector<size_t>> changes = {{30 * PAGE + 40},
                                                      {7 * PAGE + 40},
                                                      {7 * PAGE},
                                                      {0},
                                                      {5 * PAGE + 7, 9 * PAGE + 3},
                                                      {5 * PAGE + 7, 40 * PAGE + 3}};
    for (const auto &sizes : changes)
        for (bool commits : {false, true})
            for (bool both : {false, true}) {
                SCOPED_TRACE(testing::PrintToString(sizes) + (commits ? " commits" : " aborts") +
                             (both ? ", both" : ""));
                ato_tx *into = begin(), *from = begin();
                put(from, a, 10, pattern(9 * PAGE, 3));
                for (size_t to : sizes)
                    resize(from, a, to);
                if (a.mine.size() > 300)
                    put(from, a, a.mine.size() - 200, pattern(190, 4));
                put(into, b, 5, pattern(100, 5));
                if (both) {
                    resize(into, b, 3 * PAGE + 5);
                    resize(into, b, 11 * PAGE);
                }
                ASSERT_EQ(ato_tx_join(into, from), 0) << ato_errormsg();
                expect_others();
                if (!a.mine.empty())
                    expect_seen(into, a);
                expect_seen(into, b);
                // It can change the size again, also over pages that were drained.
                if (sizes.size() == 2) {
                    resize(into, a, 4 * PAGE);
                    resize(into, a, SIZE + 90);
                    put(into, a, SIZE - 100, pattern(150, 6));
                    expect_seen(into, a);
                }
                std::atomic<bool> done{false};
                std::thread other([&] {
                    EXPECT_EQ(ato_ftruncate(a.m->base, SIZE), 0) << ato_errormsg();
                    done = true;
                });
                usleep(3000);
                EXPECT_FALSE(done);
                if (commits) {
                    ASSERT_EQ(ato_tx_commit(into), 0) << ato_errormsg();
                } else {
                    ASSERT_EQ(ato_tx_abort(into), 0);
                    a.mine = a.model;
                    b.mine = b.model;
                }
                other.join();
                a.mine.resize(SIZE);
                a.model = a.mine;
                b.model = b.mine;
                expect_others();
                expect_free();
            }
}

// The part that speaks for the file changes: it is the part of the transaction that touched the
// file first.
TEST_P(TxJoin, OfOneFileThroughOneMappingAndThroughTwo)
{
    for (bool two : {false, true})
        for (bool sized : {false, true})
            for (bool commits : {false, true}) {
                SCOPED_TRACE(std::to_string(two) + std::to_string(sized) + std::to_string(commits));
                Mapped again(a.path, wish(), 10 * PAGE);
                ASSERT_TRUE(again) << again.sentence;
                char *base = two ? again.base : a.m->base;
                ato_tx *into = begin(), *from = begin();
                put(into, a, PAGE + 30, pattern(40, 3));
                put(into, a, 8 * PAGE, pattern(PAGE, 4));
                Bytes bytes = pattern(3 * PAGE, 5);
                ASSERT_NE(ato_tx_memcpy(from, base + 3 * PAGE, bytes.data(), bytes.size(), 0),
                          nullptr)
                    << ato_errormsg();
                std::copy(bytes.begin(), bytes.end(), a.mine.begin() + 3 * PAGE);
                if (sized) {
                    ASSERT_EQ(ato_tx_ftruncate(from, base, 12 * PAGE + 9), 0) << ato_errormsg();
                    ASSERT_EQ(ato_tx_ftruncate(from, base, 14 * PAGE + 9), 0) << ato_errormsg();
                    a.mine.resize(12 * PAGE + 9);
                    a.mine.resize(14 * PAGE + 9);
                }
                ASSERT_EQ(ato_tx_join(into, from), 0) << ato_errormsg();
                expect_seen(into, a);
                EXPECT_EQ(again.unmap(ATO_UNMAP_FAST), two ? -1 : 0);
                put(into, a, 3 * PAGE + 9, pattern(2 * PAGE, 6));
                if (sized)
                    resize(into, a, 15 * PAGE);
                if (commits)
                    commit(into);
                else
                    abort(into);
                EXPECT_EQ(two ? again.unmap(ATO_UNMAP_FAST) : 0, 0) << again.sentence;
                expect_free();
            }
}

TEST_P(TxJoin, KeepsPagesThatTheOtherTransactionRead)
{
    ato_tx *into = begin(), *from = begin();
    Bytes seen(10);
    ASSERT_NE(ato_tx_memcpy(from, seen.data(), b.m->base + 3 * PAGE, 10, 0), nullptr);
    ASSERT_EQ(ato_tx_join(into, from), 0) << ato_errormsg();
    std::atomic<bool> done{false};
    std::thread other([&] {
        EXPECT_TRUE(b.m->write(3 * PAGE, pattern(10, 5))) << b.m->sentence;
        done = true;
    });
    usleep(20000);
    EXPECT_FALSE(done);
    EXPECT_EQ(ato_tx_commit(into), 0) << ato_errormsg(); // an empty commit
    other.join();
    EXPECT_EQ(b.m->read(3 * PAGE, 10), pattern(10, 5));
}

// One transaction keeps the pages that it reads, and the other has read a file of which no page can
// be kept.
TEST_P(TxJoin, MayHaveReadAFileThatIsMappedForReadingOnly)
{
    write_file(dir / "c", pattern(SIZE, 9));
    Fd fd(dir / "c", O_RDONLY);
    auto *view = static_cast<char *>(ato_mmap(nullptr, SIZE, PROT_READ, MAP_SHARED, fd, 0));
    ASSERT_NE(view, MAP_FAILED) << ato_errormsg();
    ato_tx *into = begin(), *from = begin(ATO_TX_READ_COMMITTED);
    put(into, a, 5, pattern(2 * PAGE, 3));
    ASSERT_NE(ato_tx_memcpy(from, b.m->base + 30, view + 10, 2 * PAGE, 0), nullptr)
        << ato_errormsg();
    Bytes nine = pattern(SIZE, 9);
    std::copy_n(nine.begin() + 10, 2 * PAGE, b.mine.begin() + 30);
    ASSERT_EQ(ato_tx_join(into, from), 0) << ato_errormsg();
    EXPECT_EQ(ato_munmap(view, SIZE, ATO_UNMAP_FAST), -1);
    commit(into);
    EXPECT_EQ(ato_munmap(view, SIZE, ATO_UNMAP_FAST), 0) << ato_errormsg();
    expect_free();
}

TEST_P(TxJoin, EagerWritesAreDeployed)
{
    ato_tx *into = begin(), *from = begin();
    put(into, a, 5, pattern(64, 3));
    put(from, b, 100, pattern(5 * PAGE, 3), ATO_EAGER);
    ASSERT_EQ(ato_tx_join(into, from), 0) << ato_errormsg();
    commit(into);
    EXPECT_EQ(b.m->stat().slices_in_reflection, 0u);
    EXPECT_GT(a.m->stat().slices_in_reflection, 0u);
    // Both transactions write to the file, and one of them eagerly.
    into = begin();
    from = begin();
    put(into, a, 5, pattern(64, 4));
    put(from, a, 5 * PAGE, pattern(64, 5), ATO_EAGER);
    ASSERT_EQ(ato_tx_join(into, from), 0) << ato_errormsg();
    commit(into);
    EXPECT_EQ(a.m->stat().slices_in_reflection, 0u);
}

// More pages than the transaction itself has room for, and more than its memory is kept for.
TEST_P(TxJoin, OfManyPages)
{
    constexpr size_t MANY = 4200;
    write_file(dir / "many", Bytes());
    ASSERT_EQ(truncate((dir / "many").c_str(), 2 * MANY * PAGE), 0);
    Mapped many(dir / "many", options(GetParam(), ATO_READ_GATHER, ATO_NO_RTM));
    ASSERT_TRUE(many) << many.sentence;
    Bytes bytes = pattern(PAGE, 3);
    for (int round = 0; round < 3; round++) {
        ato_tx *one = begin(), *two = begin();
        put(one, a, 5, pattern(30, 3 + round));
        for (size_t page = 0; page < MANY; page++) {
            ASSERT_NE(ato_tx_memcpy(two, many.base + 2 * page * PAGE + 7, bytes.data(), 60, 0),
                      nullptr)
                << ato_errormsg();
        }
        ato_tx *into = round % 2 ? two : one, *from = round % 2 ? one : two;
        ASSERT_EQ(ato_tx_join(into, from), 0) << ato_errormsg();
        if (round == 2) {
            abort(into);
            continue;
        }
        commit(into);
        for (size_t page = 0; page < MANY; page += 37)
            EXPECT_EQ(many.read(2 * page * PAGE + 7, 60), Bytes(bytes.begin(), bytes.begin() + 60));
        bytes = pattern(PAGE, 4 + round);
    }
    // No page is held.
    std::thread([&] {
        ASSERT_NE(ato_memset(many.base, 1, 2 * MANY * PAGE), nullptr) << ato_errormsg();
    }).join();
    expect_free();
}

TEST_P(TxJoin, AdoptedTransactionsCanBeJoined)
{
    ato_tx *into = nullptr, *from = nullptr;
    std::thread([&] {
        into = begin();
        put(into, a, 5, pattern(3 * PAGE, 3));
    }).join();
    std::thread([&] {
        from = begin();
        put(from, b, 5, pattern(3 * PAGE, 4));
        put(from, b, 9, pattern(3, 5));
    }).join();
    ASSERT_EQ(ato_tx_adopt(into), 0) << ato_errormsg();
    EXPECT_TRUE(refused(ato_tx_join(into, from) < 0, EPERM, "adopt"));
    ASSERT_EQ(ato_tx_adopt(from), 0) << ato_errormsg();
    ASSERT_EQ(ato_tx_join(into, from), 0) << ato_errormsg();
    std::thread([&] {
        ASSERT_EQ(ato_tx_adopt(into), 0) << ato_errormsg();
        put(into, b, 10, pattern(PAGE, 6));
        commit(into);
    }).join();
    expect_free();
}

INSTANTIATE_TEST_SUITE_P(Domains, TxJoin,
                         testing::Values(ATO_DOMAIN_PMEM, ATO_DOMAIN_EADR, ATO_DOMAIN_MSYNC,
                                         ATO_DOMAIN_PROCESS));

} // namespace
