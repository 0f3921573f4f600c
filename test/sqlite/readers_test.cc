/* SPDX-License-Identifier: BSD-3-Clause */
/* A process that begins transactions very often has its locks in memory, although it only reads: does the database stay as it is, and
 * does it see what others write? */
#include "lab.h"

#include "support/child.h"
#include "support/temp.h"

#include <atomic>
#include <chrono>
#include <string>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace sql
{

class SqliteReaders : public Lab
{
  protected:
    SqliteReaders()
    {
        make();
    }
    std::string object() const
    {
        struct stat st;
        char name[128];
        (void)stat(path().c_str(), &st);
        (void)snprintf(name, sizeof(name), "/dev/shm/ato-%jx-%ju-%u", uintmax_t(st.st_dev),
                       uintmax_t(st.st_ino), geteuid());
        return name;
    }
    bool is_in_memory() const
    {
        return support::exists(object());
    }
    /* Reads until the locks are in memory. */
    bool read_often(const Db &db) const
    {
        const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
        while (!is_in_memory() && std::chrono::steady_clock::now() < end)
            for (int i = 0; i < 600; i++)
                if (db.number("SELECT sum(a) FROM t") != 6)
                    return false;
        return is_in_memory();
    }
    /* Reads often in another process. */
    void others_read_often()
    {
        std::string often;
        for (int i = 0; i < 600; i++)
            often += "SELECT sum(a) FROM t;";
        ASSERT_EQ(other.open(path()), SQLITE_OK);
        for (int i = 0; i < 1000 && !is_in_memory(); i++)
            ASSERT_EQ(other.run(often), SQLITE_OK);
    }
    struct timespec ctime() const
    {
        struct stat st;
        (void)stat(path().c_str(), &st);
        return st.st_ctim;
    }
    void expect_untouched(const struct timespec &before) const
    {
        EXPECT_FALSE(support::exists(folder / ".ato"));
        EXPECT_LT(getxattr(path().c_str(), "user.ato", nullptr, 0), 0);
        EXPECT_EQ(ctime().tv_sec, before.tv_sec);
        EXPECT_EQ(ctime().tv_nsec, before.tv_nsec);
    }
};

TEST_F(SqliteReaders, MakeNothing)
{
    const struct timespec before = ctime();
    {
        Db db(path()), second(path());
        ASSERT_TRUE(read_often(db));
        expect_untouched(before);
        EXPECT_EQ(second.number("SELECT sum(a) FROM t"), 6);
        EXPECT_EQ(db.text("PRAGMA integrity_check"), "ok");
        EXPECT_EQ(Db::stock(path()).run("SELECT * FROM t"), SQLITE_BUSY);
        EXPECT_EQ(db.close(), SQLITE_OK);
        EXPECT_EQ(second.number("SELECT sum(a) FROM t"), 6);
    }
    EXPECT_FALSE(is_in_memory());
    expect_untouched(before);
    EXPECT_EQ(stock_sum(path()), "6");
}

TEST_F(SqliteReaders, LeaveTheDatabaseToOthersIfTheyMayOnlyRead)
{
    Db db(path(), "mode=ro"), stock = Db::stock(path());
    for (int i = 0; i < 2000; i++)
        ASSERT_EQ(db.number("SELECT sum(a) FROM t"), 6);
    EXPECT_FALSE(is_in_memory());
    MUST(stock, "INSERT INTO t VALUES(4, 'four')");
    EXPECT_EQ(db.number("SELECT sum(a) FROM t"), 10);
}

TEST_F(SqliteReaders, SeeWhatOthersWriteAndTheLastOneMakesItPlain)
{
    Db db(path());
    ASSERT_TRUE(read_often(db));
    for (int i = 0; i < 3;
         i++) { /* each time the writer is the only one that has it mapped for writing, at first */
        ASSERT_EQ(other.open(path()), SQLITE_OK);
        ASSERT_EQ(other.run("UPDATE t SET a = a + 10"), SQLITE_OK) << other.error();
        if (i != 1) {
            EXPECT_EQ(db.number("SELECT sum(a) FROM t"), 6 + 30 * (i + 1));
        }
        ASSERT_EQ(other.close(), SQLITE_OK);
    }
    EXPECT_EQ(db.number("SELECT sum(a) FROM t"), 96);
    MUST(db, "INSERT INTO t VALUES(4, 'four')");
    EXPECT_EQ(db.close(), SQLITE_OK);
    EXPECT_EQ(left(), 0u);
    EXPECT_FALSE(is_in_memory());
    EXPECT_EQ(stock_sum(path()), "100");
}

/* The writer is closed before the reader looks again: it is the reader that makes the database plain. */
TEST_F(SqliteReaders, MakePlainWhatTheyHaveNeverRead)
{
    Db db(path());
    ASSERT_TRUE(read_often(db));
    ASSERT_EQ(other.open(path()), SQLITE_OK);
    ASSERT_EQ(other.run("UPDATE t SET a = a + 10"), SQLITE_OK) << other.error();
    ASSERT_EQ(other.close(), SQLITE_OK);
    EXPECT_EQ(db.close(), SQLITE_OK);
    EXPECT_EQ(left(), 0u);
    EXPECT_EQ(stock_sum(path()), "36");
}

/* The same by one that ends without a close. */
TEST_F(SqliteReaders, MakePlainAtTheirEndWhatTheyHaveNeverRead)
{
    EXPECT_EQ(support::in_exiting_child([&] {
                  alarm(60);
                  const Db *db = new Db(path());
                  return read_often(*db) && other.open(path()) == SQLITE_OK &&
                                 other.run("UPDATE t SET a = a + 10") == SQLITE_OK &&
                                 other.close() == SQLITE_OK
                             ? 0
                             : 1;
              }),
              0);
    EXPECT_EQ(left(), 0u);
    EXPECT_FALSE(is_in_memory());
    EXPECT_EQ(stock_sum(path()), "36");
}

TEST_F(SqliteReaders, GoOnAfterAKilledWriter)
{
    Db db(path());
    ASSERT_TRUE(read_often(db));
    ASSERT_EQ(other.open(path()), SQLITE_OK);
    ASSERT_EQ(other.run("UPDATE t SET a = a + 10; PRAGMA cache_size = 1; BEGIN EXCLUSIVE;" +
                        fill("t", 100, 300)),
              SQLITE_OK)
        << other.error();
    other.kill();
    EXPECT_EQ(db.number("SELECT sum(a) FROM t"), 36);
    MUST(db, "INSERT INTO t VALUES(4, 'four')");
    EXPECT_EQ(db.close(), SQLITE_OK);
    EXPECT_EQ(stock_sum(path()), "40");
}

/* It has read, so that it waits for no living writer. */
TEST_F(SqliteReaders, MayWriteAtOnceWhenAWriterBesideThemWasKilled)
{
    Db db(path());
    ASSERT_TRUE(read_often(db));
    ASSERT_EQ(other.open(path()), SQLITE_OK);
    ASSERT_EQ(other.run("UPDATE t SET a = a + 10; BEGIN IMMEDIATE"), SQLITE_OK) << other.error();
    MUST(db, "BEGIN; SELECT sum(a) FROM t");
    EXPECT_EQ(db.run("UPDATE t SET a = a + 10"), SQLITE_BUSY);
    other.kill();
    MUST(db, "UPDATE t SET a = a + 10; COMMIT");
    EXPECT_EQ(db.close(), SQLITE_OK);
    EXPECT_EQ(stock_sum(path()), "66");
}

TEST_F(SqliteReaders, KilledOnesAreInNobodysWay)
{
    others_read_often();
    other.kill();
    EXPECT_TRUE(is_in_memory());
    EXPECT_EQ(stock_sum(path()), "6");
    Db db(path());
    MUST(db, "INSERT INTO t VALUES(4, 'four')");
    EXPECT_EQ(db.close(), SQLITE_OK);
    EXPECT_FALSE(is_in_memory());
    EXPECT_EQ(stock_sum(path()), "10");
}

/* One that reads seldom joins those that have their locks in memory. */
TEST_F(SqliteReaders, AreJoinedByOthers)
{
    others_read_often();
    ASSERT_TRUE(is_in_memory());
    Db db(path());
    EXPECT_EQ(db.number("SELECT sum(a) FROM t"), 6);
    expect_untouched(ctime());
    MUST(db, "INSERT INTO t VALUES(4, 'four')");
    EXPECT_EQ(other.text("SELECT sum(a) FROM t"), "10");
    EXPECT_EQ(other.run("INSERT INTO t VALUES(5, 'five')"), SQLITE_OK) << other.error();
    EXPECT_EQ(db.number("SELECT sum(a) FROM t"), 15);
    EXPECT_EQ(db.close(), SQLITE_OK);
    EXPECT_EQ(other.text("SELECT sum(a) FROM t"), "15");
    EXPECT_EQ(other.close(), SQLITE_OK);
    EXPECT_EQ(left(), 0u);
    EXPECT_EQ(stock_sum(path()), "15");
}

/* A copy of another database over the file: a reader of SQLite's own VFS would see it, too. */
/* In a child, which would die. */
TEST_F(SqliteReaders, OfADatabaseThatIsCutGetAnError)
{
    EXPECT_EQ(support::in_child([&] {
                  const Db db(path());
                  if (!read_often(db))
                      return 1;
                  (void)!truncate(path().c_str(), 0);
                  for (int i = 0; i < 100; i++)
                      if (db.run("SELECT sum(a) FROM t") == SQLITE_OK)
                          return 2;
                  return 0;
              }),
              0);
}

/* Another program cuts the memory of the locks: no transaction begins any more that other processes would not see. */
TEST_F(SqliteReaders, AndWritersWhoseLocksAreCutGetAnError)
{
    EXPECT_EQ(support::in_child([&] {
                  Db db(path()), second(path());
                  if (!read_often(db) || db.run("UPDATE t SET b = 1 WHERE a = 1") != SQLITE_OK ||
                      second.run("BEGIN; SELECT * FROM t") != SQLITE_OK)
                      return 1;
                  (void)!truncate(object().c_str(), 0);
                  if (db.run("SELECT sum(a) FROM t") != SQLITE_IOERR ||
                      db.run("UPDATE t SET b = 2 WHERE a = 1") != SQLITE_IOERR ||
                      second.run("UPDATE t SET b = 3 WHERE a = 1") != SQLITE_IOERR)
                      return 2;
                  (void)second.close();
                  (void)db.close();
                  const Db anew(path());
                  return anew.number("SELECT b FROM t WHERE a = 1") == 1 &&
                                 anew.run("UPDATE t SET b = 4 WHERE a = 1") == SQLITE_OK
                             ? 0
                             : 3;
              }),
              0);
}

TEST_F(SqliteReaders, SeeABackupThatIsCopiedOverTheFile)
{
    make("small.db");
    make("large.db");
    MUST(Db::stock(path("small.db")), "UPDATE t SET a = a + 10");
    MUST(Db::stock(path("large.db")), fill("t", 10, 100));
    const std::string large = Db::stock(path("large.db")).text("SELECT sum(a) FROM t");
    Db db(path());
    ASSERT_TRUE(read_often(db));
    ASSERT_EQ(system(("cp " + path("small.db") + " " + path()).c_str()), 0);
    EXPECT_EQ(db.number("SELECT sum(a) FROM t"), 36);
    ASSERT_EQ(system(("cp " + path("large.db") + " " + path()).c_str()), 0);
    usleep(20000); /* its length is looked at every 10 ms */
    EXPECT_EQ(db.text("SELECT sum(a) FROM t"), large);
    EXPECT_EQ(db.text("PRAGMA integrity_check"), "ok");
    EXPECT_FALSE(support::exists(folder / ".ato"));
    MUST(db, "DELETE FROM t WHERE a >= 10");
    EXPECT_EQ(db.close(), SQLITE_OK);
    EXPECT_EQ(stock_sum(path()), "6");
}

TEST_F(SqliteReaders, InManyThreadsSeeTheWriterOfAnother)
{
    Db db(path());
    ASSERT_TRUE(read_often(db));
    MUST(db, "PRAGMA busy_timeout=10000");
    std::atomic<bool> wrong{false}, over{false};
    std::vector<std::thread> threads;
    for (int i = 0; i < 3; i++)
        threads.emplace_back([&] {
            const Db own(path());
            own.run("PRAGMA busy_timeout=10000");
            sqlite3_int64 seen = 6;
            while (!over) {
                const sqlite3_int64 sum = own.number("SELECT sum(a) FROM t");
                wrong = wrong || sum < seen || sum % 30 != 6;
                seen = sum;
            }
        });
    for (int i = 0; i < 200; i++)
        EXPECT_EQ(db.run("UPDATE t SET a = a + 10"), SQLITE_OK) << db.error();
    over = true;
    for (std::thread &t : threads)
        t.join();
    EXPECT_FALSE(wrong);
    EXPECT_EQ(db.number("SELECT sum(a) FROM t"), 6006);
}

} // namespace sql
