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

} // namespace
