// SPDX-License-Identifier: BSD-3-Clause
//
// Does a transaction of 1 GiB work with the defaults, and a larger one with max_bytes? Is it all or
// nothing, and is a call beyond the limit refused before any change?
#include "support/child.h"
#include "support/mapped.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>

#include <sys/statvfs.h>
#include <unistd.h>

using namespace support;

namespace
{

constexpr uint64_t GIB = 1ull << 30, STEP = 32ull << 20;

class LargeTx : public testing::Test
{
  protected:
    void SetUp() override
    {
        struct statvfs fs;
        ASSERT_EQ(statvfs(dir.path().c_str(), &fs), 0);
        if (fs.f_bavail * fs.f_bsize < 5 * GIB)
            GTEST_SKIP() << "less than 5 GiB are free in " << dir.path();
        write_file(path, {});
        ASSERT_EQ(truncate(path.c_str(), 3 * GIB), 0);
    }

    // Bytes of 32 MiB from `at` on, in the turn `turn`.
    static Bytes bytes_of(uint64_t at, int turn)
    {
        Bytes b = pattern(1 << 20, static_cast<int>(at / STEP) * 7 + turn);
        b.reserve(STEP);
        while (b.size() < STEP)
            b.insert(b.end(), b.begin(), b.begin() + (1 << 20));
        return b;
    }

    static bool put(ato_tx *t, const Mapped &m, uint64_t n, int turn)
    {
        for (uint64_t at = 0; at < n; at += STEP)
            if (!ato_tx_memcpy(t, m.base + at, bytes_of(at, turn).data(), STEP, 0))
                return false;
        return true;
    }

    // The first `n` bytes are of that turn; 0: zeros.
    static void expect_all(Mapped &m, uint64_t n, int turn)
    {
        for (uint64_t at = 0; at < n; at += STEP)
            ASSERT_TRUE(m.read(at, STEP) == (turn ? bytes_of(at, turn) : Bytes(STEP))) << at;
    }

    TempDir dir{"/dev/shm"};
    const std::string path = dir / "file";
};

TEST_F(LargeTx, OneGibibyteIsAllOrNothingWithTheDefaults)
{
    {
        Mapped m(path, options(ATO_DOMAIN_PMEM, ATO_READ_GATHER));
        ASSERT_TRUE(m) << m.sentence;
        ato_tx *t = ato_tx_begin(0);
        ASSERT_TRUE(put(t, m, GIB, 1)) << ato_errormsg();
        expect_all(m, GIB, 0);
        ASSERT_EQ(ato_tx_abort(t), 0);
        expect_all(m, GIB, 0);
    }
    int status = in_child([&]() -> int { // and ends without an abort
        auto *m = new Mapped(path, options(ATO_DOMAIN_PMEM, ATO_READ_GATHER));
        ato_tx *t = ato_tx_begin(0);
        bool good = put(t, *m, GIB, 2) && ato_tx_commit(t) == 0;
        t = ato_tx_begin(0);
        good = good && put(t, *m, GIB, 3);
        _exit(good ? 0 : 1);
    });
    ASSERT_EQ(status, 0);
    Mapped m(path, options(ATO_DOMAIN_PMEM, ATO_READ_GATHER));
    ASSERT_TRUE(m) << m.sentence;
    expect_all(m, GIB, 2);
}

TEST_F(LargeTx, MoreThanOneGibibyteNeedsMaxBytes)
{
    constexpr uint64_t MORE = GIB + 8 * STEP;
    Mapped m(path, options(ATO_DOMAIN_PMEM, ATO_READ_GATHER));
    ASSERT_TRUE(m) << m.sentence;
    ato_tx *t = ato_tx_begin(0);
    ASSERT_TRUE(put(t, m, GIB, 1)) << ato_errormsg();
    const Bytes more = bytes_of(GIB, 1);
    EXPECT_FALSE(ato_tx_memcpy(t, m.base + GIB, more.data(), STEP, 0) &&
                 ato_tx_memcpy(t, m.base + GIB + STEP, more.data(), STEP, 0));
    EXPECT_EQ(errno, E2BIG);
    EXPECT_NE(std::string(ato_errormsg()).find("max_bytes"), std::string::npos);
    ASSERT_EQ(ato_tx_commit(t), 0) << ato_errormsg(); // that call has changed nothing
    expect_all(m, GIB, 1);

    ato_tx_options o = {};
    o.struct_size = sizeof(o);
    o.max_bytes = 2 * GIB;
    t = ato_tx_begin_opt(&o);
    ASSERT_NE(t, nullptr);
    ASSERT_TRUE(put(t, m, MORE, 2)) << ato_errormsg();
    ASSERT_EQ(ato_tx_commit(t), 0) << ato_errormsg(); // in a longer lane
    expect_all(m, MORE, 2);
}

} // namespace
