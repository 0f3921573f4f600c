// SPDX-License-Identifier: BSD-3-Clause
//
// Processes wait for one another's transactions in a cycle: one of them gets EDEADLK, and none
// waits for ever.
#include "support/child.h"
#include "support/mapped.h"

extern "C" {
#include "reflection/media/seam.h"
}

#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <future>
#include <thread>

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace support;

namespace
{

constexpr size_t SIZE = 4 * 4096;
constexpr unsigned MOST = 3;

// In memory that all processes share.
struct Board {
    unsigned holding, refused, succeeded;
};

class Cycles : public testing::Test
{
  protected:
    Cycles()
    {
        board = static_cast<Board *>(mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE,
                                          MAP_SHARED | MAP_ANONYMOUS, -1, 0));
        for (unsigned i = 0; i < MOST; i++)
            write_file(path(i), pattern(SIZE, static_cast<int>(i)));
    }
    ~Cycles()
    {
        munmap(board, sizeof(Board));
    }
    std::string path(unsigned i) const
    {
        return dir / ("file" + std::to_string(i));
    }

    // Each process i of n holds a page of file i, and then asks for the page of file i + 1. A
    // process that gets EDEADLK aborts. `epoch`: process 0 holds its page through an epoch.
    void run(unsigned n, bool epoch)
    {
        pid_t pids[MOST];
        for (unsigned i = 0; i < n; i++) {
            pids[i] = fork();
            if (pids[i] == 0)
                _exit(live(i, n, epoch && i == 0));
        }
        for (unsigned i = 0; i < n; i++) {
            int status = -1;
            ASSERT_EQ(waitpid(pids[i], &status, 0), pids[i]);
            EXPECT_EQ(status, 0) << i;
        }
        EXPECT_EQ(board->refused, 1u);
        EXPECT_EQ(board->succeeded, n - 1);
    }

    int live(unsigned i, unsigned n, bool epoch)
    {
        alarm(60); // ends a wait for ever
        Mapped own(path(i), options(ATO_DOMAIN_PMEM, ATO_READ_GATHER, epoch ? ATO_EPOCHS : 0u));
        Mapped next(path((i + 1) % n), options(ATO_DOMAIN_PMEM, ATO_READ_GATHER));
        if (!own || !next)
            return 1;
        ato_tx *tx = ato_tx_begin(0);
        const bool has = epoch ? ato_memcpy(own.base, "own", 3) != nullptr
                               : ato_tx_memcpy(tx, own.base, "own", 3, 0) != nullptr;
        if (!has)
            return 2;
        __atomic_fetch_add(&board->holding, 1, __ATOMIC_SEQ_CST);
        while (__atomic_load_n(&board->holding, __ATOMIC_SEQ_CST) < n)
            usleep(100);
        if (ato_tx_memcpy(tx, next.base, "next", 4, 0)) {
            __atomic_fetch_add(&board->succeeded, 1, __ATOMIC_SEQ_CST);
        } else if (errno == EDEADLK) {
            __atomic_fetch_add(&board->refused, 1, __ATOMIC_SEQ_CST);
        } else {
            return 3;
        }
        ato_tx_abort(tx);
        if (epoch && ato_msync(own.base, SIZE, MS_SYNC) < 0)
            return 4;
        return 0;
    }

    TempDir dir;
    Board *board;
};

TEST_F(Cycles, OfTwoProcessesAreFound)
{
    run(2, false);
}

TEST_F(Cycles, OfThreeProcessesAreFoundIfNoneHasAllFilesMapped)
{
    run(3, false);
}

TEST_F(Cycles, ThroughAnEpochAreFound)
{
    run(2, true);
}

