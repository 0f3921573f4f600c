// SPDX-License-Identifier: BSD-3-Clause
//
// When is a join of two transactions refused, and until when do threads wait for their pages?
// (Cycles through other processes: peers_waits_test.cc.)
#include "tx_join_lab.h"

#include <atomic>

#include <sys/mman.h>
#include <unistd.h>

using namespace tx_join_lab;

namespace
{

// ---- refusals: both transactions are unchanged ----

TEST_P(TxJoin, RefusedJoinLeavesBothUnchanged)
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
        // Each is still a transaction by itself.
        ASSERT_EQ(ato_tx_abort(into), 0) << ato_errormsg();
        a.mine = a.model;
        if (commits)
            commit(from);
        else
            abort(from);
        expect_free();
    }
}

// Files that are only read are in no commit.
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

TEST_P(TxJoin, OpenEpochIsNotPartOfAJoin)
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

// ---- threads that wait ----

TEST_P(TxJoin, WaiterContinuesWhenTheHolderEnds)
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
            usleep(30000); // they check again
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

// Each transaction holds a page for which the other waits: a page of `from`, before or after the
// join.
TEST_P(TxJoin, CycleThroughAJoinIsFound)
{
    for (int round = 0; round < 12; round++) {
        std::atomic<bool> has{false}, held{false}, joined{false};
        std::atomic<int> deadlocks{0};
        const bool early = round % 2, sizes = round % 4 > 1;
        std::thread other([&] {
            ato_tx *t = begin();
            EXPECT_NE(ato_tx_memcpy(t, b.m->base + 9 * PAGE, "other", 5, 0), nullptr);
            has = true;
            while (!(early ? held : joined))
                usleep(100);
            bool succeeded = sizes ? ato_tx_ftruncate(t, a.m->base, 30 * PAGE) == 0
                                   : ato_tx_memcpy(t, a.m->base + PAGE, "other", 5, 0) != nullptr;
            if (!succeeded) {
                EXPECT_EQ(errno, EDEADLK) << ato_errormsg();
                deadlocks++;
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
            usleep(5000); // the other thread waits for `from`
        ASSERT_EQ(ato_tx_join(into, from), 0) << ato_errormsg();
        joined = true;
        if (!ato_tx_memcpy(into, b.m->base + 9 * PAGE, "into", 4, 0)) {
            EXPECT_EQ(errno, EDEADLK) << ato_errormsg();
            deadlocks++;
        }
        abort(into);
        other.join();
        EXPECT_EQ(deadlocks, 1) << "round " << round;
    }
    expect_free();
}

// Another thread tries again and again to adopt both: it is refused during the join, or adopts one
// of them before or after it.
TEST_P(TxJoin, JoinWorksWhileAnotherThreadAdopts)
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

} // namespace
