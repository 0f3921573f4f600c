// SPDX-License-Identifier: BSD-3-Clause
//
// What does a process that dies leave to those who have the file mapped with it? It is cut before each of its
// stores, flushes, fences and file operations, and wherever threads may be switched, one after the other. The other
// process goes on each time: it finds the operation whole or not at all, and all pages free.
#include "support/child.h"
#include "support/faults.h"
#include "support/mapped.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <functional>
#include <ostream>

#include <unistd.h>

using namespace support;

namespace
{

constexpr size_t SIZE = 6 * 4096 + 500, LONGER = 9 * 4096 + 100, SHORTER = 2 * 4096 + 300;

struct Pair {
    Mapped a, b;
};

// What a file holds, of whatever length: again, if what the dead one left was finished while it was read.
Bytes content(const Mapped &m)
{
    for (;;) {
        const uint64_t size = m.stat().size;
        Bytes seen(size);
        const bool read = ato_memcpy(seen.data(), m.base, size);
        if (m.stat().size == size)
            return read ? seen : Bytes();
    }
}

Bytes with(Bytes bytes, size_t at, const Bytes &part)
{
    std::copy(part.begin(), part.end(), bytes.begin() + static_cast<ptrdiff_t>(at));
    return bytes;
}

struct Operation {
    const char *name;
    bool (*act)(Pair &p); // what the process does that dies
    Bytes (*a)(Bytes old), (*b)(Bytes old);
};

void PrintTo(const Operation &operation, std::ostream *out)
{
    *out << operation.name;
}

Bytes same(Bytes old)
{
    return old;
}

const Operation operations[] = {
    {"OnePage", [](Pair &p) { return p.a.write(4100, pattern(3000, 2)); },
     [](Bytes old) { return with(old, 4100, pattern(3000, 2)); }, same},
    {"Pages", [](Pair &p) { return p.a.write(1000, pattern(12000, 3)); },
     [](Bytes old) { return with(old, 1000, pattern(12000, 3)); }, same},
    {"Eager",
     [](Pair &p) {
         return ato_memcpy_opt(p.a.base + 1000, pattern(7000, 4).data(), 7000, ATO_EAGER) !=
                nullptr;
     },
     [](Bytes old) { return with(old, 1000, pattern(7000, 4)); }, same},
    {"Deploy", [](Pair &p) { return ato_deploy(p.a.base, SIZE) == 0; }, same, same},
    {"TwoFiles",
     [](Pair &p) {
         ato_tx *tx = ato_tx_begin(0);
         return ato_tx_memcpy(tx, p.b.base + 100, pattern(5000, 5).data(), 5000, 0) &&
                ato_tx_memcpy(tx, p.a.base + 9000, pattern(5000, 6).data(), 5000, 0) &&
                ato_tx_commit(tx) == 0;
     },
     [](Bytes old) { return with(old, 9000, pattern(5000, 6)); },
     [](Bytes old) { return with(old, 100, pattern(5000, 5)); }},
    {"Growth",
     [](Pair &p) {
         ato_tx *tx = ato_tx_begin(0);
         return ato_tx_ftruncate(tx, p.a.base, LONGER) == 0 &&
                ato_tx_memcpy(tx, p.a.base + SIZE - 100, pattern(5000, 7).data(), 5000, 0) &&
                ato_tx_commit(tx) == 0;
     },
     [](Bytes old) {
         old.resize(LONGER);
         return with(old, SIZE - 100, pattern(5000, 7));
     },
     same},
    {"Shrink",
     [](Pair &p) {
         ato_tx *tx = ato_tx_begin(0);
         return ato_tx_memcpy(tx, p.a.base + 4000, pattern(3000, 8).data(), 3000, 0) &&
                ato_tx_ftruncate(tx, p.a.base, SHORTER) == 0 && ato_tx_commit(tx) == 0;
     },
     [](Bytes old) {
         old = with(old, 4000, pattern(3000, 8));
         old.resize(SHORTER);
         return old;
     },
     same},
    {"Unmap", [](Pair &p) { return p.a.unmap(ATO_UNMAP_SPATIAL) == 0; }, same, same},
};

enum Kind { STORES, FILES, POINTS };

long points, last_point;

void count_points(enum seam_point, const void *)
{
    if (points++ == last_point)
        _exit(CUT);
}

class Peers : public testing::TestWithParam<std::tuple<int, Operation>>
{
  protected:
    Peers()
    {
        write_file(a, old_a);
        write_file(b, old_b);
    }

