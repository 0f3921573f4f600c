// SPDX-License-Identifier: BSD-3-Clause
//
// Which calls wait for a transaction, for how long, and which get EDEADLK because they would wait
// for their own thread?
#include "support/child.h"
#include "support/mapped.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <future>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <sys/mman.h>

using namespace support;

namespace
{

constexpr size_t PAGE = 4096, SIZE = 64 * PAGE;

class Waits : public testing::Test
{
  protected:
    Waits() : path(dir / "file")
    {
        write_file(path, pattern(SIZE, 1));
        m = std::make_unique<Mapped>(path, options(ATO_DOMAIN_PROCESS, ATO_READ_GATHER));
        EXPECT_TRUE(*m) << m->sentence;
    }
    ~Waits()
    {
        EXPECT_EQ(map_again(""), 0);
        unsetenv("ATO_WAIT_MS");
    }

    // From then on plain calls of the process wait so long. Returns 0, or errno.
    int map_again(const char *wait_ms)
    {
        setenv("ATO_WAIT_MS", wait_ms, 1);
        return Mapped(path, options(ATO_DOMAIN_PROCESS)).error;
    }

    // 0, or errno.
    int put(ato_tx *t, unsigned page)
    {
        return ato_tx_memcpy(t, m->base + page * PAGE, "x", 1, 0) ? 0 : errno;
    }

    static ato_tx *begin(unsigned wait_ms = 0)
    {
        ato_tx_options o = {};
        o.struct_size = sizeof(o);
        o.wait_ms = wait_ms;
        return ato_tx_begin_opt(&o);
    }

    TempDir dir;
    std::string path;
    std::unique_ptr<Mapped> m;
};

// A process may be mapping or unmapping that file, which can take long.
TEST_F(Waits, NobodyWaitsForACopyFromAFileThatMayOnlyBeRead)
{
    const std::string other = dir / "other";
    write_file(other, pattern(PAGE, 2));
    const Fd fd(other, O_RDONLY);
    auto *source = static_cast<char *>(ato_mmap(nullptr, PAGE, PROT_READ, MAP_SHARED, fd, 0));
    ASSERT_NE(source, MAP_FAILED) << ato_errormsg();
    for (bool several : {false, true}) {
        Peer writer([&](const std::function<void()> &wait) {
            m->base = nullptr;
            Mapped w(other, options(ATO_DOMAIN_PROCESS));
            EXPECT_TRUE(w && w.write(0, Bytes(100, 'b'))) << w.sentence;
            wait();
            return 0;
        });
        ASSERT_TRUE(writer.is_ready());
        struct flock l = {};
        l.l_type = F_WRLCK;
        l.l_len = 1;
        auto attach = std::make_unique<Fd>(manifest_of(other));
        ASSERT_EQ(fcntl(*attach, F_OFD_SETLK, &l), 0);
        std::thread copy([&] {
            const ato_iovec v = {m->base, source, 100};
            const bool good =
                several ? ato_writev(&v, 1, 0) == 0 : ato_memcpy(v.dst, v.src, v.n) != nullptr;
            EXPECT_TRUE(good) << ato_errormsg();
        });
        usleep(20000);
        ato_tx *t = begin(10);
        EXPECT_EQ(put(t, 0), 0);
        EXPECT_EQ(ato_tx_abort(t), 0);
        attach = nullptr;
        copy.join();
        EXPECT_EQ(m->read(0, 100), Bytes(100, 'b'));
        EXPECT_EQ(writer.end(), 0);
    }
    EXPECT_EQ(ato_munmap(source, PAGE, ATO_UNMAP_FAST), 0);
}

// n threads meet here when each has a page; then each asks for the page of the next thread.
class Cycle
{
  public:
    explicit Cycle(unsigned n) : waiting_(n)
    {
    }
    void meet()
    {
        std::unique_lock<std::mutex> lock(mutex_);
        waiting_--;
        all_.notify_all();
        all_.wait(lock, [&] { return waiting_ == 0; });
    }

  private:
    std::mutex mutex_;
    std::condition_variable all_;
    unsigned waiting_;
};

// The calls of a thread with a transaction must not wait. If one does, another thread aborts the
// transaction, so that the call returns.
class Watch
{
  public:
    explicit Watch(ato_tx *t)
        : thread_([this, t] {
              if (over_.get_future().wait_for(std::chrono::seconds(5)) == std::future_status::ready)
                  return;
              ADD_FAILURE() << "the call waits";
              EXPECT_EQ(ato_tx_abort(t), 0) << ato_errormsg();
          })
    {
    }
    ~Watch()
    {
        over_.set_value();
        thread_.join();
    }
    Watch(const Watch &) = delete;
    Watch &operator=(const Watch &) = delete;

