// SPDX-License-Identifier: BSD-3-Clause
//
// Two transactions become one: what has it, who waits for it, and what is left of the other one? Dying in the
// commit is in events_test.cc, circles through other processes in peers_waits_test.cc.
#include "support/child.h"
#include "support/mapped.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <memory>
#include <thread>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

using namespace support;

namespace
{

constexpr size_t PAGE = 4096, SIZE = 20 * PAGE + 300, MOST = 1 << 20;

// A file, what is committed of it, and what the transactions have made of it.
struct One {
    std::string path;
    Bytes model, mine;
    std::unique_ptr<Mapped> m;
};

class TxJoin : public testing::TestWithParam<int>
{
  protected:
    TxJoin()
    {
        for (One *f : {&a, &b}) {
            f->path = dir / (f == &a ? "a" : "b");
            f->model = f->mine = pattern(SIZE, f == &a ? 1 : 2);
            write_file(f->path, f->model);
            map(*f);
        }
    }

    ato_options wish() const
    {
        ato_options o = options(GetParam(), ATO_READ_GATHER, ATO_NO_RTM);
        o.max_size = MOST;
        return o;
    }

    void map(One &f) const
    {
        f.m.reset();
        f.m = std::make_unique<Mapped>(f.path, wish(), SIZE);
        ASSERT_TRUE(*f.m) << f.m->sentence;
    }

    static ato_tx *begin(unsigned flags = 0, uint64_t max_bytes = 0)
    {
        ato_tx_options o = {};
        o.struct_size = sizeof(o);
        o.flags = flags;
        o.max_bytes = max_bytes;
        ato_tx *t = ato_tx_begin_opt(&o);
        EXPECT_NE(t, nullptr) << ato_errormsg();
        return t;
    }

    static void put(ato_tx *t, One &f, size_t at, const Bytes &bytes, unsigned flags = 0)
    {
        ASSERT_NE(ato_tx_memcpy(t, f.m->base + at, bytes.data(), bytes.size(), flags), nullptr)
            << ato_errormsg();
        std::copy(bytes.begin(), bytes.end(), f.mine.begin() + static_cast<long>(at));
    }

    static void resize(ato_tx *t, One &f, size_t to)
    {
        ASSERT_EQ(ato_tx_ftruncate(t, f.m->base, static_cast<off_t>(to)), 0) << ato_errormsg();
        f.mine.resize(to);
    }

    // Of one that may touch all pages.
    static void expect_seen(ato_tx *t, const One &f)
    {
        Bytes seen(f.mine.size());
        ASSERT_NE(ato_tx_memcpy(t, seen.data(), f.m->base, seen.size(), 0), nullptr)
            << ato_errormsg();
        EXPECT_EQ(seen, f.mine);
    }

    void expect_others()
    {
        std::thread([&] {
            for (One *f : {&a, &b}) {
                ASSERT_EQ(ato_size(f->m->base), static_cast<off_t>(f->model.size()));
                EXPECT_EQ(f->m->read(0, f->model.size()), f->model);
            }
        }).join();
    }

    void commit(ato_tx *t)
    {
        ASSERT_EQ(ato_tx_commit(t), 0) << ato_errormsg();
        a.model = a.mine;
        b.model = b.mine;
        expect_others();
    }

    void abort(ato_tx *t)
    {
        ASSERT_EQ(ato_tx_abort(t), 0) << ato_errormsg();
        a.mine = a.model;
        b.mine = b.model;
        expect_others();
    }

    static testing::AssertionResult refused(bool failed, int err, const std::string &words)
    {
        int seen = errno;
        std::string sentence = ato_errormsg();
        if (failed && seen == err && sentence.find(words) != std::string::npos)
            return testing::AssertionSuccess();
        return testing::AssertionFailure()
               << (failed ? "" : "no failure; ") << strerror(seen) << ": " << sentence;
    }

    // Others write to every page, change the sizes, and unmap: nothing is held, by whomever.
    void expect_free()
    {
        std::thread([&] {
            for (One *f : {&a, &b}) {
                Bytes all = pattern(f->model.size(), 77);
                for (size_t at = 0; at < all.size(); at += PAGE / 2)
                    ASSERT_TRUE(f->m->write(
                        at, Bytes(all.begin() + static_cast<long>(at),
                                  all.begin() +
                                      static_cast<long>(std::min(at + PAGE / 2, all.size())))))
                        << f->m->sentence;
                f->model = f->mine = all;
                for (size_t to : {3 * PAGE + 70, 30 * PAGE + 5, SIZE}) {
                    ASSERT_EQ(ato_ftruncate(f->m->base, static_cast<off_t>(to)), 0)
                        << ato_errormsg();
                    f->model.resize(to);
                    ASSERT_NE(ato_memset(f->m->base + to - 900, 5, 900), nullptr) << ato_errormsg();
                    std::fill(f->model.end() - 900, f->model.end(), 5);
                }
                EXPECT_EQ(f->m->read(0, SIZE), f->model);
                ASSERT_EQ(f->m->unmap(ATO_UNMAP_SPATIAL), 0) << f->m->sentence;
                EXPECT_EQ(read_file(f->path), f->model);
                f->mine = f->model;
                map(*f);
            }
        }).join();
    }

