// SPDX-License-Identifier: BSD-3-Clause
//
// A commit is of one file: the first write to a second file is refused, with a sentence that tells what
// to do, and the transaction goes on. The second file may be read.
#include "support/mapped.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <thread>

#include <sys/mman.h>
#include <sys/stat.h>

using namespace support;

namespace
{

constexpr size_t PAGE = 4096, SIZE = 20 * PAGE + 300, MOST = 1 << 20;

struct OneFile {
    std::string path;
    Bytes model; // its committed content
    std::unique_ptr<Mapped> m;

    char *at(size_t offset) const
    {
        return m->base + offset;
    }
    void put(size_t offset, const Bytes &bytes)
    {
        std::copy(bytes.begin(), bytes.end(), model.begin() + static_cast<long>(offset));
    }
};

class TxOneFile : public testing::TestWithParam<int>
{
  protected:
    TxOneFile()
    {
        for (OneFile *f : {&a, &b}) {
            f->path = dir / (f == &a ? "a" : "b");
            f->model = pattern(SIZE, f == &a ? 1 : 2);
            write_file(f->path, f->model);
            map(*f);
        }
    }

    void map(OneFile &f, unsigned flags = 0) const
    {
        ato_options o = options(GetParam(), ATO_READ_GATHER, flags);
        o.max_size = flags ? 0 : MOST;
        f.m.reset();
        f.m = std::make_unique<Mapped>(f.path, o, SIZE);
        ASSERT_TRUE(*f.m) << f.m->sentence;
    }

    // True if the last call failed with EXDEV and a sentence about both files.
    testing::AssertionResult refused(bool failed) const
    {
        const int seen = errno;
        const std::string sentence = ato_errormsg();
        if (!failed || seen != EXDEV)
            return testing::AssertionFailure() << (failed ? sentence : "no failure");
        for (const std::string &words :
             {a.path, b.path, std::string("a commit is of one file"),
              std::string("keep in one file what has to change together")})
            if (sentence.find(words) == std::string::npos)
                return testing::AssertionFailure() << words << " is not in: " << sentence;
        return testing::AssertionSuccess();
    }

    static ato_tx *begin()
    {
        ato_tx *t = ato_tx_begin(0);
        EXPECT_NE(t, nullptr) << ato_errormsg();
        return t;
    }

    static bool write(ato_tx *t, const OneFile &f, size_t offset, const Bytes &bytes)
    {
        return ato_tx_memcpy(t, f.at(offset), bytes.data(), bytes.size(), 0) != nullptr;
    }

    // What another thread sees.
    void expect_models() const
    {
        std::thread([&] {
            for (const OneFile *f : {&a, &b}) {
                EXPECT_EQ(ato_size(f->m->base), static_cast<off_t>(f->model.size()));
                EXPECT_EQ(f->m->read(0, f->model.size()), f->model);
            }
        }).join();
    }

    // Another thread writes to every page, and unmaps: no transaction holds a page or the mapping.
    void expect_free(OneFile &f)
    {
        std::thread([&] {
            f.model = pattern(f.model.size(), 77);
            EXPECT_TRUE(f.m->write(0, f.model)) << f.m->sentence;
            EXPECT_EQ(f.m->unmap(ATO_UNMAP_SPATIAL), 0) << f.m->sentence;
            EXPECT_EQ(read_file(f.path), f.model);
        }).join();
        map(f);
    }

