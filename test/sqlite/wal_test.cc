/* SPDX-License-Identifier: BSD-3-Clause */
/* Does WAL mode work, and is the current content read whatever PRAGMA mmap_size says? */
#include "lab.h"

#include <fcntl.h>
#include <functional>
#include <utility>

namespace sql
{

class SqliteWal : public Lab
{
};

class SqlitePages : public Lab
{
};

TEST_F(SqliteWal, IsReadWhileItIsWritten)
{
    make();
    Db db(path()), second(path());
    ASSERT_EQ(other.open(path()), SQLITE_OK);
    EXPECT_EQ(db.text("PRAGMA journal_mode=wal"), "wal");
    MUST(db, "PRAGMA cache_size=5; BEGIN; " + fill("t", 10, 300));
    EXPECT_EQ(names(), "a.db a.db-shm a.db-wal");
    EXPECT_EQ(second.number("SELECT count(*) FROM t"), 3);
    EXPECT_EQ(other.text("SELECT count(*) FROM t"), "3");
    EXPECT_EQ(second.run("DELETE FROM t"), SQLITE_BUSY);
    MUST(db, "COMMIT");
    EXPECT_EQ(second.number("SELECT count(*) FROM t"), 294);
    EXPECT_EQ(other.text("SELECT count(*) FROM t"), "294");
    MUST(db, "BEGIN; UPDATE t SET b=a; ROLLBACK");
    EXPECT_EQ(second.number("SELECT count(*) FROM t WHERE b=a"), 0);
}

TEST_F(SqliteWal, CheckpointsCopyItIntoTheFile)
{
    make();
    for (const char *how : {"passive", "full", "restart", "truncate"}) {
        Db db(path()), second(path());
        EXPECT_EQ(db.text("PRAGMA journal_mode=wal"), "wal");
        MUST(db, fill("t", 10, 300));
        EXPECT_EQ(second.number("SELECT count(*) FROM t"), 294);
        EXPECT_EQ(db.text(std::string("PRAGMA wal_checkpoint(") + how + ")"), "0");
        MUST(second, "DELETE FROM t WHERE a>5");
        EXPECT_EQ(db.number("SELECT count(*) FROM t"), 3);
        EXPECT_EQ(second.text(std::string("PRAGMA wal_checkpoint(") + how + ")"), "0");
        EXPECT_EQ(db.text("PRAGMA integrity_check"), "ok");
        EXPECT_EQ(db.close(), SQLITE_OK);
        EXPECT_EQ(second.close(), SQLITE_OK);
        EXPECT_EQ(names(), "a.db");
        EXPECT_EQ(left(), 0u);
        EXPECT_EQ(stock_sum(path()), "6");
    }
}

TEST_F(SqliteWal, GivesWayToJournalsAgain)
{
    make();
    Db db(path());
    for (int turn = 0; turn < 3; turn++) {
        EXPECT_EQ(db.text("PRAGMA journal_mode=wal"), "wal");
        MUST(db, fill("t", 10, 100));
        EXPECT_EQ(db.text("PRAGMA journal_mode=delete"), "delete");
        EXPECT_EQ(names(), "a.db");
        MUST(db, "PRAGMA cache_size=5; BEGIN; UPDATE t SET b=a; ROLLBACK; DELETE FROM t WHERE a>3");
        EXPECT_EQ(db.text("PRAGMA integrity_check"), "ok");
    }
    db.close();
    EXPECT_EQ(stock_sum(path()), "6");
}

TEST_F(SqliteWal, OfAKilledProcessIsRecovered)
{
    make();
    ASSERT_EQ(other.open(path()), SQLITE_OK);
    ASSERT_EQ(
        other.run("PRAGMA journal_mode=wal; PRAGMA cache_size=5; PRAGMA wal_autocheckpoint=10;" +
                  fill("t", 10, 100) + ";" + fill("t", 101, 200) + "; BEGIN;" +
                  fill("t", 201, 400)),
        SQLITE_OK);
    other.kill();
    Db db(path());
    EXPECT_EQ(db.number("SELECT count(*) FROM t"), 194);
    EXPECT_EQ(db.text("PRAGMA integrity_check"), "ok");
    EXPECT_EQ(db.close(), SQLITE_OK);
    EXPECT_EQ(names(), "a.db");
    const Db stock = Db::stock(path());
    EXPECT_EQ(stock.number("SELECT count(*) FROM t"), 194);
}

TEST_F(SqliteWal, ShrinksByVacuumAndCheckpoint)
{
    make();
    Db db(path());
    MUST(db,
         "PRAGMA journal_mode=wal;" + fill("t", 10, 1000) + "; PRAGMA wal_checkpoint(truncate)");
    MUST(db, "DELETE FROM t WHERE a>5; VACUUM; PRAGMA wal_checkpoint(truncate)");
    EXPECT_EQ(db.number("PRAGMA page_count"), 3);
    MUST(db, fill("t", 10, 1000) + "; PRAGMA wal_checkpoint");
    EXPECT_EQ(db.text("PRAGMA integrity_check"), "ok");
    MUST(db, "DELETE FROM t WHERE a>5; VACUUM");
    db.close();
    EXPECT_EQ(support::size_of(path()), 3u * 4096);
    EXPECT_EQ(stock_sum(path()), "6");
}

/* SQLite cuts the file after the last close's checkpoint; without a sync in mode `off`. */
TEST_F(SqliteWal, OfTheLastCloseCutsTheFile)
{
    for (const char *synchronous : {"off", "normal", "full"}) {
        make("a.db", "DROP TABLE IF EXISTS t");
        Db db(path());
        MUST(db, "PRAGMA journal_mode=wal; PRAGMA synchronous=" + std::string(synchronous) + ";" +
                     fill("t", 10, 1000) + "; PRAGMA wal_checkpoint");
        MUST(db, "DELETE FROM t WHERE a>5; VACUUM");
        EXPECT_EQ(db.close(), SQLITE_OK);
        EXPECT_EQ(support::size_of(path()), 3u * 4096) << synchronous;
        EXPECT_EQ(stock_sum(path()), "6");
    }
}

/* The other connection commits to the log, without a change of page 1, and closes: SQLite 3.40 by itself goes on with its cache, and writes
 * over that commit. In memory too: then the first write came before the log. */
TEST_F(SqliteWal, LeavingItKeepsWhatOthersHaveCommitted)
{
    for (const bool in_memory : {false, true}) {
        make();
        Db db(path());
        if (in_memory) {
            MUST(db, "UPDATE t SET a=a");
        }
        MUST(db, "PRAGMA journal_mode=wal; UPDATE t SET b=b||'!' WHERE a=1");
        EXPECT_EQ(db.number("SELECT count(*) FROM t"), 3);
        ASSERT_EQ(other.open(path()), SQLITE_OK);
        ASSERT_EQ(other.run("INSERT INTO t VALUES(4, 'four')"), SQLITE_OK) << other.error();
        ASSERT_EQ(other.close(), SQLITE_OK);
        EXPECT_EQ(db.text("PRAGMA journal_mode=delete"), "delete");
        MUST(db, "INSERT INTO t VALUES(5, 'five')");
        EXPECT_EQ(db.number("SELECT sum(a) FROM t"), 15) << in_memory;
        EXPECT_EQ(db.text("PRAGMA integrity_check"), "ok");
        EXPECT_EQ(db.close(), SQLITE_OK);
        EXPECT_EQ(stock_sum(path()), "15");
        ASSERT_EQ(unlink(path().c_str()), 0);
    }
}

/* Called once, when SQLite's own VFS has got RESERVED. */
static std::function<void()> when_reserved;

static int fcntl_and_more(int fd, int command, struct flock *lock)
{
    const int r = fcntl(fd, command, lock);
    if (r == 0 && command == F_SETLK && lock->l_type == F_WRLCK && lock->l_start == 0x40000001)
        std::exchange(when_reserved, [] {})();
    return r;
}

/* A connection has closed the log to leave WAL mode, and found none when it looked again; then another one makes a new log before the
 * first one has EXCLUSIVE. */
TEST_F(SqliteWal, IsNotLeftIfOthersBeginALogMeanwhile)
{
    make("a.db", "PRAGMA journal_mode=wal");
    sqlite3_vfs *unix_vfs = sqlite3_vfs_find("unix");
    const auto real = unix_vfs->xGetSystemCall(unix_vfs, "fcntl");
    when_reserved = [] {};
    ASSERT_EQ(unix_vfs->xSetSystemCall(unix_vfs, "fcntl",
                                       reinterpret_cast<sqlite3_syscall_ptr>(fcntl_and_more)),
              SQLITE_OK);
    Db db(path());
    MUST(db, "UPDATE t SET b=b||'!' WHERE a=1");
    ASSERT_EQ(other.open(path()), SQLITE_OK);
    int committed = SQLITE_ERROR;
    when_reserved = [&] {
        committed = other.run("INSERT INTO t VALUES(4, 'four')");
        (void)other.close();
    };
    EXPECT_EQ(db.run("PRAGMA journal_mode=delete"), SQLITE_BUSY);
    EXPECT_EQ(committed, SQLITE_OK);
    EXPECT_EQ(unix_vfs->xSetSystemCall(unix_vfs, "fcntl", real), SQLITE_OK);
    MUST(db, "INSERT INTO t VALUES(5, 'five')");
    EXPECT_EQ(db.number("SELECT sum(a) FROM t"), 15);
    EXPECT_EQ(db.text("PRAGMA integrity_check"), "ok");
    EXPECT_EQ(db.close(), SQLITE_OK);
    EXPECT_EQ(stock_sum(path()), "15");
}

/* This VFS gives out no pages: SQLite reads them. */
TEST_F(SqlitePages, AreReadWhateverMmapSizeSays)
{
    for (const char *mode : {"delete", "wal"}) {
        SCOPED_TRACE(mode);
        const std::string name = std::string(mode) + ".db";
        make(name, std::string("PRAGMA journal_mode=") + mode);
        Db db(path(name)), writer(path(name));
        EXPECT_EQ(db.text("PRAGMA mmap_size=100000000"), "0");
        MUST(writer, fill("t", 10, 300));
        for (int turn = 0; turn < 30; turn++) {
            MUST(writer, "UPDATE t SET b=printf('%400d-" + std::to_string(turn) + "', a)");
            EXPECT_EQ(
                db.number("SELECT count(*) FROM t WHERE b LIKE '%-" + std::to_string(turn) + "'"),
                294);
        }
        MUST(writer, "DELETE FROM t WHERE a>5; VACUUM; PRAGMA wal_checkpoint(truncate)");
        EXPECT_EQ(db.number("SELECT count(*) FROM t"), 3);
        EXPECT_EQ(db.text("PRAGMA integrity_check"), "ok");
        EXPECT_EQ(db.text("PRAGMA mmap_size=0"), "0");
        EXPECT_EQ(db.number("SELECT count(*) FROM t"), 3);
    }
}

} // namespace sql