    TempDir dir;
    One a, b;
};

TEST_P(TxJoin, OfTwoFilesIsOneCommit)
{
    for (bool large : {false, true}) {
        ato_tx *into = begin(), *from = begin();
        put(into, a, 70, pattern(5, 3)); // short ones wait in their queues
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
        EXPECT_EQ(b.m->stat().commits_journal, before + 1); // the same one
    }
    map(a);
    map(b);
    expect_others();
    expect_free();
}

TEST_P(TxJoin, AbortedLeavesNoTraceOfBoth)
{
    ato_tx *into = begin(), *from = begin();
    put(into, a, 70, pattern(3 * PAGE, 3));
    put(from, b, 90, pattern(8 * PAGE, 4));
    put(from, b, 100, pattern(8, 5));
    ASSERT_EQ(ato_tx_join(into, from), 0) << ato_errormsg();
    abort(into);
    expect_free();
}

TEST_P(TxJoin, TheOtherHandleIsNobodysAndItsMappingsStay)
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

// Longer, shorter, both; and a size of the other one's, too. What others may not write to is free in the end.
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
                // It goes on with them: pages that were drained, too.
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

// The part that speaks for the file is another one then: of the one that came to it first.
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

TEST_P(TxJoin, KeepsWhatTheOtherOneHasRead)
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
    EXPECT_EQ(ato_tx_commit(into), 0) << ato_errormsg(); // of nothing
    other.join();
    EXPECT_EQ(b.m->read(3 * PAGE, 10), pattern(10, 5));
}

// One that keeps what it reads, and one that has read a file of which no page can be kept.
TEST_P(TxJoin, MayHaveReadWhatCannotBeKept)
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

TEST_P(TxJoin, WhatWasToComeHomeComesHome)
{
    ato_tx *into = begin(), *from = begin();
    put(into, a, 5, pattern(64, 3));
    put(from, b, 100, pattern(5 * PAGE, 3), ATO_EAGER);
    ASSERT_EQ(ato_tx_join(into, from), 0) << ato_errormsg();
    commit(into);
    EXPECT_EQ(b.m->stat().slices_in_reflection, 0u);
    EXPECT_GT(a.m->stat().slices_in_reflection, 0u);
    // The eager one is in both.
    into = begin();
    from = begin();
    put(into, a, 5, pattern(64, 4));
    put(from, a, 5 * PAGE, pattern(64, 5), ATO_EAGER);
    ASSERT_EQ(ato_tx_join(into, from), 0) << ato_errormsg();
    commit(into);
    EXPECT_EQ(a.m->stat().slices_in_reflection, 0u);
}

// More than lie in the transaction itself, and more than its memory is kept for.
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
    // None of them is held.
    std::thread([&] {
        ASSERT_NE(ato_memset(many.base, 1, 2 * MANY * PAGE), nullptr) << ato_errormsg();
    }).join();
    expect_free();
}

TEST_P(TxJoin, AdoptedOnesAreJoinedToo)
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

// ---- refusals: both are as they were ----

