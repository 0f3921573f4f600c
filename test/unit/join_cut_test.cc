// SPDX-License-Identifier: BSD-3-Clause
//
// A process dies with two transactions that it has joined, or is joining: is what both did in all files or in none,
// and is all of it free for those who live on?
#include "support/child.h"
#include "support/faults.h"
#include "support/mapped.h"

#include <gtest/gtest.h>

#include <memory>

#include <unistd.h>

using namespace support;

namespace
{

constexpr size_t PAGE = 4096, SIZE = 8 * PAGE + 200;

class JoinCut : public testing::TestWithParam<int>
{
  protected:
    ato_options wish() const
    {
        return options(GetParam(), ATO_READ_GATHER, ATO_NO_RTM);
    }

    // In the child: from the first store of the transactions on it may be cut.
    template <class Faults> int live(long k)
    {
        Mapped a(first, wish()), b(second, wish());
        if (!a || !b)
            return 1;
        Faults faults;
        faults.cut_at(k);
        ato_tx *into = ato_tx_begin(0), *from = ato_tx_begin(0);
        if (!act(into, from, a, b))
            return 2;
        if (ato_tx_join(into, from) < 0)
            return 3;
        if (ato_tx_commit(into) < 0)
            return 4;
        return 0;
    }

    // One writes and shrinks the first file; the other one writes and grows the second, and writes the first.
    static bool act(ato_tx *into, ato_tx *from, const Mapped &a, const Mapped &b)
    {
        const Bytes bytes = pattern(2 * PAGE, 7);
        return ato_tx_memcpy(into, a.base + 50, bytes.data(), 90, 0) &&
               ato_tx_memcpy(from, b.base + PAGE + 9, bytes.data(), bytes.size(), 0) &&
               ato_tx_ftruncate(into, a.base, 5 * PAGE + 70) == 0 &&
               ato_tx_ftruncate(from, b.base, 11 * PAGE) == 0 &&
               ato_tx_memcpy(from, b.base + 10 * PAGE, bytes.data(), 100, 0) &&
               ato_tx_memcpy(from, a.base + 2 * PAGE, bytes.data(), 70, 0);
    }

    // All or none of it. True: all.
    bool expect_one_of_both(Mapped &a, Mapped &b) const
    {
        Bytes a_old = pattern(SIZE, 1), b_old = pattern(SIZE, 2), a_new = a_old, b_new = b_old;
        const Bytes bytes = pattern(2 * PAGE, 7);
        std::copy_n(bytes.begin(), 90, a_new.begin() + 50);
        std::copy_n(bytes.begin(), 70, a_new.begin() + 2 * PAGE);
        a_new.resize(5 * PAGE + 70);
        std::copy(bytes.begin(), bytes.end(), b_new.begin() + PAGE + 9);
        b_new.resize(11 * PAGE);
        std::copy_n(bytes.begin(), 100, b_new.begin() + 10 * PAGE);
        const bool all = ato_size(a.base) == static_cast<off_t>(a_new.size());
        const Bytes &is_a = all ? a_new : a_old, &is_b = all ? b_new : b_old;
        EXPECT_EQ(ato_size(a.base), static_cast<off_t>(is_a.size()));
        EXPECT_EQ(ato_size(b.base), static_cast<off_t>(is_b.size()));
        EXPECT_EQ(a.read(0, is_a.size()), is_a);
        EXPECT_EQ(b.read(0, is_b.size()), is_b);
        return all;
    }

    template <class Faults> void cut_everywhere()
    {
        bool committed = false;
        for (long k = 0;; k += NEXT_CUT) {
            SCOPED_TRACE("cut before call " + std::to_string(k));
            ASSERT_LT(k, 1000);
            write_file(first, pattern(SIZE, 1));
            write_file(second, pattern(SIZE, 2));
            const int status = in_child([&] { return live<Faults>(k); });
            ASSERT_TRUE(status == 0 || status == CUT) << status;
            {
                // Whichever of them comes first.
                auto x = std::make_unique<Mapped>(k % 2 ? first : second, wish());
                Mapped y(k % 2 ? second : first, wish());
                ASSERT_TRUE(*x && y) << x->sentence << y.sentence;
                Mapped &a = k % 2 ? *x : y, &b = k % 2 ? y : *x;
                const bool all = expect_one_of_both(a, b);
                EXPECT_TRUE(all || status == CUT);
                EXPECT_TRUE(all || !committed) << "it was committed at an earlier place already";
                committed = all;
                ASSERT_EQ(a.unmap(ATO_UNMAP_SPATIAL), 0) << a.sentence;
                ASSERT_EQ(b.unmap(ATO_UNMAP_SPATIAL), 0) << b.sentence;
            }
            ASSERT_EQ(names_in(folder_of(first)), std::vector<std::string>());
            if (HasFailure() || status == 0)
                return;
        }
    }

    TempDir dir;
    const std::string first = dir / "first", second = dir / "second";
};

TEST_P(JoinCut, AnyStoreOrFlushMayBeTheLast)
{
    cut_everywhere<PersistFaults>();
}

TEST_P(JoinCut, AnyCallOfTheFileSystemMayBeTheLast)
{
    cut_everywhere<FsFaults>();
}

// Killed before the commit, or in it: what was drained, too, is freed.
TEST_P(JoinCut, FreesAllOfItForThoseWhoLiveOn)
{
    for (bool commits : {false, true}) {
        write_file(first, pattern(SIZE, 1));
        write_file(second, pattern(SIZE, 2));
        Peer dies([&](const auto &wait) {
            Mapped a(first, wish()), b(second, wish());
            ato_tx *into = ato_tx_begin(0), *from = ato_tx_begin(0);
            if (!a || !b || !act(into, from, a, b) || ato_tx_join(into, from) < 0)
                return 1;
            wait();
            PersistFaults faults;
            faults.die_at_flip(2);
            return ato_tx_commit(into);
        });
        ASSERT_TRUE(dies.is_ready());
        Mapped a(first, wish()), b(second, wish());
        ASSERT_TRUE(a && b) << a.sentence << b.sentence;
        EXPECT_FALSE(expect_one_of_both(a, b));
        if (commits)
            EXPECT_EQ(dies.end(), CUT);
        else
            dies.die();
        for (Mapped *m : {&a, &b})
            for (size_t at = 0; at < 5 * PAGE; at += PAGE)
                ASSERT_NE(ato_memcpy(m->base + at, m->base + at, 1), nullptr) << ato_errormsg();
        EXPECT_EQ(expect_one_of_both(a, b), commits);
        for (Mapped *m : {&a, &b}) {
            ASSERT_EQ(ato_ftruncate(m->base, 20 * PAGE), 0) << ato_errormsg();
            ASSERT_NE(ato_memset(m->base, 3, 20 * PAGE), nullptr) << ato_errormsg();
            ASSERT_EQ(m->unmap(ATO_UNMAP_SPATIAL), 0) << m->sentence;
        }
        EXPECT_EQ(read_file(first), Bytes(20 * PAGE, 3));
        EXPECT_EQ(read_file(second), Bytes(20 * PAGE, 3));
    }
}

std::string name_of(const testing::TestParamInfo<int> &info)
{
    static const char *const names[] = {"auto", "pmem", "eadr", "msync", "process"};
    return names[info.param];
}

INSTANTIATE_TEST_SUITE_P(Domains, JoinCut,
                         testing::Values(ATO_DOMAIN_PMEM, ATO_DOMAIN_MSYNC, ATO_DOMAIN_PROCESS),
                         name_of);

} // namespace
