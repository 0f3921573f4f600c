// SPDX-License-Identifier: BSD-3-Clause
//
// A file's size as part of a transaction: which size do the transaction and other threads see, and
// which size stays at its end?
#include "support/mapped.h"

#include "ato_engine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>
#include <thread>

#include <sys/stat.h>
#include <unistd.h>

using namespace support;

namespace
{

constexpr size_t PAGE = 4096, SIZE = 20 * PAGE + 300, MOST = 1 << 20;

class TxSize : public testing::TestWithParam<int>
{
  protected:
    TxSize() : path(dir / "file"), model(pattern(SIZE, 1))
    {
        write_file(path, model);
        map();
    }

    void map()
    {
        m.reset();
        ato_options o = options(GetParam(), ATO_READ_GATHER);
        o.max_size = MOST;
        m = std::make_unique<Mapped>(path, o, SIZE); // also when the file is empty
        ASSERT_TRUE(*m) << m->sentence;
    }

    void begin()
    {
        mine = model;
        t = ato_tx_begin(0);
        ASSERT_NE(t, nullptr);
    }

    int resize(size_t to)
    {
        int r = ato_tx_ftruncate(t, m->base, static_cast<off_t>(to));
        if (r == 0)
            mine.resize(to, 0);
        return r;
    }

    void put(size_t at, const Bytes &bytes, unsigned flags = 0)
    {
        ASSERT_NE(ato_tx_memcpy(t, m->base + at, bytes.data(), bytes.size(), flags), nullptr)
            << ato_errormsg();
        ASSERT_LE(at + bytes.size(), mine.size());
        std::copy(bytes.begin(), bytes.end(), mine.begin() + static_cast<long>(at));
    }

    // The transaction sees `mine`, other threads see `model`, each with its own end.
    void expect_shown()
    {
        Bytes seen(mine.size());
        char byte;
        if (!mine.empty()) {
            ASSERT_NE(ato_tx_memcpy(t, seen.data(), m->base, seen.size(), 0), nullptr)
                << ato_errormsg();
        }
        EXPECT_EQ(seen, mine);
        EXPECT_EQ(ato_tx_size(t, m->base), static_cast<off_t>(mine.size()));
        EXPECT_EQ(ato_tx_memcpy(t, &byte, m->base + mine.size(), 1, 0), nullptr);
        EXPECT_EQ(ato_tx_memcpy(t, m->base + mine.size(), &byte, 1, 0), nullptr);
        EXPECT_EQ(errno, EFAULT);
        expect_others();
    }

    void expect_others()
    {
        std::thread([&] {
            char byte;
            EXPECT_EQ(m->stat().size, model.size());
            EXPECT_EQ(ato_size(m->base), static_cast<off_t>(model.size()));
            if (!model.empty()) {
                EXPECT_EQ(m->read(0, model.size()), model);
            }
            EXPECT_EQ(ato_memcpy(&byte, m->base + model.size(), 1), nullptr);
            EXPECT_EQ(errno, EFAULT);
        }).join();
    }

    void commit()
    {
        ASSERT_EQ(ato_tx_commit(t), 0) << ato_errormsg();
        model = mine;
        expect_others();
    }

    // For the next map, and in the plain file.
    void expect_kept()
    {
        map();
        expect_others();
        ASSERT_EQ(m->unmap(ATO_UNMAP_SPATIAL), 0) << m->sentence;
        EXPECT_EQ(read_file(path), model);
        map();
    }

