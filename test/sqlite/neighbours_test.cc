/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Do connections, threads and processes that have one database open disturb each other? With journals on the disk and
 * in memory, without locks, read-only, from threads that start and end, and through forks.
 */
#include "lab.h"

#include "support/child.h"

#include <atomic>
#include <csignal>
#include <fcntl.h>
#include <filesystem>
#include <functional>
#include <sys/resource.h>
#include <thread>
#include <unistd.h>

namespace sql
{

class SqliteNeighbours : public Lab
{
  protected:
    /* A statement that spills, and fails at the limit of the file's size. */
    static void fail_for_want_of_room(const Db &db)
    {
        struct rlimit before;
        getrlimit(RLIMIT_FSIZE, &before);
        struct rlimit small = before;
        small.rlim_cur = 400000;
        signal(SIGXFSZ, SIG_IGN);
        setrlimit(RLIMIT_FSIZE, &small);
        EXPECT_NE(db.run(fill("t", 10, 3000)), SQLITE_OK);
        setrlimit(RLIMIT_FSIZE, &before);
    }
};

/* While two other connections of the process are open and only read. */
TEST_F(SqliteNeighbours, AFailedStatementLeavesNothing)
{
    make();
    Db idle(path()), db(path()), late(path());
    MUST(db, "PRAGMA cache_size=5");
    fail_for_want_of_room(db);
    (void)db.run("ROLLBACK");
    EXPECT_EQ(db.number("SELECT sum(a) FROM t"), 6);
    MUST(db, "INSERT INTO t VALUES(50, 50); DELETE FROM t WHERE a=50");
    MUST(db, "BEGIN; INSERT INTO t VALUES(4, 4)");
    idle.close();
    late.close();
    MUST(db, "COMMIT");
    EXPECT_EQ(db.text("PRAGMA integrity_check"), "ok");
    db.close();
    EXPECT_EQ(stock_sum(path()), "10");
}

TEST_F(SqliteNeighbours, ATransactionContinuesInSuccessiveThreads)
{
    make();
    Db db(path());
    MUST(db, "PRAGMA cache_size=5");
    for (const char *end : {"COMMIT", "ROLLBACK", "COMMIT"}) {
        for (const std::string &statement :
             {std::string("BEGIN"), fill("t", 10, 200), fill("t", 300, 400), std::string(end),
              std::string("DELETE FROM t WHERE a>3")})
            std::thread([&] { MUST(db, statement); }).join();
        EXPECT_EQ(db.number("SELECT sum(a) FROM t"), 6);
    }
    EXPECT_EQ(db.close(), SQLITE_OK);
    EXPECT_EQ(left(), 0u);
    EXPECT_EQ(stock_sum(path()), "6");
}

TEST_F(SqliteNeighbours, ReadOnlyConnectionLeavesAPlainFile)
{
    make();
    ASSERT_EQ(other.open(path(), "mode=ro"), SQLITE_OK) << other.error();
    EXPECT_EQ(other.run("BEGIN; SELECT * FROM t"), SQLITE_OK);
    Db db(path());
    EXPECT_EQ(db.run("INSERT INTO t VALUES(10, 'x')"), SQLITE_BUSY) << "while the other reads";
    EXPECT_EQ(other.run("COMMIT"), SQLITE_OK);
    MUST(db, "INSERT INTO t VALUES(10, 'x')");
    EXPECT_EQ(other.text("SELECT sum(a) FROM t"), "16") << other.error();
    MUST(db, "INSERT INTO t VALUES(20, 'y')");
    db.close();
    EXPECT_EQ(other.text("SELECT sum(a) FROM t"), "36") << other.error();
    EXPECT_EQ(other.close(), SQLITE_OK);
    EXPECT_EQ(left(), 0u);
    EXPECT_EQ(stock_sum(path()), "36");
}

long open_descriptors()
{
    const std::filesystem::directory_iterator all("/proc/self/fd");
    return std::distance(begin(all), end(all));
}

TEST_F(SqliteNeighbours, DatabaseWithoutReflectionFolderIsReadOnly)
{
    make();
    ASSERT_EQ(chmod(path().c_str(), 0666), 0);
    ASSERT_EQ(chmod(folder.path().c_str(), 0555), 0);
    {
        const Nobody nobody;
        if (!nobody.is)
            GTEST_SKIP() << "cannot be another user here";
        const Db db(path());
        EXPECT_EQ(db.opened, SQLITE_OK);
        EXPECT_EQ(db.number("SELECT sum(a) FROM t"), 6) << db.error();
        EXPECT_EQ(db.run("INSERT INTO t VALUES(10, 'x')"), SQLITE_READONLY) << db.error();
        EXPECT_EQ(sqlite3_extended_errcode(db.handle), SQLITE_READONLY_DIRECTORY);
        EXPECT_EQ(db.run("PRAGMA journal_mode = memory; BEGIN IMMEDIATE"), SQLITE_READONLY);
        EXPECT_EQ(db.number("SELECT sum(a) FROM t"), 6) << db.error();
        const long before = open_descriptors();
        for (int i = 0; i < 20; i++)
            EXPECT_EQ(Db(path()).number("SELECT sum(a) FROM t"), 6);
        EXPECT_LE(open_descriptors(), before + 1);
    }
    ASSERT_EQ(chmod(folder.path().c_str(), 0755), 0);
    EXPECT_EQ(stock_sum(path()), "6");
}

/* An alarm kills a process that hangs. */
TEST_F(SqliteNeighbours, ForksDoNotHangWhileOthersOpenCloseAndCommit)
{
    if (with_sanitizer())
        GTEST_SKIP()
            << "AddressSanitizer's free() hangs in a child of a process whose threads allocate";
    make("a");
    make("b");
    EXPECT_EQ(support::in_child([&] {
                  alarm(60);
                  start();
                  std::atomic<bool> stop{false};
                  std::thread opens([&] {
                      while (!stop)
                          Db(path("c")).run("CREATE TABLE IF NOT EXISTS t(a)");
                  });
                  std::thread commits([&] {
                      Db db(path("a"));
                      db.run("ATTACH '" + uri(path("b")) + "' AS b");
                      while (!stop)
                          db.run("BEGIN; UPDATE main.t SET b=1+b WHERE a=1;"
                                 "UPDATE b.t SET b=1+b WHERE a=1; COMMIT");
                  });
                  int wrong = 0;
                  for (int i = 0; i < 500; i++)
                      wrong += support::in_child([] { return 0; }) != 0;
                  stop = true;
                  opens.join();
                  commits.join();
                  return wrong != 0;
              }),
              0);
}

/* A connection without locks is one of SQLite's own VFS: it keeps no journal in memory, and no mask off. */
TEST_F(SqliteNeighbours, WithoutLocksSQLitesOwnVfsReadsThePlainFile)
{
    make();
    const Db reader(path(), "mode=ro&nolock=1"), idle(path(), "nolock=1");
    EXPECT_EQ(reader.number("SELECT sum(a) FROM t"), 6);
    EXPECT_EQ(idle.number("SELECT sum(a) FROM t"), 6);
    EXPECT_EQ(idle.text("PRAGMA ato_stat"), "-");
    Db masks(path());
    MUST(masks, "INSERT INTO t VALUES(4, 'x')");
    EXPECT_EQ(reader.run("SELECT sum(a) FROM t"), SQLITE_NOTADB);
    EXPECT_EQ(idle.run("INSERT INTO t VALUES(5, 'x')"), SQLITE_NOTADB);
    MUST(masks, "DELETE FROM t WHERE a=4");
    EXPECT_EQ(masks.close(), SQLITE_OK);
    EXPECT_EQ(reader.number("SELECT sum(a) FROM t"), 6);
}

TEST_F(SqliteNeighbours, AForkedChildOpensItAnew)
{
    make();
    Db db(path());
    EXPECT_EQ(db.number("SELECT sum(a) FROM t"), 6);
    EXPECT_EQ(support::in_child([&] {
                  Db own(path());
                  return own.run("INSERT INTO t VALUES(10, 'x')") == SQLITE_OK &&
                                 own.number("SELECT sum(a) FROM t") == 16 &&
                                 own.close() == SQLITE_OK
                             ? 0
                             : 1;
              }),
              0);
    EXPECT_EQ(db.number("SELECT sum(a) FROM t"), 16);
    MUST(db, "INSERT INTO t VALUES(20, 'y')");
    db.close();
    EXPECT_EQ(stock_sum(path()), "36");
}

TEST_F(SqliteNeighbours, ADatabaseInWalModeTakesPartInACommitToSeveral)
{
    for (const char *wal : {"a", "b", "c"}) {
        const std::string prefix = std::string(wal) + "-";
        for (const char *name : {"a", "b", "c"}) {
            make(prefix + name);
            if (name == std::string(wal)) {
                MUST(Db::stock(path(prefix + name)), "PRAGMA journal_mode=WAL");
            }
        }
        Db db(path(prefix + "a"));
        MUST(db, "ATTACH '" + uri(path(prefix + "b")) + "' AS b; ATTACH '" +
                     uri(path(prefix + "c")) + "' AS c");
        MUST(db, "BEGIN; INSERT INTO main.t VALUES(10, 10); INSERT INTO b.t VALUES(10, 10);"
                 "INSERT INTO c.t VALUES(10, 10); COMMIT");
        EXPECT_EQ(db.number("SELECT (SELECT sum(a) FROM main.t) + (SELECT sum(a) FROM b.t) + "
                            "(SELECT sum(a) FROM c.t)"),
                  48)
            << wal;
    }
}

/* Another process delays the opening of one database; a process that is stopped, not killed, delays it half a
 * minute. */
TEST_F(SqliteNeighbours, WaitForADatabaseDoesNotBlockAnother)
{
    make();
    make("b.db");
    ASSERT_EQ(other.open(path()), SQLITE_OK);
    ASSERT_EQ(other.run("UPDATE t SET b=a"), SQLITE_OK);
    Db b(path("b.db"));
    MUST(b, "UPDATE t SET b=b||b");
    support::Peer stopped([&](const std::function<void()> &ready) {
        struct flock l = {};
        l.l_type = F_RDLCK;
        l.l_len = 1; /* the lock of a process that maps or unmaps */
        const int fd = open(support::manifest_of(path()).c_str(), O_RDONLY);
        if (fd < 0 || fcntl(fd, F_OFD_SETLK, &l) < 0)
            return 1;
        ready();
        return 0;
    });
    ASSERT_TRUE(stopped.is_ready());
    std::atomic<bool> opened{false};
    std::thread opener([&] {
        const Db a(path());
        EXPECT_EQ(a.number("SELECT sum(a) FROM t"), 6);
        opened = true;
    });
    usleep(20000);
    for (int turn = 0; turn < 10; turn++)
        EXPECT_EQ(b.run("UPDATE t SET b=b||b"), SQLITE_OK);
    EXPECT_EQ(b.number("SELECT sum(a) FROM t"), 6);
    EXPECT_FALSE(opened);
    EXPECT_EQ(stopped.end(), 0);
    opener.join();
    EXPECT_TRUE(opened);
}

/* When one connection gives up its lock, another takes it at once, and the memory of the first is freed soon. */
TEST_F(SqliteNeighbours, ThreadsThatOpenUpdateAndCloseDoNotMeetInTheJournal)
{
    make();
    std::atomic<int> wrong{0};
    std::vector<std::thread> threads;
    threads.reserve(6);
    for (int i = 0; i < 6; i++)
        threads.emplace_back([&] {
            for (int turn = 0; turn < 300; turn++) {
                Db db(path());
                sqlite3_busy_timeout(db.handle, 60000);
                if (db.run("UPDATE t SET b=a+1000") || db.close())
                    wrong++;
            }
        });
    for (std::thread &t : threads)
        t.join();
    EXPECT_EQ(wrong, 0);
    EXPECT_EQ(stock_sum(path()), "6");
}

} // namespace sql
