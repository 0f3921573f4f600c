// SPDX-License-Identifier: BSD-3-Clause
//
// Which writes of an open epoch are visible, through which mappings, and when does it end?
#include "support/child.h"
#include "support/mapped.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <memory>
#include <thread>

#include <sys/mman.h>
#include <unistd.h>

using namespace support;

namespace
{

constexpr size_t PAGE = 4096, SIZE = 100 * PAGE + 300;

class Epoch : public testing::TestWithParam<int>
{
  protected:
    Epoch() : path(dir / "file"), model(pattern(SIZE, 1)), mine(model)
    {
        write_file(path, model);
        map();
    }

    void map(int policy = ATO_READ_LAZY)
    {
        e.reset();
        m.reset();
        e = std::make_unique<Mapped>(path, options(GetParam(), policy, ATO_EPOCHS));
        m = std::make_unique<Mapped>(path, options(GetParam(), ATO_READ_GATHER));
        ASSERT_TRUE(*e) << e->sentence;
        ASSERT_TRUE(*m) << m->sentence;
    }

    void put(size_t at, const Bytes &bytes, unsigned flags = 0)
    {
        ASSERT_TRUE(e->write(at, bytes, flags)) << e->sentence;
        std::copy(bytes.begin(), bytes.end(), mine.begin() + static_cast<long>(at));
    }

    void commit()
    {
        ASSERT_EQ(ato_msync(e->base, SIZE, MS_SYNC), 0) << ato_errormsg();
        model = mine;
    }

    void expect_shown()
    {
        EXPECT_EQ(e->read(), mine);
        EXPECT_EQ(m->read(), model);
    }