    TempDir dir;
    std::string path;
    Bytes model, mine;
    ato_tx *t = nullptr;
    std::unique_ptr<Mapped> m;
};

const std::vector<size_t> ENDS = {0,         1,         63,           64,           100,
                                  PAGE - 1,  PAGE,      PAGE + 64,    7 * PAGE + 1, 20 * PAGE,
                                  SIZE - 60, SIZE - 1,  SIZE,         SIZE + 1,     SIZE + 100,
                                  21 * PAGE, 30 * PAGE, 60 * PAGE + 7};

TEST_P(TxSize, ChangesWithItsWritesOrNotAtAll)
{
    for (size_t to : ENDS) {
        SCOPED_TRACE(to);
        for (bool commits : {false, true}) {
            begin();
            put(PAGE, pattern(3 * PAGE, 2));
            put(SIZE - 200, pattern(200, 3));
            ASSERT_EQ(resize(to), 0) << ato_errormsg();
            expect_shown();
            if (to > 10)
                put(to - 10, pattern(10, 4));
            if (to > SIZE)
                put(SIZE - 50, pattern(to - SIZE + 20, 5));
            expect_shown();
            if (commits) {
                commit();
            } else {
                ASSERT_EQ(ato_tx_abort(t), 0);
                expect_others();
            }
        }
        expect_kept();
        // Back to the old size and content.
        ASSERT_EQ(ato_ftruncate(m->base, SIZE), 0) << ato_errormsg();
        model.resize(SIZE, 0);
        Bytes again = pattern(SIZE, 1);
        ASSERT_TRUE(m->write(0, again));
        model = again;
    }
}

// Bytes that were removed in between are zeros.
TEST_P(TxSize, ChangesAgainWithinATransaction)
{
    for (size_t first : ENDS)
        for (size_t second :
             {size_t{0}, size_t{70}, PAGE + 5, 7 * PAGE + 40, SIZE - 10, SIZE + 90, 25 * PAGE}) {
            SCOPED_TRACE(std::to_string(first) + " " + std::to_string(second));
            begin();
            put(SIZE - 300, pattern(300, 6));
            put(PAGE - 5, pattern(500, 7));
            ASSERT_EQ(resize(first), 0) << ato_errormsg();
            if (first >= 30)
                put(first - 30, pattern(30, 8));
            ASSERT_EQ(resize(second), 0) << ato_errormsg();
            expect_shown();
            if (second >= 100)
                put(second - 100, pattern(100, 9));
            ASSERT_EQ(resize(22 * PAGE + 3), 0) << ato_errormsg();
            expect_shown();
            ASSERT_EQ(resize(SIZE), 0) << ato_errormsg();
            expect_shown();
            commit();
        }
    expect_kept();
}

TEST_P(TxSize, OtherThreadsWaitBeforeTheyChangeIt)
{
    begin();
    ASSERT_EQ(resize(10 * PAGE), 0);
    std::atomic<bool> done{false};
    std::thread other([&] {
        EXPECT_EQ(ato_ftruncate(m->base, 12 * PAGE), 0) << ato_errormsg();
        done = true;
    });
    usleep(20000);
    EXPECT_FALSE(done);
    ASSERT_EQ(ato_tx_commit(t), 0) << ato_errormsg();
    other.join();
    model = mine;
    model.resize(12 * PAGE, 0);
    expect_others();
    // A plain call of the transaction's own thread would wait for itself.
    begin();
    ASSERT_EQ(resize(10 * PAGE), 0);
    EXPECT_EQ(ato_ftruncate(m->base, 5 * PAGE), -1);
    EXPECT_EQ(errno, EDEADLK);
    ASSERT_EQ(ato_tx_abort(t), 0);
    expect_others();
}

// Writers to the part that the transaction removes wait for its end; then they fail or succeed.
TEST_P(TxSize, WritersWaitAndReadersDoNot)
{
    for (bool commits : {false, true}) {
        map(); // no page is loaded
        begin();
        ASSERT_EQ(resize(10 * PAGE + 100), 0);
        expect_others();
        std::atomic<int> waiting{3};
        auto write = [&](size_t at, size_t n) {
            bool written = ato_memset(m->base + at, 7, n) != nullptr;
            EXPECT_EQ(written, !commits) << ato_errormsg();
            if (!written) {
                EXPECT_EQ(errno, EFAULT);
            }
            waiting--;
        };
        std::thread one(write, 15 * PAGE, 10), two(write, 9 * PAGE, 3 * PAGE),
            three(write, 10 * PAGE + 90, 20);
        usleep(30000);
        EXPECT_EQ(waiting, 3);
        std::thread([&] {
            EXPECT_TRUE(m->write(5 * PAGE, pattern(10, 5)));
        }).join(); // other pages can be written
        Bytes five = pattern(10, 5);
        std::copy(five.begin(), five.end(), model.begin() + 5 * PAGE);
        std::copy(five.begin(), five.end(), mine.begin() + 5 * PAGE);
        expect_others();
        if (commits) {
            ASSERT_EQ(ato_tx_commit(t), 0);
            model = mine;
        } else {
            ASSERT_EQ(ato_tx_abort(t), 0);
        }
        one.join();
        two.join();
        three.join();
        if (!commits) {
            memset(&model[15 * PAGE], 7, 10);
            memset(&model[9 * PAGE], 7, 3 * PAGE);
            memset(&model[10 * PAGE + 90], 7, 20);
        }
        expect_others();
    }
}

// Also within the new last page.
TEST_P(TxSize, WaiterUsesTheSizeAfterItsWait)
{
    Mapped e(path, options(GetParam(), ATO_READ_GATHER, ATO_EPOCHS));
    ASSERT_TRUE(e) << e.sentence;
    begin();
    ASSERT_EQ(resize(10 * PAGE + 50), 0);
    auto refused = [&](bool failed) {
        EXPECT_TRUE(failed);
        EXPECT_EQ(errno, EFAULT) << ato_errormsg();
    };
    const size_t at = 10 * PAGE + 3000;
    ato_iovec range = {m->base + at, "x", 1};
    std::thread writes([&] {
        ato_tx_options o = {};
        o.struct_size = sizeof(o);
        o.wait_ms = 10000;
        ato_tx *u = ato_tx_begin_opt(&o);
        refused(!ato_tx_memcpy(u, m->base + at, "x", 1, 0));
        EXPECT_EQ(ato_tx_commit(u), 0);
    });
    std::thread ranges([&] { refused(ato_writev(&range, 1, 0) < 0); });
    usleep(30000);
    ASSERT_EQ(ato_tx_commit(t), 0);
    writes.join();
    ranges.join();
    model = mine;
    // Other calls do not wait for pages of an epoch: the epoch waits alone.
    ASSERT_EQ(ato_ftruncate(m->base, SIZE), 0) << ato_errormsg();
    model.resize(SIZE, 0);
    begin();
    ASSERT_EQ(resize(10 * PAGE + 50), 0);
    std::thread epoch([&] { refused(!ato_memcpy(e.base + at, "x", 1)); });
    usleep(30000);
    ASSERT_EQ(ato_tx_commit(t), 0);
    epoch.join();
    model = mine;
    expect_others();
    ASSERT_EQ(ato_ftruncate(m->base, SIZE), 0) << ato_errormsg();
    model.resize(SIZE, 0);
    expect_others();
}

// Those that wait for the size keep no lane, which the commit of the size needs.
TEST_P(TxSize, WaitersAtTheirCommitLeaveTheLanesToTheOneThatTheyWaitFor)
{
    constexpr size_t WAITERS = 6;
    begin();
    ASSERT_EQ(resize(15 * PAGE), 0);
    put(0, pattern(2 * PAGE, 2));
    std::vector<std::thread> waiters;
    for (size_t i = 0; i < WAITERS; i++)
        waiters.emplace_back([&, i] {
            ato_tx_options o = {};
            o.struct_size = sizeof(o);
            o.wait_ms = 20000;
            char byte;
            ato_tx *u = ato_tx_begin_opt(&o);
            EXPECT_NE(ato_tx_memcpy(u, &byte, m->base + 17 * PAGE, 1, 0), nullptr);
            for (size_t k = 0; k < 2; k++)
                EXPECT_NE(ato_tx_memcpy(u, m->base + (2 + 2 * i + k) * PAGE, "x", 1, 0), nullptr)
                    << ato_errormsg();
            EXPECT_EQ(ato_tx_commit(u), -1);
            EXPECT_EQ(errno, EAGAIN) << ato_errormsg();
            EXPECT_EQ(ato_tx_abort(u), 0);
        });
    usleep(50000);
    const auto began = std::chrono::steady_clock::now();
    commit();
    EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(10));
    for (std::thread &waiter : waiters)
        waiter.join();
    expect_others();
}