// Process 0 holds its page through a transaction that it joins with another: before the other
// process waits for the page, or while it does.
TEST_F(Cycles, ThroughAJoinedTransactionAreFound)
{
    for (bool early : {false, true}) {
        Pipe held, holds, joined;
        const pid_t other = fork();
        if (other == 0) {
            alarm(20); // ends a wait for ever
            Mapped own(path(1), options(ATO_DOMAIN_PMEM, ATO_READ_GATHER));
            Mapped next(path(0), options(ATO_DOMAIN_PMEM, ATO_READ_GATHER));
            ato_tx *tx = ato_tx_begin(0);
            if (!own || !next || !ato_tx_memcpy(tx, own.base, "own", 3, 0))
                _exit(1);
            held.tell();
            (early ? holds : joined).hear();
            const bool succeeded = ato_tx_memcpy(tx, next.base, "next", 4, 0);
            if (!succeeded && errno != EDEADLK)
                _exit(2);
            ato_tx_abort(tx);
            _exit(succeeded ? 0 : 3);
        }
        const pid_t first = fork();
        if (first == 0) {
            alarm(20);
            Mapped own(path(0), options(ATO_DOMAIN_PMEM, ATO_READ_GATHER));
            Mapped next(path(1), options(ATO_DOMAIN_PMEM, ATO_READ_GATHER));
            Mapped third(path(2), options(ATO_DOMAIN_PMEM, ATO_READ_GATHER));
            ato_tx *into = ato_tx_begin(0), *from = ato_tx_begin(0);
            if (!own || !next || !third || !ato_tx_memcpy(into, third.base, "own", 3, 0) ||
                !ato_tx_memcpy(from, own.base, "own", 3, 0) || !held.hear())
                _exit(1);
            holds.tell();
            if (early)
                usleep(100000); // it waits by now; if not, the test passes too
            if (ato_tx_join(into, from) < 0)
                _exit(2);
            joined.tell();
            const bool succeeded = ato_tx_memcpy(into, next.base, "next", 4, 0);
            if (!succeeded && errno != EDEADLK)
                _exit(5);
            ato_tx_abort(into);
            _exit(succeeded ? 0 : 4);
        }
        int status[2] = {-1, -1};
        waitpid(first, &status[0], 0);
        waitpid(other, &status[1], 0);
        EXPECT_TRUE(WIFEXITED(status[0]) && WIFEXITED(status[1])) << status[0] << ' ' << status[1];
        EXPECT_EQ(WEXITSTATUS(status[0]) + WEXITSTATUS(status[1]), WEXITSTATUS(status[0]) ? 4 : 3)
            << status[0] << ' ' << status[1];
    }
}

// A thread of process 0 already waits when the epoch of the process is committed and the next one
// begins.
TEST_F(Cycles, ThroughAnEpochThatBeginsDuringAWaitAreFound)
{
    Pipe held, waited;
    const pid_t other = fork();
    if (other == 0) {
        alarm(20); // ends a wait for ever
        Mapped own(path(1), options(ATO_DOMAIN_PMEM, ATO_READ_GATHER));
        Mapped next(path(0), options(ATO_DOMAIN_PMEM, ATO_READ_GATHER));
        ato_tx *tx = ato_tx_begin(0);
        if (!own || !next || !ato_tx_memcpy(tx, own.base, "own", 3, 0))
            _exit(1);
        held.tell();
        waited.hear();
        const bool succeeded = ato_tx_memcpy(tx, next.base, "next", 4, 0);
        if (!succeeded && errno != EDEADLK)
            _exit(2);
        ato_tx_abort(tx);
        _exit(succeeded ? 0 : 3);
    }
    const pid_t first = fork();
    if (first == 0) {
        alarm(20);
        Mapped own(path(0), options(ATO_DOMAIN_PMEM, ATO_READ_GATHER, ATO_EPOCHS));
        Mapped next(path(1), options(ATO_DOMAIN_PMEM, ATO_READ_GATHER));
        if (!own || !next || !held.hear() || !ato_memcpy(own.base, "one", 3))
            _exit(1);
        int refused = 0;
        std::thread waits([&] {
            if (!ato_memcpy(next.base, "next", 4))
                refused = errno;
        });
        usleep(100000); // it waits by now; if not, the test passes too
        if (ato_msync(own.base, SIZE, MS_SYNC) < 0 || !ato_memcpy(own.base, "two", 3))
            _exit(2);
        waited.tell();
        waits.join();
        if (ato_msync(own.base, SIZE, MS_SYNC) < 0 || (refused && refused != EDEADLK))
            _exit(3);
        _exit(refused ? 4 : 0);
    }
    int status[2] = {-1, -1};
    waitpid(first, &status[0], 0);
    waitpid(other, &status[1], 0);
    EXPECT_TRUE((WEXITSTATUS(status[0]) == 4) != (WEXITSTATUS(status[1]) == 3))
        << status[0] << ' ' << status[1];
    EXPECT_TRUE(WIFEXITED(status[0]) && WIFEXITED(status[1])) << status[0] << ' ' << status[1];
}

// A thread waits in a call on one of its transactions. Meanwhile another thread adopts another of
// its transactions, aborts it and unmaps the file of that transaction.
TEST_F(Cycles, AreSearchedWithoutAdoptedTransactions)
{
    Pipe held, enough;
    const pid_t other = fork();
    if (other == 0) {
        Mapped m(path(0), options(ATO_DOMAIN_PMEM, ATO_READ_GATHER));
        ato_tx *tx = ato_tx_begin(0);
        if (!m || !ato_tx_memcpy(tx, m.base, "own", 3, 0))
            _exit(1);
        held.tell();
        enough.hear();
        _exit(ato_tx_abort(tx) == 0 ? 0 : 2);
    }
    Mapped waited(path(0), options(ATO_DOMAIN_PMEM, ATO_READ_GATHER));
    Mapped gone(path(1), options(ATO_DOMAIN_PMEM, ATO_READ_GATHER));
    ASSERT_TRUE(waited && gone && held.hear());
    std::promise<ato_tx *> begun;
    std::thread waits([&] {
        ato_tx *first = ato_tx_begin(0), *second = ato_tx_begin(0);
        EXPECT_TRUE(ato_tx_memcpy(second, gone.base, "two", 3, 0)) << ato_errormsg();
        begun.set_value(second);
        EXPECT_TRUE(ato_tx_memcpy(first, waited.base, "one", 3, 0)) << ato_errormsg();
        EXPECT_EQ(ato_tx_commit(first), 0) << ato_errormsg();
    });
    ato_tx *second = begun.get_future().get();
    usleep(50000); // it waits by now
    EXPECT_EQ(ato_tx_adopt(second), 0) << ato_errormsg();
    EXPECT_EQ(ato_tx_abort(second), 0) << ato_errormsg();
    EXPECT_EQ(gone.unmap(ATO_UNMAP_FAST), 0) << gone.sentence;
    usleep(50000); // it checks again
    enough.tell();
    waits.join();
    int status = -1;
    waitpid(other, &status, 0);
    EXPECT_EQ(status, 0);
}