  private:
    std::promise<void> over_;
    std::thread thread_;
};

// Each asks for the page of the next one: not all can get it, and none waits for ever.
TEST_F(Waits, ATransactionOfACycleIsRefused)
{
    for (unsigned n : {2, 5}) {
        Cycle cycle(n);
        std::atomic<unsigned> refused{0};
        std::vector<std::thread> threads;
        for (unsigned i = 0; i < n; i++)
            threads.emplace_back([&, i] {
                ato_tx *t = begin(20);
                EXPECT_EQ(put(t, i), 0);
                cycle.meet();
                const int error = put(t, (i + 1) % n);
                EXPECT_TRUE(error == 0 || error == EAGAIN) << ato_errormsg();
                refused += error == EAGAIN;
                EXPECT_EQ(error ? ato_tx_abort(t) : ato_tx_commit(t), 0) << ato_errormsg();
            });
        for (std::thread &thread : threads)
            thread.join();
        EXPECT_GE(refused, 1u);
        EXPECT_TRUE(m->write(0, pattern(n * PAGE, 2))) << "a page is still held";
    }
}

// Each thread has a page in a transaction, and waits for the other's in a plain call.
TEST_F(Waits, APlainCallOfACycleTimesOut)
{
    ASSERT_EQ(map_again("100"), 0);
    Cycle cycle(2);
    std::atomic<unsigned> timeouts{0};
    auto run = [&](unsigned own, unsigned other, bool deploys) {
        ato_tx *t = begin();
        EXPECT_EQ(put(t, own), 0);
        cycle.meet();
        char *at = m->base + other * PAGE;
        if (deploys ? ato_deploy(at, 1) < 0 : !ato_memset(at - PAGE, 7, 3 * PAGE)) {
            EXPECT_EQ(errno, ETIMEDOUT) << ato_errormsg();
            timeouts++;
        }
        EXPECT_EQ(ato_tx_abort(t), 0);
    };
    std::thread one(run, 10u, 20u, true), two(run, 20u, 10u, false);
    one.join();
    two.join();
    EXPECT_GE(timeouts, 1u);
}

TEST_F(Waits, PlainCallsWaitForAtoWaitMs)
{
    ato_tx *t = begin();
    ASSERT_EQ(put(t, 3), 0);
    std::thread([&] {
        EXPECT_EQ(map_again("40"), 0);
        const auto before = std::chrono::steady_clock::now();
        EXPECT_FALSE(m->write(3 * PAGE, pattern(10, 2)));
        EXPECT_EQ(m->error, ETIMEDOUT);
        const auto waited = std::chrono::steady_clock::now() - before;
        EXPECT_GE(waited, std::chrono::milliseconds(40));
        EXPECT_LT(waited, std::chrono::seconds(8)); // by default it is 10
        EXPECT_NE(m->sentence.find("ATO_WAIT_MS"), std::string::npos) << m->sentence;
        EXPECT_TRUE(m->write(4 * PAGE, pattern(10, 2))) << m->sentence;
    }).join();
    EXPECT_EQ(ato_tx_abort(t), 0);
}

TEST_F(Waits, AtoWaitMsIsANumberOfMilliseconds)
{
    for (const char *good : {"", "1", "1000000000"})
        EXPECT_EQ(map_again(good), 0) << good;
    for (const char *bad : {"0", "-1", " 5", "5 ", "1s", "1000000001", "99999999999999999999"})
        EXPECT_EQ(map_again(bad), EINVAL) << bad;
}

// Two plain writes of several pages, and a transaction that holds one of their pages and asks for
// another: a write holds no page while it waits for the transaction.
TEST_F(Waits, PlainWriteHoldsNoPageWhileItWaitsForATransaction)
{
    ato_tx *t = begin();
    ASSERT_EQ(put(t, 11), 0);
    std::thread plain([&] { EXPECT_NE(ato_memset(m->base + 10 * PAGE, 9, 2 * PAGE), nullptr); });
    std::thread across([&] {
        ato_iovec v[2] = {{m->base + 10 * PAGE + 5, "y", 1}, {m->base + 11 * PAGE + 5, "z", 1}};
        EXPECT_EQ(ato_writev(v, 2, 0), 0);
    });
    usleep(30000);
    EXPECT_EQ(put(t, 10), 0) << ato_errormsg();
    EXPECT_EQ(ato_tx_commit(t), 0);
    plain.join();
    across.join();
    EXPECT_NE(m->read(10 * PAGE, 1)[0], 'x');
}

// It has no effect and holds nothing from then on.
TEST_F(Waits, TransactionWaitsForWaitMsAndIsRefused)
{
    ato_tx *t = begin();
    ASSERT_EQ(put(t, 9), 0);
    std::thread([&] {
        ato_tx *u = begin(30);
        EXPECT_EQ(put(u, 1), 0);
        const auto before = std::chrono::steady_clock::now();
        EXPECT_FALSE(
            ato_tx_memcpy(u, m->base + 5 * PAGE, pattern(5 * PAGE, 2).data(), 5 * PAGE, 0));
        EXPECT_EQ(errno, EAGAIN) << ato_errormsg();
        EXPECT_GE(std::chrono::steady_clock::now() - before, std::chrono::milliseconds(30));
        for (unsigned page : {1, 5, 8}) // without EDEADLK, which its own pages would be
            EXPECT_TRUE(m->write(page * PAGE, pattern(10, 3))) << m->sentence;
        EXPECT_EQ(ato_tx_abort(u), 0);
    }).join();
    EXPECT_EQ(ato_tx_abort(t), 0);
}

TEST_F(Waits, WaiterContinuesWhenTheTransactionEnds)
{
    for (bool commit : {false, true}) {
        ato_tx *t = begin();
        ASSERT_EQ(put(t, 3), 0);
        std::atomic<bool> done{false};
        std::thread other([&] {
            EXPECT_TRUE(m->write(3 * PAGE + 100, pattern(10, 2)));
            done = true;
        });
        usleep(20000);
        EXPECT_FALSE(done);
        EXPECT_EQ(commit ? ato_tx_commit(t) : ato_tx_abort(t), 0);
        other.join();
    }
}

// An epoch belongs to every thread: a thread that waited for it in a call outside the epoch would
// wait for itself.
TEST_F(Waits, CallsDoNotWaitForPagesOfAnOpenEpoch)
{
    Mapped e(path, options(ATO_DOMAIN_PROCESS, ATO_READ_GATHER, ATO_EPOCHS));
    ASSERT_TRUE(e) << e.sentence;
    ASSERT_TRUE(e.write(3 * PAGE, pattern(10, 2))) << e.sentence;
    EXPECT_FALSE(m->write(3 * PAGE, pattern(10, 3)));
    EXPECT_EQ(m->error, EDEADLK);
    ato_tx *t = begin();
    EXPECT_EQ(put(t, 3), EDEADLK);
    EXPECT_EQ(put(t, 4), 0);
    // A write of the epoch may wait for a transaction, which its thread can end.
    std::thread other([&] { EXPECT_TRUE(e.write(4 * PAGE, pattern(10, 4))) << e.sentence; });
    usleep(20000);
    EXPECT_EQ(ato_tx_commit(t), 0);
    other.join();
    ASSERT_EQ(ato_msync(e.base, SIZE, 0), 0);
    EXPECT_TRUE(m->write(3 * PAGE, pattern(10, 3)));
}

class EpochWaits : public Waits
{
  protected:
    EpochWaits() : e(path, options(ATO_DOMAIN_PROCESS, ATO_READ_GATHER, ATO_EPOCHS))
    {
        EXPECT_TRUE(e) << e.sentence;
    }