TEST_P(TxSize, RefusedCallChangesNothing)
{
    begin();
    put(5, pattern(100, 2));
    auto refused = [&](off_t to, int err) {
        EXPECT_EQ(ato_tx_ftruncate(t, m->base, to), -1);
        EXPECT_EQ(errno, err) << ato_errormsg();
        expect_shown();
    };
    refused(-1, EINVAL);
    refused((1 << 30) + 1, ENOSPC);
    EXPECT_EQ(ato_tx_ftruncate(t, &t, 5), -1);
    EXPECT_EQ(errno, EINVAL);
    EXPECT_EQ(ato_tx_size(t, &t), -1);
    EXPECT_EQ(errno, EINVAL);
    ASSERT_EQ(ato_tx_abort(t), 0);
    EXPECT_EQ(ato_tx_size(t, m->base), -1);
    EXPECT_EQ(errno, EINVAL);
    ASSERT_EQ(ato_set_guard(m->base, 100, model.data() + 100, 16), 0);
    begin();
    refused(115, EINVAL);
    ASSERT_EQ(resize(116), 0) << ato_errormsg();
    refused(3, EINVAL);
    ASSERT_EQ(ato_tx_abort(t), 0);
    expect_others();
    EXPECT_EQ(ato_ftruncate(m->base, SIZE - 5), 0); // and no page is held
}

