// SPDX-License-Identifier: BSD-3-Clause
//
// What a transaction reads is as it was at one moment, and it commits only what follows from that:
// when is it refused, and what is left of it then?
#include "tx_lab.h"

#include <atomic>

using namespace tx_lab;

namespace
{

class TxReads : public Tx
{
  protected:
    bool look(ato_tx *t, size_t page) const
    {
        char byte;
        return ato_tx_memcpy(t, &byte, m->base + page * PAGE, 1, 0);
    }
    void others(const std::function<void()> &what) const
    {
        std::thread(what).join();
    }
    void others_write(size_t page)
    {
        others([&] { ASSERT_TRUE(m->write(page * PAGE, pattern(10, ++seed))) << m->sentence; });
        model = m->read();
    }
    // It was refused. Aborts it.
    void expect_refused(ato_tx *t) const
    {
        EXPECT_TRUE(refused(!look(t, 90), EAGAIN, "refused"));
        EXPECT_TRUE(refused(!ato_tx_memcpy(t, m->base, "x", 1, 0), EAGAIN, "refused"));
        EXPECT_TRUE(refused(ato_tx_ftruncate(t, m->base, 5) < 0, EAGAIN, "refused"));
        EXPECT_TRUE(refused(ato_tx_commit(t) < 0, EAGAIN, "refused"));
        EXPECT_EQ(ato_tx_abort(t), 0);
        EXPECT_TRUE(refused(ato_tx_abort(t) < 0, EINVAL, "open"));
        EXPECT_EQ(m->read(), model);
    }