    TempDir dir;
    std::string path;
    Bytes model, mine;
    std::unique_ptr<Mapped> e, m;
};

TEST_P(Epoch, ShowsItsWritesOnlyThroughItsMappingUntilItIsCommitted)
{
    for (unsigned round = 0; round < 3; round++) {
        put(10, pattern(5, 2 + round));
        put(3 * PAGE - 100, pattern(2 * PAGE, 3 + round));
        put(3 * PAGE - 50, pattern(70, 4 + round)); // overlaps the write before
        put(40 * PAGE, pattern(40 * PAGE, 5 + round), ATO_SKIP_EQUAL);
        ASSERT_NE(ato_memset(e->base + 30 * PAGE + 5, 7, 3 * PAGE), nullptr);
        memset(&mine[30 * PAGE + 5], 7, 3 * PAGE);
        expect_shown();
        std::thread([&] { expect_shown(); }).join(); // it is the mapping's, not a thread's
        commit();
        expect_shown();
    }
    m.reset();
    EXPECT_EQ(e->unmap(ATO_UNMAP_SPATIAL), 0) << e->sentence;
    EXPECT_EQ(read_file(path), model);
}

TEST_P(Epoch, CopiesWithinAMappingAndBetweenMappings)
{
    put(0, pattern(3 * PAGE, 2));
    ASSERT_NE(ato_memcpy(e->base + PAGE + 7, e->base, 3 * PAGE), nullptr) << ato_errormsg();
    memmove(&mine[PAGE + 7], &mine[0], 3 * PAGE);
    ASSERT_NE(ato_memcpy(e->base + 20 * PAGE, m->base + PAGE, 2 * PAGE), nullptr) << ato_errormsg();
    memcpy(&mine[20 * PAGE], &model[PAGE], 2 * PAGE);
    // A copy from the epoch to the other mapping is committed at once.
    ASSERT_NE(ato_memcpy(m->base + 60 * PAGE + 1, e->base, 100), nullptr) << ato_errormsg();
    memcpy(&model[60 * PAGE + 1], &mine[0], 100);
    memcpy(&mine[60 * PAGE + 1], &mine[0], 100);
    expect_shown();
    commit();
    expect_shown();
}

TEST_P(Epoch, EndOfTheProcessIsAnAbort)
{
    e.reset();
    m.reset();
    int status = in_exiting_child([&] {
        auto *own = new Mapped(path, options(GetParam(), ATO_READ_LAZY, ATO_EPOCHS));
        if (!*own || !own->write(0, pattern(PAGE, 2)) || ato_msync(own->base, SIZE, 0) < 0)
            return 1;
        return own->write(50, pattern(50 * PAGE, 3)) ? 0 : 2;
    });
    ASSERT_EQ(status, 0);
    Bytes first = pattern(PAGE, 2);
    std::copy(first.begin(), first.end(), model.begin());
    mine = model;
    map();
    expect_shown();
}

TEST_P(Epoch, UnmapWithAnOpenEpochIsEbusy)
{
    EXPECT_EQ(ato_msync(e->base, SIZE, 0), 0); // nothing to commit
    put(5, pattern(10, 2));
    EXPECT_EQ(e->unmap(ATO_UNMAP_FAST), -1);
    EXPECT_EQ(e->error, EBUSY);
    commit();
    EXPECT_EQ(e->unmap(ATO_UNMAP_FAST), 0) << e->sentence;
}

TEST_P(Epoch, FailedWriteLeavesTheEpochUnchanged)
{
    EXPECT_FALSE(e->write(SIZE - 5, pattern(6, 2)));
    EXPECT_EQ(e->error, EFAULT);
    EXPECT_EQ(ato_msync(e->base + 1, SIZE, 0), -1);
    EXPECT_EQ(errno, EINVAL);
    ato_tx *t = ato_tx_begin(0);
    ASSERT_NE(ato_tx_memcpy(t, m->base + 5 * PAGE, "x", 1, 0), nullptr);
    EXPECT_FALSE(e->write(2 * PAGE, pattern(5 * PAGE, 3)));
    EXPECT_EQ(e->error, EDEADLK) << e->sentence; // the transaction is of the same thread
    EXPECT_EQ(ato_tx_abort(t), 0);
    expect_shown();
    EXPECT_EQ(e->unmap(ATO_UNMAP_FAST), 0) << e->sentence;
}

TEST_P(Epoch, IsSharedByAllThreads)
{
    std::vector<std::thread> threads;
    for (unsigned i = 0; i < 8; i++)
        threads.emplace_back([&, i] {
            for (unsigned k = 0; k < 10; k++)
                EXPECT_TRUE(e->write((i + 8 * k) * PAGE + 7, pattern(PAGE, i + 8 * k)));
        });
    for (std::thread &thread : threads)
        thread.join();
    EXPECT_EQ(m->read(), model);
    for (unsigned p = 0; p < 80; p++) // the ranges do not overlap
        EXPECT_EQ(e->read(p * PAGE + 7, PAGE), pattern(PAGE, p));
    Bytes all = e->read();
    std::thread([&] { EXPECT_EQ(ato_msync(e->base, SIZE, 0), 0); }).join();
    EXPECT_EQ(m->read(), all);
}

// A reader of several pages sees each write of them whole, also if the epoch overwrites its own
// write.
TEST_P(Epoch, ReadersSeeWholeWrites)
{
    constexpr unsigned PAGES = 5;
    put(0, Bytes(PAGES * PAGE, 0));
    commit();
    std::atomic<bool> stop{false};
    std::vector<std::thread> readers;
    for (int i = 0; i < 2; i++)
        readers.emplace_back([&] {
            while (!stop) {
                Bytes seen(PAGES * PAGE);
                ASSERT_NE(ato_memcpy(seen.data(), e->base, seen.size()), nullptr) << ato_errormsg();
                ASSERT_EQ(Bytes(seen.size(), seen[0]), seen);
                ASSERT_NE(ato_memcpy(seen.data(), m->base, seen.size()), nullptr);
                ASSERT_EQ(Bytes(seen.size(), seen[0]), seen) << "without the epoch";
            }
        });
    for (unsigned i = 1; i < 2000; i++) {
        ASSERT_NE(ato_memset(e->base, static_cast<int>(i & 255), PAGES * PAGE), nullptr);
        if (i % 16 == 0) {
            ASSERT_EQ(ato_msync(e->base, SIZE, 0), 0);
        }
    }
    stop = true;
    for (std::thread &reader : readers)
        reader.join();
}

INSTANTIATE_TEST_SUITE_P(Domains, Epoch,
                         testing::ValuesIn(domains({ATO_DOMAIN_PMEM, ATO_DOMAIN_DISK,
                                                    ATO_DOMAIN_PROCESS})));

} // namespace
