// SPDX-License-Identifier: BSD-3-Clause
//
// To which thread does a transaction belong, which limits does it have, and how does it end? Calls
// at the wrong time are refused.
#include "tx_lab.h"

using namespace tx_lab;

namespace
{

// ---- limits ----

TEST_P(Tx, LimitCountsWholePagesAndIsCheckedBeforeAnyChange)
{
    ato_tx_options o = {};
    o.struct_size = sizeof(o);
    o.max_bytes = 40 * PAGE - 1; // whole pages count
    ato_tx *t = ato_tx_begin_opt(&o);
    ASSERT_NE(t, nullptr);
    mine = model;
    put(t, 100, pattern(39 * PAGE, 2)); // 40 pages
    Bytes some = pattern(10, 3);
    EXPECT_TRUE(
        refused(!ato_tx_memcpy(t, m->base + 50 * PAGE, some.data(), 10, 0), E2BIG, "max_bytes"));
    EXPECT_TRUE(
        refused(!ato_tx_memcpy(t, m->base + 39 * PAGE, model.data(), PAGE + 1, 0), E2BIG, "40"));
    put(t, 200, pattern(50, 4)); // pages that it has
    EXPECT_EQ(seen_by(t, 0, 40 * PAGE), Bytes(mine.begin(), mine.begin() + 40 * PAGE));
    ASSERT_EQ(ato_tx_commit(t), 0);
    EXPECT_EQ(m->read(), mine);

    // The next transaction of the thread has the default limit.
    t = begin();
    put(t, 0, pattern(SIZE, 5));
    ASSERT_EQ(ato_tx_commit(t), 0) << ato_errormsg();
    EXPECT_EQ(m->read(), mine);
}

TEST_P(Tx, OptionsAreChecked)
{
    ato_tx_options o = {};
    EXPECT_TRUE(refused(!ato_tx_begin_opt(&o), EINVAL, "struct_size"));
    o.struct_size = sizeof(o);
    o.flags = 2;
    EXPECT_TRUE(refused(!ato_tx_begin_opt(&o), EINVAL, "0x2"));
    o.flags = ATO_TX_READ_COMMITTED;
    o.max_bytes = (1ull << 40) + 1;
    EXPECT_TRUE(refused(!ato_tx_begin_opt(&o), EINVAL, "1 TiB"));
    o.max_bytes = 0;
    o.wait_ms = 1ull << 32;
    EXPECT_TRUE(refused(!ato_tx_begin_opt(&o), EINVAL, "wait_ms"));
    EXPECT_TRUE(refused(!ato_tx_begin(8), EINVAL, "0x8"));
    ato_tx *t = ato_tx_begin_opt(nullptr);
    EXPECT_EQ(ato_tx_abort(t), 0);
}

// ---- the thread and the end of a transaction -------

TEST_P(Tx, HandleOfAnEndedTransactionIsEinval)
{
    ato_tx *t = begin(), *u;
    put(t, 0, pattern(10, 2));
    ASSERT_EQ(ato_tx_commit(t), 0);
    EXPECT_TRUE(refused(ato_tx_commit(t) < 0, EINVAL, "open"));
    EXPECT_TRUE(refused(ato_tx_abort(t) < 0, EINVAL, "open"));
    EXPECT_TRUE(refused(!ato_tx_memcpy(t, m->base, "x", 1, 0), EINVAL, "open"));
    // Also if its place is used again.
    u = begin();
    EXPECT_NE(t, u);
    put(u, 0, pattern(10, 3));
    EXPECT_TRUE(refused(ato_tx_abort(t) < 0, EINVAL, "open"));
    ASSERT_EQ(ato_tx_commit(u), 0);
    EXPECT_EQ(m->read(0, 10), pattern(10, 3));
    // And an address that never was a handle.
    EXPECT_TRUE(refused(ato_tx_commit(nullptr) < 0, EINVAL, "open"));
    EXPECT_TRUE(refused(ato_tx_commit(reinterpret_cast<ato_tx *>(&u)) < 0, EINVAL, "open"));
    EXPECT_TRUE(refused(ato_tx_commit(reinterpret_cast<ato_tx *>(-1)) < 0, EINVAL, "open"));
}

TEST_P(Tx, AnyThreadGoesOnWithIt)
{
    ato_tx *t = begin();
    put(t, PAGE, pattern(5 * PAGE, 2));
    std::thread([&] {
        put(t, 2 * PAGE, pattern(PAGE, 3));
        EXPECT_EQ(seen_by(t), mine);
        EXPECT_TRUE(refused(!ato_memcpy(m->base + PAGE, "x", 1), EDEADLK, "of this thread"));
    }).join();
    put(t, 8 * PAGE, pattern(PAGE, 4)); // that thread has ended
    EXPECT_TRUE(refused(!ato_memcpy(m->base + PAGE, "x", 1), EDEADLK, "of this thread"));
    ASSERT_EQ(ato_tx_commit(t), 0) << ato_errormsg();
    EXPECT_EQ(m->read(), mine);
}

TEST_P(Tx, ThreadCanHaveManyOpen)
{
    std::vector<ato_tx *> all;
    for (unsigned i = 0; i < 90; i++) {
        all.push_back(begin());
        put(all.back(), i * PAGE, pattern(100, i));
    }
    for (unsigned i = 0; i < 90; i++) {
        ASSERT_EQ(i % 2 ? ato_tx_commit(all[i]) : ato_tx_abort(all[i]), 0);
        Bytes bytes = pattern(100, i);
        if (i % 2)
            std::copy(bytes.begin(), bytes.end(), model.begin() + i * PAGE);
    }
    EXPECT_EQ(m->read(), model);
}

TEST_P(Tx, UnmapWithAnOpenTransactionIsEbusy)
{
    ato_tx *t = begin();
    Bytes some(10);
    ASSERT_EQ(ato_tx_memcpy(t, &some, &t, 10, 0), nullptr); // a call that fails
    ASSERT_EQ(m->unmap(ATO_UNMAP_FAST), 0) << m->sentence;
    map();
    ASSERT_NE(ato_tx_memcpy(t, some.data(), m->base, 10, 0), nullptr);
    EXPECT_EQ(m->unmap(ATO_UNMAP_FAST), -1);
    EXPECT_EQ(m->error, EBUSY);
    EXPECT_EQ(m->unmap(ATO_UNMAP_SPATIAL), -1);
    EXPECT_EQ(m->error, EBUSY);
    Mapped other(path, options(GetParam()));
    ASSERT_TRUE(other);
    EXPECT_EQ(other.unmap(ATO_UNMAP_SPATIAL), 0); // another mapping of the file may be unmapped
    put(t, 0, pattern(100, 2));
    ASSERT_EQ(ato_tx_commit(t), 0);
    EXPECT_EQ(m->unmap(ATO_UNMAP_SPATIAL), 0) << m->sentence;
    EXPECT_EQ(read_file(path), mine);
}

TEST_P(Tx, FailedCallKeepsNoMapping)
{
    ato_tx_options o = {};
    o.struct_size = sizeof(o);
    o.max_bytes = 2 * PAGE;
    ato_tx *t = ato_tx_begin_opt(&o);
    EXPECT_TRUE(refused(!ato_tx_memcpy(t, m->base, m->base, 3 * PAGE, 0), E2BIG, "max_bytes"));
    EXPECT_EQ(m->unmap(ATO_UNMAP_FAST), 0) << m->sentence;
    EXPECT_EQ(ato_tx_commit(t), 0);
}

TEST_P(Tx, ExitWithAnOpenTransactionIsAnAbort)
{
    m.reset();
    int status = in_exiting_child([&] {
        // Mapped until the process ends.
        auto *own = new Mapped(path, options(GetParam()));
        ato_tx *t = ato_tx_begin(0);
        Bytes bytes = pattern(50 * PAGE, 2);
        return *own && t && ato_tx_memcpy(t, own->base, bytes.data(), bytes.size(), 0) ? 0 : 1;
    });
    EXPECT_EQ(status, 0);
    map();
    EXPECT_EQ(m->read(), model);
    EXPECT_EQ(m->unmap(ATO_UNMAP_SPATIAL), 0);
    EXPECT_EQ(read_file(path), model);
}

TEST_P(Tx, ForkedChildHasNoTransaction)
{
    ato_tx *t = begin();
    put(t, 0, pattern(50 * PAGE, 2));
    int status = in_child([&] {
        if (ato_tx_commit(t) == 0 || errno != EINVAL)
            return 1;
        ato_tx *own = ato_tx_begin(0);
        return !own || own == t || ato_tx_abort(own) < 0 ? 2 : 0;
    });
    EXPECT_EQ(status, 0);
    EXPECT_EQ(seen_by(t), mine);
    ASSERT_EQ(ato_tx_commit(t), 0);
    EXPECT_EQ(m->read(), mine);
}

TEST_P(Tx, EagerTransactionDeploysItsWrites)
{
    map(ATO_READ_EAGER);
    ato_tx *t = begin();
    put(t, 100, pattern(5 * PAGE, 2));
    ASSERT_EQ(ato_tx_commit(t), 0);
    EXPECT_EQ(m->stat().slices_in_reflection, 0u);
    map();
    t = begin();
    put(t, 100, pattern(5 * PAGE, 3), ATO_EAGER);
    ASSERT_EQ(ato_tx_commit(t), 0);
    EXPECT_EQ(m->stat().slices_in_reflection, 0u);
    EXPECT_EQ(m->read(), mine);
}

// The thread itself holds the page: a wait for it would never end.
TEST_P(Tx, PlainCallsOfItsThreadOnItsPagesAreRefused)
{
    ato_tx *t = begin();
    put(t, 3 * PAGE, pattern(10, 2));
    EXPECT_TRUE(refused(!ato_memcpy(m->base + 3 * PAGE, "x", 1), EDEADLK, "of this thread"));
    EXPECT_TRUE(refused(!ato_memset(m->base + PAGE, 1, 5 * PAGE), EDEADLK, "of this thread"));
    EXPECT_TRUE(refused(!ato_memcpy(m->base + 50 * PAGE, m->base + 3 * PAGE, 10), EDEADLK,
                        "of this thread"));
    if (GetParam() ==
        ATO_DOMAIN_DISK) { // it brings a log home, which has nothing of an open transaction
        EXPECT_EQ(ato_deploy(m->base, 4 * PAGE), 0) << ato_errormsg();
    } else {
        EXPECT_TRUE(refused(ato_deploy(m->base, 4 * PAGE) < 0, EDEADLK, "of this thread"));
    }
    ato_iovec v[2] = {{m->base + 9 * PAGE, "a", 1}, {m->base + 3 * PAGE, "b", 1}};
    EXPECT_TRUE(refused(ato_writev(v, 2, 0) < 0, EDEADLK, "of this thread"));
    ato_tx *u = ato_tx_begin(0);
    EXPECT_TRUE(
        refused(!ato_tx_memcpy(u, m->base + 3 * PAGE, "x", 1, 0), EDEADLK, "of this thread"));
    EXPECT_EQ(ato_tx_commit(u), 0);
    EXPECT_EQ(m->read(), model);
    ASSERT_EQ(ato_tx_commit(t), 0);
    EXPECT_EQ(m->read(), mine);
}

} // namespace