    unsigned seed = 100;
};

TEST_P(TxReads, AreOfOneMoment)
{
    for (size_t next : {7, 3}) { // another page, or the same one again
        ato_tx *t = begin();
        ASSERT_TRUE(look(t, 3));
        others([&] {
            const ato_iovec v[2] = {{m->base + 3 * PAGE, "three", 5},
                                    {m->base + 7 * PAGE, "seven", 5}};
            ASSERT_EQ(ato_writev(v, 2, 0), 0) << ato_errormsg();
        });
        model = m->read();
        EXPECT_TRUE(refused(!look(t, next), EAGAIN, "changed"));
        expect_refused(t);
    }
}

TEST_P(TxReads, AreCheckedByACommitThatWrites)
{
    ato_tx *t = begin();
    ASSERT_TRUE(look(t, 3));
    put(t, 7 * PAGE, pattern(10, 2));
    others_write(3);
    EXPECT_TRUE(refused(ato_tx_commit(t) < 0, EAGAIN, "changed"));
    expect_refused(t);
}

TEST_P(TxReads, AreNotCheckedByACommitThatWritesNothing)
{
    ato_tx *t = begin();
    ASSERT_TRUE(look(t, 3));
    others_write(3);
    EXPECT_EQ(ato_tx_commit(t), 0) << ato_errormsg();
}

TEST_P(TxReads, HoldNoPageAndIgnoreDeploys)
{
    ASSERT_TRUE(m->write(3 * PAGE, pattern(PAGE, 2)));
    ato_tx *t = begin();
    ASSERT_TRUE(look(t, 3));
    ASSERT_EQ(ato_deploy(m->base, SIZE), 0) << ato_errormsg(); // EDEADLK if a page were held
    others_write(4);
    EXPECT_TRUE(look(t, 7)) << ato_errormsg();
    mine = model;
    put(t, 3 * PAGE, pattern(10, 2));
    ASSERT_EQ(ato_tx_commit(t), 0) << ato_errormsg();
    EXPECT_EQ(m->read(), mine);
}

// Only the bytes that nobody else has changed since.
TEST_P(TxReads, OfAPageWrittenLaterAreCheckedToo)
{
    ato_tx *t = begin();
    ASSERT_TRUE(look(t, 3));
    others_write(3);
    put(t, 3 * PAGE + 100, pattern(10, 2));
    EXPECT_TRUE(refused(ato_tx_commit(t) < 0, EAGAIN, "changed"));
    expect_refused(t);
}

TEST_P(TxReads, RefusedTransactionHoldsNothing)
{
    ato_tx *t = begin();
    put(t, 5 * PAGE, pattern(10 * PAGE, 2));
    ASSERT_EQ(ato_tx_ftruncate(t, m->base, 50 * PAGE), 0) << ato_errormsg();
    ASSERT_TRUE(look(t, 3));
    others_write(3);
    EXPECT_TRUE(refused(!look(t, 4), EAGAIN, "changed"));
    ASSERT_TRUE(m->write(0, model)) << m->sentence; // EDEADLK if a page were held
    ASSERT_EQ(ato_ftruncate(m->base, SIZE), 0) << ato_errormsg();
    ASSERT_EQ(m->unmap(ATO_UNMAP_SPATIAL), 0) << m->sentence;
    EXPECT_EQ(read_file(path), model);
    EXPECT_EQ(ato_tx_abort(t), 0);
}

// What led the transaction beyond the end is no longer so.
TEST_P(TxReads, BeyondAnEndThatOthersHaveMovedAreRefused)
{
    for (bool grows_again : {false, true}) {
        ASSERT_TRUE(m->write(60 * PAGE, pattern(10, 1))) << m->sentence;
        model = m->read();
        ato_tx *t = begin();
        ASSERT_TRUE(look(t, 60));
        others([&] {
            ASSERT_EQ(ato_ftruncate(m->base, 40 * PAGE), 0) << ato_errormsg();
            if (grows_again) {
                ASSERT_EQ(ato_ftruncate(m->base, SIZE), 0) << ato_errormsg();
            }
        });
        model = m->read();
        EXPECT_TRUE(refused(!look(t, 70), EAGAIN, "changed"));
        ASSERT_EQ(ato_tx_abort(t), 0);
        ASSERT_EQ(ato_ftruncate(m->base, SIZE), 0) << ato_errormsg();
    }
}

// Each of two transactions reads both pages, and writes one of them.
TEST_P(TxReads, NoTwoTransactionsWriteWhatTheOtherOneRead)
{
    ato_tx *t = begin(), *u = nullptr;
    ASSERT_TRUE(look(t, 3) && look(t, 7));
    put(t, 3 * PAGE, pattern(10, 2));
    mine = model;
    others([&] {
        u = ato_tx_begin(0);
        EXPECT_TRUE(look(u, 3) && look(u, 7)) << ato_errormsg();
        put(u, 7 * PAGE, pattern(10, 3));
    });
    EXPECT_TRUE(refused(ato_tx_commit(t) < 0, EAGAIN, "changed"));
    others([&] { EXPECT_EQ(ato_tx_commit(u), 0) << ato_errormsg(); });
    model = mine;
    expect_refused(t);
}

// t reads page 60 and writes page 3; the other one reads page 3 and cuts page 60 off.
TEST_P(TxReads, NoTransactionCutsOffWhatAnotherOneRead)
{
    for (bool cut_first : {false, true}) {
        ato_tx *t = begin(), *u = nullptr;
        ASSERT_TRUE(look(t, 60));
        others([&] {
            u = ato_tx_begin(0);
            EXPECT_TRUE(look(u, 3)) << ato_errormsg();
            EXPECT_EQ(ato_tx_ftruncate(u, m->base, 40 * PAGE), 0) << ato_errormsg();
            if (cut_first) {
                EXPECT_EQ(ato_tx_commit(u), 0) << ato_errormsg();
            }
        });
        ASSERT_NE(ato_tx_memcpy(t, m->base + 3 * PAGE, "X", 1, 0), nullptr) << ato_errormsg();
        EXPECT_TRUE(refused(ato_tx_commit(t) < 0, EAGAIN, "changed"));
        ASSERT_EQ(ato_tx_abort(t), 0);
        if (!cut_first) {
            others([&] { EXPECT_EQ(ato_tx_abort(u), 0); });
        }
        ASSERT_EQ(ato_ftruncate(m->base, SIZE), 0) << ato_errormsg();
    }
}

// The same by two threads: at most one of two bytes becomes 1.
TEST_P(TxReads, ThreadsNeverBothWriteWhatTheOtherOneRead)
{
    std::atomic<unsigned> arrived{0}, both{0}, none{0};
    const unsigned rounds = 300;
    auto meet = [&](unsigned n) {
        for (arrived++; arrived < n;)
            std::this_thread::yield();
    };
    auto run = [&](size_t own) {
        for (unsigned i = 0; i < rounds; i++) {
            char bytes[2];
            if (own == 0 && !(ato_memset(m->base, 0, 1) && ato_memset(m->base + PAGE, 0, 1)))
                ADD_FAILURE() << ato_errormsg();
            meet(6 * i + 2);
            ato_tx *t = ato_tx_begin(0);
            const bool good =
                ato_tx_memcpy(t, &bytes[own], m->base + own * PAGE, 1, 0) &&
                ato_tx_memcpy(t, &bytes[1 - own], m->base + (1 - own) * PAGE, 1, 0) &&
                (bytes[0] || bytes[1] || ato_tx_memcpy(t, m->base + own * PAGE, "\1", 1, 0)) &&
                ato_tx_commit(t) == 0;
            if (!good) {
                EXPECT_EQ(errno, EAGAIN) << ato_errormsg();
                EXPECT_EQ(ato_tx_abort(t), 0);
            }
            meet(6 * i + 4);
            if (own == 0 && ato_memcpy(&bytes[0], m->base, 1) &&
                ato_memcpy(&bytes[1], m->base + PAGE, 1)) {
                both += bytes[0] && bytes[1];
                none += !bytes[0] && !bytes[1];
            }
            meet(6 * i + 6);
        }
    };
    std::thread other(run, 1);
    run(0);
    other.join();
    EXPECT_EQ(both, 0u);
    EXPECT_LT(none, rounds); // some committed
}

TEST_P(TxReads, CountAgainstTheLimitAndAFailedCallReadsNothing)
{
    ato_tx_options o = {};
    o.struct_size = sizeof(o);
    o.max_bytes = 5 * PAGE;
    ato_tx *t = ato_tx_begin_opt(&o);
    EXPECT_EQ(seen_by(t, 0, 3 * PAGE).size(), 3 * PAGE);
    EXPECT_TRUE(refused(seen_by(t, 10 * PAGE, 3 * PAGE).empty(), E2BIG, "max_bytes"));
    // A copy whose source may be read, and whose target is too long.
    EXPECT_TRUE(refused(!ato_tx_memcpy(t, m->base + 50 * PAGE + 5, m->base, 5 * PAGE, 0), E2BIG,
                        "max_bytes"));
    // One that reaches beyond the end tells the transaction of the size, which is no page.
    EXPECT_TRUE(
        refused(!ato_tx_memcpy(t, m->base + SIZE - 5, m->base + 9 * PAGE, 10, 0), EFAULT, "end"));
    for (size_t page : {3, 9, 10, 11})
        others_write(page);
    EXPECT_TRUE(look(t, 20)) << ato_errormsg();
    EXPECT_TRUE(look(t, 2)) << ato_errormsg();
    EXPECT_TRUE(look(t, 21)) << ato_errormsg();
    EXPECT_TRUE(refused(!look(t, 22), E2BIG, "5"));
    ASSERT_NE(ato_tx_memcpy(t, m->base + 50 * PAGE, m->base + 2 * PAGE, PAGE, 0), nullptr)
        << ato_errormsg();
    ASSERT_EQ(ato_tx_commit(t), 0) << ato_errormsg();
}

class TxReadsSize : public TxReads
{
  protected:
    // By another thread, and back again by resize().
    void others_resize(size_t size)
    {
        others([&] { EXPECT_EQ(ato_ftruncate(m->base, off_t(size)), 0) << ato_errormsg(); });
        model.resize(size, 0);
    }
    void restore()
    {
        ASSERT_EQ(ato_ftruncate(m->base, SIZE), 0) << ato_errormsg();
        ASSERT_TRUE(m->write(0, pattern(SIZE, 1))) << m->sentence;
        model = m->read();
    }
    off_t size_in(ato_tx *t) const
    {
        return ato_tx_size(t, m->base);
    }
};

TEST_P(TxReadsSize, IsCheckedByLaterReadsAndByACommitThatWrites)
{
    for (size_t to : {SIZE + 5 * PAGE, SIZE - 1, 10 * PAGE})
        for (bool reads : {false, true}) {
            SCOPED_TRACE(to);
            ato_tx *t = begin();
            ASSERT_EQ(size_in(t), off_t(SIZE)) << ato_errormsg();
            put(t, 7 * PAGE, pattern(10, 2));
            others_resize(to);
            EXPECT_TRUE(refused(reads ? !look(t, 3) : ato_tx_commit(t) < 0, EAGAIN, "changed"));
            ASSERT_EQ(ato_tx_abort(t), 0);
            EXPECT_EQ(m->read(0, to), model);
            restore();
        }
}

TEST_P(TxReadsSize, IsOfTheMomentOfWhatWasReadBefore)
{
    ato_tx *t = begin();
    ASSERT_TRUE(look(t, 3));
    others_write(3);
    EXPECT_TRUE(refused(size_in(t) < 0, EAGAIN, "changed"));
    expect_refused(t);
}

TEST_P(TxReadsSize, HoldsNothing)
{
    ato_tx *t = begin();
    ASSERT_EQ(size_in(t), off_t(SIZE)) << ato_errormsg();
    others([&] {
        ato_tx *u = ato_tx_begin(0);
        EXPECT_EQ(ato_tx_ftruncate(u, m->base, 5 * PAGE), 0) << ato_errormsg();
        EXPECT_EQ(ato_tx_abort(u), 0);
    });
    others_write(5);
    EXPECT_TRUE(look(t, 7)) << ato_errormsg();
    EXPECT_EQ(m->unmap(ATO_UNMAP_FAST), -1); // but the mapping
    EXPECT_EQ(errno, EBUSY);
    mine = model;
    put(t, 7 * PAGE, pattern(10, 2));
    EXPECT_EQ(ato_tx_commit(t), 0) << ato_errormsg();
    EXPECT_EQ(m->read(), mine);
}

// Its own change, and what it reads after that, are no reason to refuse it.
TEST_P(TxReadsSize, MayBeChangedByTheTransactionItself)
{
    for (size_t to : {SIZE + 2 * PAGE, SIZE - PAGE}) {
        ato_tx *t = begin();
        ASSERT_EQ(size_in(t), off_t(SIZE)) << ato_errormsg();
        ASSERT_TRUE(look(t, 100)) << ato_errormsg();
        ASSERT_EQ(ato_tx_ftruncate(t, m->base, off_t(to)), 0) << ato_errormsg();
        ASSERT_EQ(size_in(t), off_t(to)) << ato_errormsg();
        ASSERT_TRUE(look(t, 3)) << ato_errormsg();
        EXPECT_EQ(ato_tx_commit(t), 0) << ato_errormsg();
        EXPECT_EQ(ato_size(m->base), off_t(to));
        restore();
    }
}

// Neither when the second one asks for it, nor when it makes the file longer.
TEST_P(TxReadsSize, OfTwoThatAppendAtTheSameEndOnlyOneCommits)
{
    for (bool held : {false, true}) {
        ato_tx *t = begin(), *u = nullptr;
        ASSERT_EQ(size_in(t), off_t(SIZE)) << ato_errormsg();
        others([&] {
            u = ato_tx_begin(0);
            EXPECT_EQ(size_in(u), off_t(SIZE)) << ato_errormsg();
            EXPECT_EQ(ato_tx_ftruncate(u, m->base, SIZE + 10), 0) << ato_errormsg();
            if (!held) {
                EXPECT_EQ(ato_tx_commit(u), 0) << ato_errormsg();
            }
        });
        if (held)
            put(t, 7 * PAGE, pattern(10, 2));
        EXPECT_TRUE(refused((held ? ato_tx_commit(t) : ato_tx_ftruncate(t, m->base, SIZE + 20)) < 0,
                            EAGAIN, ""));
        ASSERT_EQ(ato_tx_abort(t), 0);
        if (held)
            others([&] { EXPECT_EQ(ato_tx_commit(u), 0); });
        EXPECT_EQ(ato_size(m->base), off_t(SIZE + 10));
        restore();
    }
}

// A call beyond the end has told the transaction that the file is short.
TEST_P(TxReadsSize, IsNotedByACallBeyondTheEnd)
{
    char byte = 1;
    for (bool reads : {false, true}) {
        ato_tx *t = begin();
        char *beyond = m->base + SIZE;
        EXPECT_TRUE(refused(!(reads ? ato_tx_memcpy(t, &byte, beyond, 1, 0)
                                    : ato_tx_memcpy(t, beyond, &byte, 1, 0)),
                            EFAULT, "end"));
        put(t, 7 * PAGE, pattern(10, 2));
        others_resize(SIZE + 10);
        EXPECT_TRUE(refused(ato_tx_commit(t) < 0, EAGAIN, "changed"));
        ASSERT_EQ(ato_tx_abort(t), 0);
        restore();
    }
}

// Its last page was read up to a byte that is cut off; the content of the page does not change by that.
TEST_P(TxReadsSize, OfBytesThatAreCutOffWithinTheirPage)
{
    for (bool own : {false, true}) {
        ato_tx *t = begin();
        ASSERT_TRUE(look(t, 100)); // its first byte stays
        EXPECT_EQ(seen_by(t, SIZE - 10, 10).size(), 10u);
        others_resize(SIZE - 5);
        EXPECT_TRUE(
            refused(own ? ato_tx_ftruncate(t, m->base, SIZE) < 0 : !look(t, 3), EAGAIN, "changed"));
        ASSERT_EQ(ato_tx_abort(t), 0);
        restore();
    }
}

// The transaction holds all that it has read when it commits.
TEST_P(TxReadsSize, OfBytesThatAreCutOffWithinAPageThatIsWrittenLater)
{
    ato_tx *t = begin();
    EXPECT_EQ(seen_by(t, SIZE - 10, 10).size(), 10u);
    others_resize(SIZE - 5);
    put(t, SIZE - 100, pattern(10, 2));
    EXPECT_TRUE(refused(ato_tx_commit(t) < 0, EAGAIN, "changed"));
    ASSERT_EQ(ato_tx_abort(t), 0);
    restore();
}

TEST_P(TxReadsSize, IsNotCheckedWithReadCommitted)
{
    ato_tx *t = begin(ATO_TX_READ_COMMITTED);
    ASSERT_EQ(size_in(t), off_t(SIZE)) << ato_errormsg();
    others_resize(SIZE + 10);
    EXPECT_EQ(size_in(t), off_t(SIZE + 10)) << ato_errormsg();
    mine = model;
    put(t, 7 * PAGE, pattern(10, 2));
    EXPECT_EQ(ato_tx_commit(t), 0) << ato_errormsg();
}

// Nothing that two processes append is lost: each byte has its own place.
TEST_P(TxReadsSize, AppendsOfTwoProcessesAreAllThere)
{
    constexpr int TIMES = 60;
    struct call {
        char *base;
        char byte;
    };
    const auto append = [](ato_tx *t, void *arg) {
        const auto *c = static_cast<const call *>(arg);
        const off_t end = ato_tx_size(t, c->base);
        return end < 0 || ato_tx_ftruncate(t, c->base, end + 1) < 0 ||
                       !ato_tx_memcpy(t, c->base + end, &c->byte, 1, 0)
                   ? -1
                   : 0;
    };
    m.reset();
    const auto act = [&](char byte) {
        return [&, byte](const std::function<void()> &wait) {
            ato_options o = options(GetParam());
            o.max_size = 2 * SIZE; // so that it grows, whatever the other process has done before
            Mapped own(path, o);
            wait();
            call c = {own.base, byte};
            int failed = 0;
            for (int i = 0; i < TIMES; i++)
                failed += ato_tx_run(append, &c, nullptr) != 0;
            return failed;
        };
    };
    Peer a(act('a')), b(act('b'));
    ASSERT_TRUE(a.is_ready() && b.is_ready());
    a.go_on();
    b.go_on();
    EXPECT_EQ(a.end(), 0);
    EXPECT_EQ(b.end(), 0);
    map();
    const Bytes all = m->read();
    EXPECT_EQ(all.size(), SIZE + 2 * TIMES);
    for (char byte : {'a', 'b'})
        EXPECT_EQ(std::count(all.begin() + SIZE, all.end(), byte), TIMES) << byte;
}

INSTANTIATE_TEST_SUITE_P(Domains, TxReadsSize,
                         testing::ValuesIn(domains({ATO_DOMAIN_PMEM, ATO_DOMAIN_DISK,
                                                    ATO_DOMAIN_PROCESS})));

// With many pages the check is left out if nobody has committed meanwhile.
TEST_P(TxReads, OfManyPagesAreChecked)
{
    for (size_t changed : {5, 37}) {
        ato_tx *t = begin();
        for (size_t page = 0; page < 60; page++) {
            ASSERT_TRUE(look(t, page)) << ato_errormsg();
            if (page % 10 == 9)
                others_write(80);
        }
        ASSERT_TRUE(look(t, 61)) << ato_errormsg();
        others_write(changed);
        EXPECT_TRUE(refused(!look(t, 62), EAGAIN, "changed"));
        expect_refused(t);
    }
}

INSTANTIATE_TEST_SUITE_P(Domains, TxReads,
                         testing::ValuesIn(domains({ATO_DOMAIN_PMEM, ATO_DOMAIN_DISK,
                                                    ATO_DOMAIN_PROCESS})));

} // namespace
