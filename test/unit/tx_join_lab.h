// SPDX-License-Identifier: BSD-3-Clause
//
// Two files and transactions that are joined: for the tests of ato_tx_join().
#ifndef ATO_TEST_UNIT_TX_JOIN_LAB_H
#define ATO_TEST_UNIT_TX_JOIN_LAB_H

#include "tx_lab.h"

namespace tx_join_lab
{

using namespace support;
using tx_lab::refused;

constexpr size_t PAGE = 4096, SIZE = 20 * PAGE + 300, MOST = 1 << 20;

// A file, its committed content, and its content in the transactions.
struct JoinedFile {
    std::string path;
    Bytes model, mine;
    std::unique_ptr<Mapped> m;
};

class TxJoin : public testing::TestWithParam<int>
{
  protected:
    TxJoin()
    {
        for (JoinedFile *f : {&a, &b}) {
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

    void map(JoinedFile &f) const
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

    static void put(ato_tx *t, JoinedFile &f, size_t at, const Bytes &bytes, unsigned flags = 0)
    {
        ASSERT_NE(ato_tx_memcpy(t, f.m->base + at, bytes.data(), bytes.size(), flags), nullptr)
            << ato_errormsg();
        std::copy(bytes.begin(), bytes.end(), f.mine.begin() + static_cast<long>(at));
    }

    static void resize(ato_tx *t, JoinedFile &f, size_t to)
    {
        ASSERT_EQ(ato_tx_ftruncate(t, f.m->base, static_cast<off_t>(to)), 0) << ato_errormsg();
        f.mine.resize(to);
    }

    // For a transaction that may touch all pages.
    static void expect_seen(ato_tx *t, const JoinedFile &f)
    {
        Bytes seen(f.mine.size());
        ASSERT_NE(ato_tx_memcpy(t, seen.data(), f.m->base, seen.size(), 0), nullptr)
            << ato_errormsg();
        EXPECT_EQ(seen, f.mine);
    }

    void expect_others()
    {
        std::thread([&] {
            for (JoinedFile *f : {&a, &b}) {
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

    // Another thread writes to every page, changes the sizes, and unmaps: no transaction holds a
    // page, a size or a mapping.
    void expect_free()
    {
        std::thread([&] {
            for (JoinedFile *f : {&a, &b}) {
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
    JoinedFile a, b;
};

} // namespace tx_join_lab

#endif