    int sync()
    {
        return ato_msync(e.base, SIZE, 0);
    }

    Mapped e;
};

// Meanwhile the transaction's thread uses the same epoch: it writes, reads and commits. The waiting
// write holds none of its pages until it gets all of them.
TEST_F(EpochWaits, WriteHoldsNoPageWhileItWaitsForATransaction)
{
    // The transaction has the page, or removes it from the file.
    for (bool cuts : {true, false})
        for (bool several : {false, true}) {
            SCOPED_TRACE(std::to_string(cuts) + std::to_string(several));
            ato_tx *t = begin();
            ASSERT_EQ(cuts ? ato_tx_ftruncate(t, m->base, 40 * PAGE) : put(t, 40), 0);
            std::thread writer([&] {
                ato_iovec v[2] = {{e.base + 39 * PAGE, "y", 1}, {e.base + 40 * PAGE, "y", 1}};
                if (several)
                    EXPECT_EQ(ato_writev(v, 2, 0), 0) << ato_errormsg();
                else
                    EXPECT_TRUE(e.write(39 * PAGE, Bytes(PAGE + 1, 'y'))) << e.sentence;
            });
            usleep(30000);
            {
                Watch watch(t);
                EXPECT_TRUE(m->write(39 * PAGE, Bytes(10, 'm'))) << m->sentence;
                EXPECT_NE(ato_memset(e.base + 20 * PAGE, 'e', 10), nullptr) << ato_errormsg();
                EXPECT_EQ(e.read(20 * PAGE, 10), Bytes(10, 'e'));
                EXPECT_EQ(sync(), 0) << ato_errormsg();
            }
            EXPECT_EQ(m->read(20 * PAGE, 10), Bytes(10, 'e'));
            EXPECT_EQ(ato_tx_abort(t), 0);
            writer.join();
            EXPECT_EQ(e.read(40 * PAGE, 1), Bytes(1, 'y'));
            EXPECT_EQ(sync(), 0) << ato_errormsg();
        }
}

// A page that one write gets when the transaction ends belongs to the epoch of all.
TEST_F(EpochWaits, SeveralWritesMayWaitForOnePage)
{
    for (int round = 0; round < 50; round++) {
        ato_tx *t = begin();
        ASSERT_EQ(put(t, 40), 0);
        std::vector<std::thread> writers;
        for (unsigned i = 0; i < 4; i++)
            writers.emplace_back([&, i] {
                EXPECT_NE(ato_memset(e.base + (39 + i % 2) * PAGE + i, 'a', PAGE), nullptr)
                    << ato_errormsg();
            });
        usleep(3000);
        EXPECT_EQ(ato_tx_abort(t), 0);
        for (std::thread &writer : writers)
            writer.join();
        EXPECT_EQ(sync(), 0) << ato_errormsg();
    }
}

} // namespace