    // Dies before the n-th of a kind, or lives: the exit status.
    int die_at(Kind kind, long n, Pair &mine)
    {
        const Operation &operation = std::get<1>(GetParam());
        return in_child([&] {
            mine.a.base = mine.b.base = nullptr;
            Pair p{Mapped(a, opt()), Mapped(b, opt())};
            if (!p.a || !p.b)
                return 1;
            PersistFaults stores;
            FsFaults files;
            if (kind == STORES)
                stores.cut_at(n);
            if (kind == FILES)
                files.cut_at(n);
            points = 0;
            last_point = n;
            seam_hook = kind == POINTS ? count_points : nullptr;
            bool good = operation.act(p);
            seam_hook = nullptr;
            return good ? 0 : 2;
        });
    }

    ato_options opt() const
    {
        ato_options o = options(std::get<0>(GetParam()), ATO_READ_GATHER, ATO_NO_RTM);
        o.max_size = 1 << 20;
        return o;
    }

    // Whole or not at all, and both files alike: who has seen the one as it became sees the other one so. (He may see
    // the first as it was, and free by looking at the second what makes both as they became.)
    void look(const Pair &p)
    {
        const Operation &operation = std::get<1>(GetParam());
        const Bytes new_a = operation.a(old_a), new_b = operation.b(old_b);
        const Bytes now_a = content(p.a), now_b = content(p.b);
        ASSERT_TRUE(now_a == old_a || now_a == new_a);
        ASSERT_TRUE(now_b == old_b || now_b == new_b);
        if (new_a != old_a && new_b != old_b) {
            ASSERT_TRUE(now_a == old_a || now_b == new_b);
            ASSERT_EQ(content(p.a) == new_a, now_b == new_b);
        }
    }

    // As it was, by the one who lives; all that he touches has to be free.
    void put_back(Pair &p)
    {
        ASSERT_EQ(ato_ftruncate(p.a.base, SIZE), 0) << ato_errormsg();
        ASSERT_TRUE(p.a.write(0, old_a)) << p.a.sentence;
        ASSERT_TRUE(p.b.write(0, old_b)) << p.b.sentence;
        ASSERT_EQ(content(p.a), old_a);
    }

    TempDir dir;
    const std::string a = dir / "a", b = dir / "b";
    const Bytes old_a = pattern(SIZE, 1), old_b = pattern(SIZE, 9);
};

TEST_P(Peers, FindWhatOneOfThemDiedWithWholeOrNotAtAll)
{
    const Operation &operation = std::get<1>(GetParam());
    const Bytes new_a = operation.a(old_a);
    Pair p{Mapped(a, opt()), Mapped(b, opt())};
    ASSERT_TRUE(p.a && p.b) << p.a.sentence << p.b.sentence;
    for (Kind kind : {STORES, FILES, POINTS}) {
        SCOPED_TRACE(kind);
        unsigned before = 0, after = 0;
        int status = CUT;
        for (long n = 0; status == CUT; n += NEXT_CUT) {
            SCOPED_TRACE(n);
            ASSERT_NO_FATAL_FAILURE(put_back(p));
            status = die_at(kind, n, p);
            ASSERT_TRUE(status == CUT || status == 0) << status;
            // Readers first: they meet what is marked. By pieces, then as a whole.
            Bytes piece(3000);
            ASSERT_NE(ato_memcpy(piece.data(), p.a.base + 4100, piece.size()), nullptr)
                << ato_errormsg();
            ASSERT_NO_FATAL_FAILURE(look(p));
            const bool shown = content(p.a) == new_a;
            // Who takes pages finds out what became of the rest. What was seen stays.
            while (ato_deploy(p.a.base, p.a.stat().size) < 0) // it may have got shorter
                ASSERT_EQ(errno, EFAULT) << ato_errormsg();
            ASSERT_EQ(ato_deploy(p.b.base, SIZE), 0) << ato_errormsg();
            ASSERT_NO_FATAL_FAILURE(look(p));
            const bool done = content(p.a) == new_a;
            ASSERT_TRUE(done || !shown || new_a == old_a);
            (done ? after : before)++;
        }
        if (new_a != old_a && kind != FILES) {
            EXPECT_GT(before, 0u);
            EXPECT_GT(after, 0u);
        }
    }
    // And so does who comes after all of them.
    put_back(p);
    EXPECT_EQ(p.a.unmap(ATO_UNMAP_SPATIAL), 0) << p.a.sentence;
    EXPECT_EQ(p.b.unmap(ATO_UNMAP_SPATIAL), 0) << p.b.sentence;
    EXPECT_EQ(read_file(a), old_a);
    EXPECT_EQ(read_file(b), old_b);
}

INSTANTIATE_TEST_SUITE_P(All, Peers,
                         testing::Combine(testing::Values(ATO_DOMAIN_PMEM, ATO_DOMAIN_MSYNC),
                                          testing::ValuesIn(operations)),
                         [](const auto &info) {
                             return std::string(std::get<0>(info.param) == ATO_DOMAIN_PMEM
                                                    ? "Pmem"
                                                    : "Msync") +
                                    std::get<1>(info.param).name;
                         });

} // namespace