TEST_P(TxJoin, RefusedLeavesBothAsTheyWere)
{
    write_file(dir / "other", pattern(SIZE, 3));
    Mapped other(dir / "other",
                 options(GetParam() == ATO_DOMAIN_PMEM ? ATO_DOMAIN_PROCESS : ATO_DOMAIN_PMEM));
    ASSERT_TRUE(other) << other.sentence;
    for (bool commits : {true, false}) {
        ato_tx *into = begin(0, 4 * PAGE), *from = begin(), *elsewhere = begin();
        put(into, a, 5, pattern(2 * PAGE, 3)); // 3 pages
        put(from, b, 70, pattern(PAGE, 4));    // 2
        resize(from, b, 10 * PAGE + 5);        // and 1
        ASSERT_NE(ato_tx_memcpy(elsewhere, other.base, "else", 4, 0), nullptr) << ato_errormsg();
        EXPECT_TRUE(refused(ato_tx_join(into, from) < 0, E2BIG, "max_bytes"));
        EXPECT_TRUE(refused(ato_tx_join(into, into) < 0, EINVAL, "itself"));
        EXPECT_TRUE(refused(ato_tx_join(into, nullptr) < 0, EINVAL, "open"));
        EXPECT_TRUE(refused(ato_tx_join(nullptr, from) < 0, EINVAL, "open"));
        EXPECT_TRUE(refused(ato_tx_join(into, elsewhere) < 0, EXDEV, "domain"));
        EXPECT_TRUE(refused(ato_tx_join(elsewhere, into) < 0, EXDEV, "domain"));
        std::thread([&] {
            ato_tx *own = begin();
            EXPECT_TRUE(refused(ato_tx_join(own, from) < 0, EPERM, "another thread"));
            EXPECT_TRUE(refused(ato_tx_join(into, own) < 0, EPERM, "another thread"));
            EXPECT_EQ(ato_tx_commit(own), 0) << ato_errormsg();
        }).join();
        expect_others();
        expect_seen(from, b);
        put(into, a, 20, pattern(PAGE, 5));
        put(from, b, 75, pattern(10, 5));
        ASSERT_EQ(ato_tx_commit(elsewhere), 0) << ato_errormsg();
        EXPECT_EQ(other.read(0, 4), Bytes({'e', 'l', 's', 'e'}));
        // Each is one by itself.
        ASSERT_EQ(ato_tx_abort(into), 0) << ato_errormsg();
        a.mine = a.model;
        if (commits)
            commit(from);
        else
            abort(from);
        expect_free();
    }
}

// Those that are only read are in no commit.
TEST_P(TxJoin, FilesThatAreOnlyReadMayBeOfAnyDomain)
{
    write_file(dir / "other", pattern(SIZE, 3));
    Mapped other(dir / "other",
                 options(GetParam() == ATO_DOMAIN_PMEM ? ATO_DOMAIN_PROCESS : ATO_DOMAIN_PMEM));
    ASSERT_TRUE(other) << other.sentence;
    for (bool swapped : {false, true}) {
        ato_tx *writes = begin(), *reads = begin();
        Bytes seen(10);
        put(writes, a, 5, pattern(2 * PAGE, swapped ? 3 : 4));
        ASSERT_NE(ato_tx_memcpy(reads, seen.data(), other.base, 10, 0), nullptr) << ato_errormsg();
        ato_tx *into = swapped ? reads : writes;
        ASSERT_EQ(ato_tx_join(into, swapped ? writes : reads), 0) << ato_errormsg();
        EXPECT_TRUE(refused(!ato_tx_memcpy(into, other.base, "x", 1, 0), EXDEV, "domain"));
        put(into, b, 7, pattern(10, 6));
        commit(into);
    }
}

TEST_P(TxJoin, AnEpochStaysWhatItIs)
{
    ato_options o = wish();
    o.flags |= ATO_EPOCHS;
    Mapped e(b.path, o, SIZE);
    ASSERT_TRUE(e) << e.sentence;
    ASSERT_TRUE(e.write(8 * PAGE, pattern(100, 7))) << e.sentence;
    ato_tx *into = begin(), *from = begin();
    put(into, a, 5, pattern(2 * PAGE, 3));
    put(from, b, 5, pattern(2 * PAGE, 4));
    ASSERT_EQ(ato_tx_join(into, from), 0) << ato_errormsg();
    EXPECT_EQ(e.read(8 * PAGE, 100), pattern(100, 7));
    EXPECT_EQ(e.read(5, 10), Bytes(b.model.begin() + 5, b.model.begin() + 15));
    commit(into);
    EXPECT_EQ(e.read(5, 2 * PAGE), pattern(2 * PAGE, 4));
    ASSERT_EQ(ato_msync(e.base, SIZE, MS_SYNC), 0) << ato_errormsg();
    Bytes seven = pattern(100, 7);
    std::copy(seven.begin(), seven.end(), b.model.begin() + 8 * PAGE);
    expect_others();
    EXPECT_EQ(e.unmap(ATO_UNMAP_FAST), 0) << e.sentence;
}

// ---- those who wait ----

