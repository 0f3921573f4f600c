// SPDX-License-Identifier: BSD-3-Clause
//
// How long does a process wait for a page of another one, which is slow, dead, or waits itself?
#include "support/child.h"
#include "support/mapped.h"

extern "C" {
#include "reflection/media/seam.h"
}

#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <thread>

#include <sys/wait.h>
#include <unistd.h>

using namespace support;

namespace
{

constexpr size_t SIZE = 4 * 4096;

TEST(SlowProcess, KeepsItsPageUntilItEndsOrIsKilled)
{
    TempDir dir;
    const std::string path = dir / "file";
    write_file(path, pattern(SIZE, 1));
    Pipe holding;
    pid_t slow = fork();
    if (slow == 0) {
        Mapped m(path, options(ATO_DOMAIN_PMEM, ATO_READ_GATHER));
        ato_tx *tx = ato_tx_begin(0);
        if (!ato_tx_memcpy(tx, m.base, "slow", 4, 0))
            _exit(1);
        holding.tell();
        for (;;)
            pause();
    }
    ASSERT_TRUE(holding.hear());
    setenv("ATO_WAIT_MS", "50", 1);
    Mapped m(path, options(ATO_DOMAIN_PMEM, ATO_READ_GATHER));
    unsetenv("ATO_WAIT_MS");
    ASSERT_TRUE(m) << m.sentence;
    ato_tx *tx = ato_tx_begin(0);
    EXPECT_EQ(ato_tx_memcpy(tx, m.base, "mine", 4, 0), nullptr);
    EXPECT_EQ(errno, EAGAIN) << ato_errormsg();
    EXPECT_EQ(ato_tx_abort(tx), 0);
    EXPECT_EQ(ato_memcpy(m.base, "mine", 4), nullptr);
    EXPECT_EQ(errno, ETIMEDOUT) << ato_errormsg();
    kill(slow, SIGKILL);
    waitpid(slow, nullptr, 0);
    tx = ato_tx_begin(0);
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
