// SPDX-License-Identifier: BSD-3-Clause
//
// A file with a log whose commits are early: a commit is durable at its ato_await(), and not before, if nobody else syncs. So a test
// that has not called it looks at the time before the sync.
#ifndef ATO_TEST_UNIT_EARLY_LAB_H
#define ATO_TEST_UNIT_EARLY_LAB_H

#include "snapshot_lab.h"

#include "ato_engine.h"

#include <vector>

namespace early_lab
{

using namespace snapshot_lab;

constexpr unsigned EARLY = ATO_TX_EARLY | ATO_TX_READ_COMMITTED;

struct Piece {
    size_t at;
    Bytes bytes;
    unsigned flags = 0;
};

// What is newest, durable or not. Empty on failure.
inline Bytes newest(const Mapped &m, size_t at, size_t n)
{
    Bytes to(n);
    if (!ato_read_newest(to.data(), m.base + at, n))
        to.clear();
    return to;
}

inline Bytes newest(const Mapped &m)
{
    return newest(m, 0, static_cast<size_t>(ato_size(m.base)));
}

// Commits the pieces in one transaction. Without a promise it is relaxed. Returns whether that is done.
inline bool commit_early(const Mapped &m, const std::vector<Piece> &pieces, ato_promise *promise)
{
    ato_tx_options o = {};
    o.struct_size = sizeof(o);
    o.flags = EARLY;
    o.wait_ms = 10000;
    ato_tx *tx = ato_tx_begin_opt(&o);
    if (!tx)
        return false;
    for (const Piece &p : pieces)
        if (!ato_tx_memcpy(tx, m.base + p.at, p.bytes.data(), p.bytes.size(), p.flags)) {
            const int error = errno;
            ato_tx_abort(tx);
            errno = error;
            return false;
        }
    return ato_tx_commit_early(tx, promise) == 0;
}

inline bool commit_early(const Mapped &m, const std::vector<Piece> &pieces, ato_promise &promise)
{
    return commit_early(m, pieces, &promise);
}

// Waits until all that is visible is durable.
inline int await_all(const Mapped &m)
{
    ato_promise all;
    return ato_visible(m.base, &all) < 0 ? -1 : ato_await(m.base, &all);
}

class EarlyFile : public testing::Test
{
  protected:
    void SetUp() override
    {
        if (sparse())
            GTEST_SKIP() << "a file with a log has no second format";
        write_file(file, content);
    }
    static ato_options opt(int domain = ATO_DOMAIN_DISK)
    {
        ato_options o = options(domain);
        o.max_size = 2 * SIZE;
        return o;
    }
    static void put(Bytes &to, const std::vector<Piece> &pieces)
    {
        for (const Piece &p : pieces)
            std::copy(p.bytes.begin(), p.bytes.end(), to.begin() + static_cast<long>(p.at));
    }
    // Commits early, without a sync, and changes what is newest.
    void early(const Mapped &m, const std::vector<Piece> &pieces)
    {
        ASSERT_TRUE(commit_early(m, pieces, promise)) << ato_errormsg();
        EXPECT_NE(promise.number, 0u) << "it is durable";
        put(content, pieces);
    }
    // Maps the file in a process that has nothing mapped, and gets what is there.
    void expect_after_all(const char *when)
    {
        Mapped m(file, opt());
        ASSERT_TRUE(m) << m.sentence;
        EXPECT_TRUE(m.read() == content) << when;
    }

    TempDir dir{"/dev/shm"};
    const std::string file = dir / "file";
    Bytes content = pattern(SIZE, 1); // what is newest
    ato_promise promise = {};
};

} // namespace early_lab

#endif