static off_t length(const std::string &path)
{
    struct stat st;
    return stat(path.c_str(), &st) == 0 ? st.st_size : -1;
}

// At the end the file is as long as its size, also after an abort, or after a growth beyond the
// last size.
TEST_P(TxSize, IsTheLengthOfTheFileAfterTheTransaction)
{
    begin();
    ASSERT_EQ(resize(SIZE + 10 * PAGE), 0) << ato_errormsg();
    put(SIZE + 9 * PAGE, pattern(PAGE, 2));
    EXPECT_EQ(length(path), static_cast<off_t>(SIZE + 10 * PAGE));
    ASSERT_EQ(ato_tx_abort(t), 0);
    EXPECT_EQ(length(path), static_cast<off_t>(SIZE));

    begin();
    ASSERT_EQ(resize(SIZE + 10 * PAGE), 0) << ato_errormsg();
    ASSERT_EQ(resize(SIZE + PAGE), 0) << ato_errormsg();
    ASSERT_EQ(ato_tx_commit(t), 0) << ato_errormsg();
    EXPECT_EQ(length(path), static_cast<off_t>(SIZE + PAGE));

    // It may grow over that range again, which reads as zeros.
    begin();
    ASSERT_EQ(resize(SIZE + 10 * PAGE), 0) << ato_errormsg();
    ASSERT_EQ(ato_tx_commit(t), 0) << ato_errormsg();
    model.resize(SIZE + 10 * PAGE, 0);
    Bytes seen(model.size());
    ASSERT_NE(ato_memcpy(seen.data(), m->base, seen.size()), nullptr) << ato_errormsg();
    EXPECT_EQ(seen, model);
}

TEST_P(TxSize, PagesRemovedAndAddedAgainCountAgainstTheLimit)
{
    ato_tx_options o = {};
    o.struct_size = sizeof(o);
    o.max_bytes = 8 * PAGE;
    t = ato_tx_begin_opt(&o);
    mine = model;
    ASSERT_EQ(resize(2 * PAGE), 0);
    EXPECT_EQ(ato_tx_ftruncate(t, m->base, 15 * PAGE), -1);
    EXPECT_EQ(errno, E2BIG);
    ASSERT_EQ(resize(4 * PAGE), 0) << ato_errormsg();
    expect_shown();
    commit();
}

// A reader of the part that a transaction removes gets all of it, or EFAULT.
TEST_P(TxSize, ReadersSeeOldOrNew)
{
    ASSERT_NE(ato_memset(m->base, 0, SIZE), nullptr);
    std::atomic<bool> stop{false};
    std::vector<std::thread> readers;
    for (size_t at : {size_t{0}, 5 * PAGE + 10, 12 * PAGE, 19 * PAGE + 100})
        readers.emplace_back([&, at] {
            Bytes seen(PAGE + 100);
            while (!stop) {
                if (!ato_memcpy(seen.data(), m->base + at, seen.size())) {
                    ASSERT_EQ(errno, EFAULT) << ato_errormsg();
                    continue;
                }
                ASSERT_EQ(Bytes(seen.size(), seen[0]), seen);
            }
        });
    for (unsigned i = 1; i < 300; i++) {
        Bytes all(SIZE, static_cast<unsigned char>(i));
        begin();
        ASSERT_EQ(resize(i % 3 ? 3 * PAGE + i : 12 * PAGE + 5), 0);
        ASSERT_EQ(ato_tx_commit(t), 0) << ato_errormsg();
        begin();
        ASSERT_EQ(ato_tx_ftruncate(t, m->base, SIZE), 0);
        ASSERT_NE(ato_tx_memcpy(t, m->base, all.data(), SIZE, 0), nullptr) << ato_errormsg();
        ASSERT_EQ(ato_tx_commit(t), 0) << ato_errormsg();
        if (testing::Test::HasFailure())
            break;
    }
    stop = true;
    for (std::thread &reader : readers)
        reader.join();
}

INSTANTIATE_TEST_SUITE_P(Domains, TxSize,
                         testing::ValuesIn(domains({ATO_DOMAIN_PMEM, ATO_DOMAIN_DISK,
                                                    ATO_DOMAIN_PROCESS})));

} // namespace
