/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What if a user who may write to a database stores arbitrary values in the locks of SQLite in shared memory? Locks may be lost and be
 * in the way. But a program that trusts an index or a count found there would store elsewhere; and each wait has to end.
 */
#include "lab.h"

#include "ato_engine.h"

#include "support/child.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <fcntl.h>
#include <random>
#include <sys/mman.h>
#include <unistd.h>

namespace sql
{

using clock = std::chrono::steady_clock;

class SqliteHostile : public Lab
{
  protected:
    /* A process that has the words of the locks. */
    int keep(const std::function<void()> &report) const
    {
        const Db db(path());
        const bool written = db.run("UPDATE t SET b = b") == SQLITE_OK;
        report();
        return written;
    }
    /* A process that, when told to go on, stores to the words of the locks until it is killed. */
    int store_all_over(const std::function<void()> &report) const
    {
        const support::Fd fd(path());
        void *words = ato_shared(fd, ATO_SHARED_MAX);
        if (!words)
            return 1;
        report();
        std::minstd_rand random(1);
        for (;;) {
            const auto end = clock::now() + std::chrono::milliseconds(50);
            while (clock::now() < end) {
                /* The first bytes are those that all processes look at; lines of connections follow. */
                const size_t at = random() % (random() % 4 ? 1024 : ATO_SHARED_MAX) / 4;
                const uint32_t values[] = {0, 1, 2, 0x7fffffff, 0xffffffff, (uint32_t)random()};
                __atomic_store_n(static_cast<uint32_t *>(words) + at, values[random() % 6],
                                 __ATOMIC_RELAXED);
            }
            /* The largest counts stay for a while. */
            memset(words, 0xff, 1024);
            usleep(150 * 1000);
        }
    }
    /* Transactions of one writer. *committed: of which were acknowledged. Returns how many seconds the longest call took. */
    double write(int *committed) const
    {
        const auto end = clock::now() + std::chrono::seconds(1);
        double longest = 0;
        while (clock::now() < end) {
            const Db reader(path()), writer(path());
            for (int i = 0; i < 20; i++) {
                const auto begin = clock::now();
                *committed += writer.run("BEGIN IMMEDIATE; INSERT INTO t(b) VALUES(randomblob(99));"
                                         "COMMIT") == SQLITE_OK;
                (void)writer.run("ROLLBACK");
                (void)reader.run("SELECT sum(a) FROM t");
                const std::chrono::duration<double> took = clock::now() - begin;
                longest = std::max(longest, took.count());
            }
        }
        return longest;
    }
};

TEST_F(SqliteHostile, LockWordsEndNoProcessAndNoTransaction)
{
    make();
    support::Peer keeper([&](const auto &report) { return keep(report); });
    ASSERT_TRUE(keeper.is_ready());
    support::Peer peer([&](const auto &report) { return store_all_over(report); });
    ASSERT_TRUE(peer.is_ready());
    peer.go_on();
    int *committed = static_cast<int *>(
        mmap(nullptr, sizeof(int), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    EXPECT_EQ(support::in_child([&] {
                  alarm(60);
                  return write(committed) < 10 ? 0 : 1;
              }),
              0);
    peer.die();
    keeper.die();
    EXPECT_GT(*committed, 0);
    const Db db(path());
    EXPECT_EQ(db.text("PRAGMA integrity_check"), "ok");
    EXPECT_GE(db.number("SELECT count(*) FROM t"), 3 + *committed);
    munmap(committed, sizeof(int));
}

} // namespace sql