TEST_P(TxJoin, WhoWaitsForAPageGoesOnWhenTheOneEndsThatHasItNow)
{
    for (bool commits : {false, true})
        for (bool early : {false, true}) {
            ato_tx *into = begin(), *from = begin();
            put(into, a, 5, pattern(10, 3));
            put(from, b, 5 * PAGE, pattern(10, 4));
            resize(from, b, 12 * PAGE);
            if (!early) {
                ASSERT_EQ(ato_tx_join(into, from), 0) << ato_errormsg();
            }
            std::atomic<int> done{0};
            auto writes = [&](size_t at) {
                EXPECT_EQ(ato_memset(b.m->base + at, 7, 3) != nullptr, !commits || at < 12 * PAGE)
                    << ato_errormsg();
                done++;
            };
            std::thread page(writes, 5 * PAGE + 100), drained(writes, 15 * PAGE);
            std::thread in_another([&] {
                ato_tx *t = begin();
                EXPECT_NE(ato_tx_memcpy(t, b.m->base + 5 * PAGE + 200, "777", 3, 0), nullptr)
                    << ato_errormsg();
                EXPECT_EQ(ato_tx_abort(t), 0);
                done++;
            });
            usleep(15000);
            if (early) {
                ASSERT_EQ(ato_tx_join(into, from), 0) << ato_errormsg();
            }
            usleep(30000); // they look again
            EXPECT_EQ(done, 0);
            ASSERT_EQ(commits ? ato_tx_commit(into) : ato_tx_abort(into), 0) << ato_errormsg();
            page.join();
            drained.join();
            in_another.join();
            ASSERT_EQ(ato_ftruncate(b.m->base, SIZE), 0) << ato_errormsg();
            a.model = a.mine = a.m->read(0, SIZE);
            b.model = b.mine = b.m->read(0, SIZE);
            EXPECT_EQ(b.m->read(5 * PAGE + 100, 3), Bytes(3, 7));
            expect_free();
        }
}

// Each has a page, and the other one waits for it: for what was `from`, before or after it was joined.
TEST_P(TxJoin, ACircleThroughItIsFound)
{
    for (int round = 0; round < 12; round++) {
        std::atomic<bool> has{false}, held{false}, joined{false};
        std::atomic<int> told{0};
        const bool early = round % 2, sizes = round % 4 > 1;
        std::thread other([&] {
            ato_tx *t = begin();
            EXPECT_NE(ato_tx_memcpy(t, b.m->base + 9 * PAGE, "other", 5, 0), nullptr);
            has = true;
            while (!(early ? held : joined))
                usleep(100);
            bool went = sizes ? ato_tx_ftruncate(t, a.m->base, 30 * PAGE) == 0
                              : ato_tx_memcpy(t, a.m->base + PAGE, "other", 5, 0) != nullptr;
            if (!went) {
                EXPECT_EQ(errno, EDEADLK) << ato_errormsg();
                told++;
            }
            EXPECT_EQ(ato_tx_abort(t), 0) << ato_errormsg();
        });
        ato_tx *into = begin(), *from = begin();
        put(into, b, 5, pattern(10, 3));
        put(from, a, PAGE, pattern(10, 4));
        if (sizes)
            resize(from, a, 25 * PAGE);
        held = true;
        while (!has)
            usleep(100);
        if (early)
            usleep(5000); // it waits for `from`
        ASSERT_EQ(ato_tx_join(into, from), 0) << ato_errormsg();
        joined = true;
        if (!ato_tx_memcpy(into, b.m->base + 9 * PAGE, "into", 4, 0)) {
            EXPECT_EQ(errno, EDEADLK) << ato_errormsg();
            told++;
        }
        abort(into);
        other.join();
        EXPECT_EQ(told, 1) << "round " << round;
    }
    expect_free();
}

// Somebody wants to have it all the time, and is refused while it is joined, or has it before or after.
TEST_P(TxJoin, WhileAnotherThreadAsksForBoth)
{
    std::atomic<ato_tx *> shared[2] = {{nullptr}, {nullptr}};
    std::atomic<bool> over{false};
    std::thread asks([&] {
        while (!over)
            for (auto &each : shared) {
                ato_tx *t = each;
                if (!t)
                    continue;
                if (ato_tx_adopt(t) == 0)
                    EXPECT_EQ(ato_tx_abort(t), 0) << ato_errormsg();
                else
                    EXPECT_TRUE(errno == EBUSY || errno == EINVAL) << ato_errormsg();
            }
    });
    for (int i = 0; i < 300; i++) {
        ato_tx *into = begin(), *from = begin();
        (void)ato_tx_memcpy(into, a.m->base + 5, "into", 4, 0);
        (void)ato_tx_memcpy(from, b.m->base + 5, "from", 4, 0);
        shared[0] = into;
        shared[1] = from;
        if (ato_tx_join(into, from) < 0) {
            ASSERT_TRUE(errno == EPERM || errno == EINVAL) << ato_errormsg();
        }
        shared[0] = shared[1] = nullptr;
        for (ato_tx *t : {into, from})
            if (ato_tx_abort(t) < 0) {
                ASSERT_TRUE(errno == EPERM || errno == EINVAL) << ato_errormsg();
            }
    }
    over = true;
    asks.join();
    expect_others();
    expect_free();
}

INSTANTIATE_TEST_SUITE_P(Domains, TxJoin,
                         testing::Values(ATO_DOMAIN_PMEM, ATO_DOMAIN_EADR, ATO_DOMAIN_MSYNC,
                                         ATO_DOMAIN_PROCESS));

} // namespace
