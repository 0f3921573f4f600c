// SPDX-License-Identifier: BSD-3-Clause
//
// Does ato_tx_run() run its function until it is not refused, or for run_ms; and does a transaction that
// was refused many times get through?
#include "tx_lab.h"

#include <atomic>
#include <chrono>

using namespace tx_lab;

namespace
{

using Clock = std::chrono::steady_clock;

class TxRun : public Tx
{
  protected:
    static int run(std::function<int(ato_tx *)> body, uint64_t run_ms = 0)
    {
        ato_tx_options o = {};
        o.struct_size = sizeof(o);
        o.run_ms = run_ms;
        auto call = [](ato_tx *t, void *arg) {
            return (*static_cast<std::function<int(ato_tx *)> *>(arg))(t);
        };
        return ato_tx_run(call, &body, &o);
    }
    int look(ato_tx *t, size_t page) const
    {
        char byte;
        return ato_tx_memcpy(t, &byte, m->base + page * PAGE, 1, 0) ? 0 : -1;
    }
    int write(ato_tx *t, size_t page) const
    {
        return ato_tx_memcpy(t, m->base + page * PAGE, "new", 3, 0) ? 0 : -1;
    }
    // While it exists another thread has the page in a transaction.
    struct Holder {
        Holder(const TxRun &test, size_t page)
        {
            std::thread([&] {
                t = ato_tx_begin(0);
                EXPECT_EQ(test.write(t, page), 0) << ato_errormsg();
            }).join();
        }
        ~Holder()
        {
            std::thread([&] { EXPECT_EQ(ato_tx_abort(t), 0) << ato_errormsg(); }).join();
        }
        ato_tx *t;
    };
    // The next transaction of the thread goes first.
    void be_refused_often()
    {
        Holder holder(*this, 90);
        for (int i = 0; i < 8; i++) {
            ato_tx *t = ato_tx_begin(0);
            EXPECT_TRUE(refused(write(t, 90) < 0, EAGAIN, "wait_ms"));
            EXPECT_EQ(ato_tx_abort(t), 0);
        }
    }
};

TEST_P(TxRun, RunsAgainWhileItIsRefused)
{
    int runs = 0;
    EXPECT_EQ(
        run([&](ato_tx *t) {
            if (look(t, 3) < 0)
                return -1;
            if (++runs < 4)
                std::thread([&] { EXPECT_TRUE(m->write(3 * PAGE, pattern(10, runs))); }).join();
            return write(t, 7); // refused at the commit
        }),
        0)
        << ato_errormsg();
    EXPECT_EQ(runs, 4);
    EXPECT_EQ(m->read(7 * PAGE, 3), Bytes({'n', 'e', 'w'}));
}

TEST_P(TxRun, GivesBackTheResultOfItsFunctionAndHasNoEffectThen)
{
    errno = 0;
    EXPECT_EQ(run([&](ato_tx *t) {
                  EXPECT_EQ(write(t, 7), 0);
                  errno = ENOENT;
                  return 7;
              }),
              7);
    EXPECT_EQ(errno, ENOENT);
    EXPECT_TRUE(refused(run([&](ato_tx *t) { return look(t, 200); }) == -1, EFAULT, "end"));
    EXPECT_EQ(m->read(), model);
    EXPECT_TRUE(m->write(7 * PAGE, pattern(10, 2))) << m->sentence; // and holds nothing
}

TEST_P(TxRun, IsAbortedByAnExceptionThatItPassesOn)
{
    struct Mine {
        int runs;
    };
    int runs = 0;
    const auto throws = [&](bool refuse) {
        return run([&, refuse](ato_tx *t) {
            EXPECT_EQ(look(t, 3), 0) << ato_errormsg();
            EXPECT_EQ(write(t, 7), 0) << ato_errormsg();
            if (refuse) {
                std::thread([&] {
                    EXPECT_TRUE(m->write(3 * PAGE, pattern(10, 2))) << m->sentence;
                }).join();
                EXPECT_EQ(look(t, 4), -1);
            }
            throw Mine{++runs};
            return 0;
        });
    };
    for (bool refuse : {false, true}) {
        try {
            throws(refuse);
            ADD_FAILURE() << "it was not passed on";
        } catch (const Mine &mine) {
            EXPECT_EQ(mine.runs, refuse ? 2 : 1); // not run again
        }
        EXPECT_EQ(m->read(7 * PAGE, PAGE), Bytes(&model[7 * PAGE], &model[8 * PAGE]));
        EXPECT_EQ(run([&](ato_tx *t) { return write(t, 8); }), 0) << ato_errormsg();
    }
    EXPECT_EQ(m->unmap(ATO_UNMAP_SPATIAL), 0) << m->sentence; // and nothing is open
}

TEST_P(TxRun, EndsAfterRunMs)
{
    Holder holder(*this, 3);
    const auto before = Clock::now();
    unsigned runs = 0;
    EXPECT_TRUE(
        refused(run([&](ato_tx *t) { return ++runs, write(t, 3); }, 60) == -1, EAGAIN, "run_ms"));
    EXPECT_GE(Clock::now() - before, std::chrono::milliseconds(60));
    EXPECT_GT(runs, 2u);
}

TEST_P(TxRun, ChecksItsArguments)
{
    const auto good = [](ato_tx *, void *) { return 0; };
    ato_tx_options o = {};
    EXPECT_TRUE(refused(ato_tx_run(nullptr, nullptr, nullptr) == -1, EINVAL, "function"));
    EXPECT_TRUE(refused(ato_tx_run(good, nullptr, &o) == -1, EINVAL, "struct_size"));
    o.struct_size = sizeof(o);
    o.run_ms = 1ull << 32;
    EXPECT_TRUE(refused(ato_tx_run(good, nullptr, &o) == -1, EINVAL, "run_ms"));
    EXPECT_EQ(ato_tx_run(good, nullptr, nullptr), 0);
}

// The other thread changes what the transaction reads, again and again, and never gives it the time to commit.
TEST_P(TxRun, GetsThroughBesideAWriterThatNeverStops)
{
    std::atomic<bool> over{false};
    std::atomic<unsigned> writes{0};
    std::thread writer([&] {
        for (; !over; writes++)
            EXPECT_TRUE(m->write(3 * PAGE, pattern(10, writes))) << m->sentence;
    });
    EXPECT_EQ(run(
                  [&](ato_tx *t) {
                      if (look(t, 3) < 0)
                          return -1;
                      // In vain if it goes first, and holds the page.
                      for (unsigned now = writes, tries = 0; writes < now + 2 && tries < 50;
                           tries++)
                          usleep(1000);
                      return write(t, 7);
                  },
                  2000),
              0)
        << ato_errormsg();
    over = true;
    writer.join();
}

TEST_P(TxRun, HoldsWhatItReadsIfItGoesFirst)
{
    ASSERT_EQ(m->read(), model); // so that each page is loaded
    be_refused_often();
    ato_tx *t = ato_tx_begin(0);
    ASSERT_EQ(look(t, 3), 0) << ato_errormsg();
    std::thread([&] {
        ato_tx *u = ato_tx_begin(0);
        EXPECT_TRUE(refused(write(u, 3) < 0, EAGAIN, "wait_ms"));
        EXPECT_EQ(ato_tx_abort(u), 0);
    }).join();
    EXPECT_EQ(ato_tx_commit(t), 0) << ato_errormsg();
}

TEST_P(TxRun, OthersLetATransactionGoFirstThatWasRefusedOften)
{
    int waited = 0;
    for (int tries = 0; !waited && tries < 20; tries++) { // it may be late, by the scheduler
        std::atomic<bool> goes{false}, begins{false};
        std::thread other([&] { // is there before the time begins to run
            while (!goes)
                std::this_thread::yield();
            const auto before = Clock::now();
            begins = true;
            ato_tx *u = ato_tx_begin(0);
            EXPECT_EQ(look(u, 50), 0) << ato_errormsg();
            waited += Clock::now() - before > std::chrono::milliseconds(2);
            EXPECT_EQ(ato_tx_commit(u), 0);
        });
        be_refused_often();
        ato_tx *t = begin();
        EXPECT_EQ(look(t, 3), 0) << ato_errormsg();
        goes = true;
        while (!begins)
            std::this_thread::yield();
        usleep(4000);
        EXPECT_EQ(ato_tx_commit(t), 0) << ato_errormsg();
        other.join();
    }
    EXPECT_TRUE(waited);
}

INSTANTIATE_TEST_SUITE_P(Domains, TxRun, testing::Values(ATO_DOMAIN_PMEM, ATO_DOMAIN_PROCESS));

} // namespace