    TempDir dir;
    OneFile a, b;
};

TEST_P(TxOneFile, TransactionRefusesTheFirstWriteToTheSecondFileAndGoesOn)
{
    const Bytes some = pattern(3 * PAGE, 3), more = pattern(2 * PAGE, 4);
    ato_tx *t = begin();
    ASSERT_TRUE(write(t, a, 10, some)) << ato_errormsg();
    for (int turn = 0; turn < 2; turn++) {
        ASSERT_TRUE(refused(!write(t, b, 10, some)));
        ASSERT_TRUE(refused(ato_tx_ftruncate(t, b.m->base, 5 * PAGE) < 0));
    }
    expect_models();
    expect_free(b); // while the transaction is open
    ASSERT_TRUE(write(t, a, 7 * PAGE, more)) << ato_errormsg();
    ASSERT_EQ(ato_tx_ftruncate(t, a.m->base, SIZE + 3 * PAGE), 0) << ato_errormsg();
    ASSERT_EQ(ato_tx_commit(t), 0) << ato_errormsg();
    a.put(10, some);
    a.put(7 * PAGE, more);
    a.model.resize(SIZE + 3 * PAGE);
    expect_models();
}

TEST_P(TxOneFile, TransactionThatChangedASizeRefusesAWriteToTheSecondFile)
{
    ato_tx *t = begin();
    ASSERT_EQ(ato_tx_ftruncate(t, a.m->base, 9 * PAGE), 0) << ato_errormsg();
    ASSERT_TRUE(refused(!write(t, b, 10, {1, 2, 3})));
    ASSERT_TRUE(refused(ato_tx_ftruncate(t, b.m->base, 5 * PAGE) < 0));
    ASSERT_EQ(ato_tx_commit(t), 0) << ato_errormsg();
    a.model.resize(9 * PAGE);
    expect_models();
}

TEST_P(TxOneFile, AbortAfterARefusedWriteChangesNeitherFile)
{
    ato_tx *t = begin();
    ASSERT_TRUE(write(t, a, 10, pattern(3 * PAGE, 3))) << ato_errormsg();
    EXPECT_TRUE(refused(!write(t, b, 10, pattern(PAGE, 3))));
    ASSERT_EQ(ato_tx_abort(t), 0) << ato_errormsg();
    expect_models();
    expect_free(a);
    expect_free(b);
}

TEST_P(TxOneFile, TransactionReadsTheSecondFileAndRefusesToWriteToIt)
{
    const Bytes some = pattern(3 * PAGE, 3),
                of_b(b.model.begin() + 50, b.model.begin() + 50 + PAGE);
    for (bool read_first : {false, true}) {
        Bytes seen(PAGE);
        ato_tx *t = begin();
        if (read_first) {
            ASSERT_NE(ato_tx_memcpy(t, seen.data(), b.at(50), PAGE, 0), nullptr) << ato_errormsg();
        }
        ASSERT_TRUE(write(t, a, 10, some)) << ato_errormsg();
        ASSERT_NE(ato_tx_memcpy(t, a.at(9 * PAGE), b.at(50), PAGE, 0), nullptr) << ato_errormsg();
        EXPECT_TRUE(refused(!write(t, b, 50, some)));
        EXPECT_TRUE(refused(!ato_tx_memcpy(t, b.at(50), a.at(10), PAGE, 0)));
        ASSERT_NE(ato_tx_memcpy(t, seen.data(), b.at(50), PAGE, 0), nullptr) << ato_errormsg();
        EXPECT_EQ(seen, of_b);
        ASSERT_EQ(ato_tx_commit(t), 0) << ato_errormsg();
        a.put(10, some);
        a.put(9 * PAGE, of_b);
        expect_models();
    }
}

// Only the end of the transaction makes another file possible.
TEST_P(TxOneFile, NextTransactionMayWriteToTheSecondFile)
{
    const Bytes some = pattern(3 * PAGE, 3);
    for (OneFile *f : {&a, &b, &a}) {
        ato_tx *t = begin();
        ASSERT_TRUE(write(t, *f, 10, some)) << ato_errormsg();
        EXPECT_TRUE(refused(!write(t, f == &a ? b : a, 10, some)));
        ASSERT_EQ(ato_tx_commit(t), 0) << ato_errormsg();
        f->put(10, some);
        expect_models();
    }
}

TEST_P(TxOneFile, WritevIsRefusedAndWritesToNeither)
{
    const Bytes some = pattern(3 * PAGE, 3), few = pattern(5, 4);
    const ato_iovec v[] = {{a.at(10), some.data(), some.size()},
                           {a.at(8 * PAGE), few.data(), few.size()},
                           {b.at(17), few.data(), few.size()}};
    EXPECT_TRUE(refused(ato_writev(v, 3, 0) < 0));
    EXPECT_TRUE(refused(ato_writev(v + 1, 2, ATO_SKIP_EQUAL) < 0)); // a few bytes of each
    expect_models();
    ASSERT_EQ(ato_writev(v, 2, 0), 0) << ato_errormsg();
    a.put(10, some);
    a.put(8 * PAGE, few);
    expect_models();
    expect_free(a);
    expect_free(b);
}

// That is told before the call waits for a page, which it may do in vain.
TEST_P(TxOneFile, WritevIsRefusedAlsoWhereAPageIsHeld)
{
    const ato_iovec v[] = {{a.at(10), "x", 1}, {b.at(10), "x", 1}};
    ato_tx *t = begin();
    ASSERT_TRUE(write(t, b, 10, {1})) << ato_errormsg();
    EXPECT_TRUE(refused(ato_writev(v, 2, 0) < 0));
    ASSERT_EQ(ato_tx_abort(t), 0) << ato_errormsg();
    expect_models();
}

// A source is not written to.
TEST_P(TxOneFile, CallsThatCopyFromOneFileToTheOtherAreNotRefused)
{
    const Bytes of_b(b.model.begin() + 100, b.model.begin() + 100 + 3 * PAGE);
    ASSERT_NE(ato_memcpy(a.at(5), b.at(100), of_b.size()), nullptr) << ato_errormsg();
    a.put(5, of_b);
    const ato_iovec v[] = {{a.at(6 * PAGE), b.at(100), of_b.size()},
                           {a.at(12 * PAGE), of_b.data(), of_b.size()}};
    ASSERT_EQ(ato_writev(v, 2, 0), 0) << ato_errormsg();
    a.put(6 * PAGE, of_b);
    a.put(12 * PAGE, of_b);
    expect_models();
}

// An epoch is of one mapping.
TEST_P(TxOneFile, EpochsOfBothFilesAreOpenAtTheSameTime)
{
    const Bytes some = pattern(3 * PAGE, 3);
    for (OneFile *f : {&a, &b})
        map(*f, ATO_EPOCHS);
    ASSERT_TRUE(a.m->write(10, some) && b.m->write(10, some)) << ato_errormsg();
    ASSERT_NE(ato_memcpy(a.at(9 * PAGE), b.at(10), PAGE), nullptr) << ato_errormsg();
    for (OneFile *f : {&a, &b}) {
        ASSERT_EQ(ato_msync(f->m->base, SIZE, MS_SYNC), 0) << ato_errormsg();
        f->put(10, some);
    }
    a.put(9 * PAGE, Bytes(some.begin(), some.begin() + PAGE));
    expect_models();
}

INSTANTIATE_TEST_SUITE_P(Domains, TxOneFile,
                         testing::ValuesIn(domains({ATO_DOMAIN_PMEM, ATO_DOMAIN_DISK,
                                                    ATO_DOMAIN_PROCESS})));

} // namespace