// A long transaction is no cycle, and a killed process frees its pages.
TEST_F(Cycles, AreNotReportedForASlowTransaction)
{
    Pipe holding;
    pid_t slow = fork();
    if (slow == 0) {
        Mapped m(path(0), options(ATO_DOMAIN_PMEM, ATO_READ_GATHER));
        ato_tx *tx = ato_tx_begin(0);
        if (!ato_tx_memcpy(tx, m.base, "slow", 4, 0))
            _exit(1);
        holding.tell();
        for (;;)
            pause();
    }
    ASSERT_TRUE(holding.hear());
    Mapped m(path(0), options(ATO_DOMAIN_PMEM, ATO_READ_GATHER));
    ASSERT_TRUE(m) << m.sentence;
    ato_tx_options o = {};
    o.struct_size = sizeof(o);
    o.wait_ms = 300;
    ato_tx *tx = ato_tx_begin_opt(&o);
    EXPECT_EQ(ato_tx_memcpy(tx, m.base, "mine", 4, 0), nullptr);
    EXPECT_EQ(errno, ETIMEDOUT) << ato_errormsg();
    kill(slow, SIGKILL);
    waitpid(slow, nullptr, 0);
    EXPECT_NE(ato_tx_memcpy(tx, m.base, "mine", 4, 0), nullptr) << ato_errormsg();
    EXPECT_EQ(ato_tx_commit(tx), 0) << ato_errormsg();
    EXPECT_EQ(m.read(0, 4), Bytes({'m', 'i', 'n', 'e'}));
}

// Threads without a number of their own (thread.h) show their writes one at a time. Thread 1 makes
// the file shorter, and waits for a page whose state is newer than its drain; thread 2 has reserved
// that page, to deploy it.
TEST(ThreadsWithoutANumber, DoNotWaitForOneAnother)
{
    static std::atomic<int> there, reserved;
    static std::atomic<bool> drained, go_on, waits;
    static thread_local int role;
    TempDir dir;
    const std::string path = dir / "file";
    write_file(path, pattern(6 * 4096, 1));
    {
        Mapped m(path, options(ATO_DOMAIN_AUTO, ATO_READ_GATHER));
        ASSERT_TRUE(m.write(4 * 4096, pattern(4096, 9)));
        ASSERT_EQ(m.unmap(ATO_UNMAP_FAST), 0);
    }
    EXPECT_EQ(in_child([&] {
                  constexpr int NUMBERS = 64;
                  Mapped m(path, options(ATO_DOMAIN_AUTO, ATO_READ_LAZY, ATO_NO_RTM));
                  for (int i = 0; i < NUMBERS; i++)
                      std::thread([&] {
                          char byte;
                          ato_memcpy(&byte, m.base, 1);
                          there++;
                          for (;;)
                              pause();
                      }).detach();
                  while (there < NUMBERS)
                      usleep(1000);
                  seam_hook = [](enum seam_point point, const void *) {
                      if (role == 2 && point == SEAM_RESERVED && ++reserved == 2) {
                          go_on = true; // thread 2 has the page
                          while (!waits)
                              usleep(100);
                      }
                      if (role == 1 && point == SEAM_WAIT)
                          waits = true;
                  };
                  std::atomic<int> done{0};
                  std::thread([&] {
                      role = 1;
                      ato_tx *tx = ato_tx_begin(0);
                      ato_tx_ftruncate(tx, m.base, 4096);
                      drained = true;
                      while (!go_on)
                          usleep(100);
                      done += ato_tx_commit(tx) == 0;
                  }).detach();
                  while (!drained)
                      usleep(100);
                  std::thread([&] {
                      role = 2;
                      char got[4096];
                      done += ato_memcpy(got, m.base + 4 * 4096, sizeof(got)) != nullptr;
                  }).detach();
                  for (int i = 0; i < 100 && done < 2; i++)
                      usleep(100000);
                  _exit(done == 2 && waits ? 0 : 1);
                  return 1;
              }),
              0);
}

} // namespace
