/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What does a program that does not use libato read? SQLITE_NOTADB while a page of the database may be in the
 * reflection, else the whole database; never a mixture. Connections through ato are not disturbed.
 */
#include "lab.h"

#include "ato.h"

#include "support/child.h"
#include "support/temp.h"

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <sys/mman.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

using namespace sql;

namespace
{

class SqliteOthers : public Lab
{
  protected:
    /* `other` is a connection of another process through SQLite's own VFS. It has read the table and is idle. */
    void look()
    {
        make();
        ASSERT_EQ(other.open_stock(path()), SQLITE_OK);
        ASSERT_EQ(other.text("SELECT sum(a) FROM t"), "6");
    }
    void expect_refused(Remote &stock)
    {
        EXPECT_EQ(stock.run("SELECT sum(a) FROM t"), SQLITE_NOTADB);
        EXPECT_EQ(stock.run("INSERT INTO t VALUES(1000, 1000)"), SQLITE_NOTADB);
        EXPECT_EQ(stock.run("VACUUM INTO '" + path("copy.db") + "'"), SQLITE_NOTADB);
    }
    /* A guard without a mask: a process leaves it if it is killed between guard and mask, or after taking the mask
     * off. */
    void guard() const
    {
        EXPECT_EQ(support::in_child([&] {
                      char plain[7];
                      char *view = map();
                      return ato_memcpy(plain, view + 21, 7) &&
                                     (ato_set_guard(view, 21, plain, 7) == 0 || errno == EEXIST)
                                 ? 0
                                 : 1;
                  }),
                  0);
    }
    unsigned guarded() const
    {
        return static_cast<unsigned>(support::in_child([&] {
            struct ato_status st = {};
            st.struct_size = sizeof(st);
            return ato_stat(map(), &st) == 0 ? static_cast<int>(st.guard_bytes) : 100;
        }));
    }
    Remote late; /* opens the database when it is masked */

  private:
    char *map() const
    {
        support::Fd fd(path());
        return static_cast<char *>(
            ato_mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
    }
};

TEST_F(SqliteOthers, AreRefusedFromTheFirstCommitToTheLastClose)
{
    look();
    Db db(path()), second(path());
    EXPECT_EQ(db.number("SELECT sum(a) FROM t"), 6);
    EXPECT_EQ(other.text("SELECT sum(a) FROM t"), "6") << "no connection has written";
    MUST(db, "INSERT INTO t VALUES(4, 4)");
    ASSERT_EQ(late.open_stock(path()), SQLITE_OK);
    for (int i = 5; i < 9; i++) {
        expect_refused(other);
        expect_refused(late);
        MUST(i % 2 ? db : second,
             "INSERT INTO t VALUES(" + std::to_string(i) + ", " + std::to_string(i) + ")");
        EXPECT_EQ(second.text("PRAGMA integrity_check"), "ok");
        EXPECT_EQ(second.number("SELECT count(*) FROM t"), i);
    }
    EXPECT_EQ(db.close(), SQLITE_OK);
    expect_refused(other);
    EXPECT_EQ(second.close(), SQLITE_OK);
    for (Remote *stock : {&other, &late}) {
        EXPECT_EQ(stock->text("SELECT sum(a) FROM t WHERE a<9"), "36") << stock->error();
        EXPECT_EQ(stock->text("PRAGMA integrity_check"), "ok");
        EXPECT_EQ(stock->run(stock == &late ? "INSERT INTO t VALUES(9, 9)"
                                            : "INSERT INTO t VALUES(10, 10)"),
                  SQLITE_OK);
    }
    EXPECT_EQ(Db(path()).number("SELECT sum(a) FROM t"), 55);
    EXPECT_EQ(left(), 0u);
}

/* A connection through ato and one through SQLite's own VFS commit in turns: each reads all commits. */
TEST_F(SqliteOthers, SeeEachCommitOfATurn)
{
    look();
    for (int i = 4; i < 20; i++) {
        const std::string insert =
            "INSERT INTO t VALUES(" + std::to_string(i) + ", " + std::to_string(i) + ")";
        if (i % 3) {
            Db db(path());
            EXPECT_EQ(db.number("SELECT count(*) FROM t"), i - 1);
            MUST(db, insert);
        } else {
            ASSERT_EQ(other.run(insert), SQLITE_OK) << other.error();
        }
        EXPECT_EQ(other.text("SELECT count(*) FROM t"), std::to_string(i));
    }
    EXPECT_EQ(other.text("PRAGMA integrity_check"), "ok");
}

TEST_F(SqliteOthers, AreRefusedAfterAKillAndAFastUnmap)
{
    for (const bool kill : {false, true}) {
        const std::string name = kill ? "kill.db" : "fast.db";
        make(name);
        Remote writer;
        ASSERT_EQ(writer.open(path(name), kill ? "" : "unmap=fast"), SQLITE_OK);
        ASSERT_EQ(writer.run("INSERT INTO t VALUES(4, 4)"), SQLITE_OK);
        kill ? writer.kill() : (void)writer.close();
        EXPECT_EQ(Db::stock(path(name)).run("SELECT * FROM t"), SQLITE_NOTADB);
        if (kill)
            EXPECT_EQ(Db(path(name)).number("SELECT sum(a) FROM t"), 10);
        else
            EXPECT_EQ(Db(path(name), "", SQLITE_OPEN_READONLY).number("SELECT sum(a) FROM t"), 10);
        EXPECT_EQ(stock_sum(path(name)), "10");
    }
}

/* A growth through ato was rolled back or cut off before. */
TEST_F(SqliteOthers, MayAppendAPageOfZeros)
{
    const std::string grow = fill("t", 10, 300);
    for (const std::string &change :
         {std::string("PRAGMA ato_read_policy=eager; BEGIN; ") + grow + "; ROLLBACK",
          "PRAGMA ato_read_policy=eager; " + grow + "; DELETE FROM t WHERE a>9; VACUUM",
          "BEGIN; " + grow + "; ROLLBACK; PRAGMA journal_mode=WAL"}) {
        SCOPED_TRACE(change);
        support::write_file(path(), {});
        make();
        MUST(Db::stock(path()), "CREATE TABLE z(b)");
        Db db(path());
        MUST(db, "PRAGMA cache_size=5; " + change);
        /* The last page of this table is an overflow page with only zeros. */
        MUST(Db::stock(path()), "INSERT INTO z VALUES(zeroblob(4500)); PRAGMA wal_checkpoint");
        EXPECT_EQ(db.close(), SQLITE_OK);
        EXPECT_EQ(Db::stock(path()).text("PRAGMA integrity_check"), "ok");
        EXPECT_EQ(Db(path()).text("SELECT sum(length(b)) FROM z"), "4500");
        EXPECT_EQ(Db::stock(path()).text("PRAGMA integrity_check"), "ok");
    }
}

/* The process exits without closing the database. An open transaction is rolled back. */
TEST_F(SqliteOthers, ReadAllCommitsAfterAnExitWithoutAClose)
{
    make();
    EXPECT_EQ(support::in_child([&] {
                  const auto *db = new Db(path());
                  if (db->run("INSERT INTO t VALUES(4, 4); BEGIN; INSERT INTO t VALUES(5, 5)") !=
                      SQLITE_OK)
                      return 1;
                  std::exit(0);
              }),
              0);
    EXPECT_EQ(left(), 0u);
    EXPECT_EQ(stock_sum(path()), "10");
    /* The process still holds SQLite's locks when it exits. */
    EXPECT_EQ(support::in_child([&] {
                  const auto *db = new Db(path());
                  if (db->run("PRAGMA locking_mode=exclusive; INSERT INTO t VALUES(5, 5)") !=
                      SQLITE_OK)
                      return 1;
                  std::exit(0);
              }),
              0);
    EXPECT_EQ(left(), 0u);
    EXPECT_EQ(stock_sum(path()), "15");
}

/* Another process closes the database and makes it plain: it holds PENDING, and may die while its child lives on. */
TEST_F(SqliteOthers, AreWaitedForInALastClose)
{
    make();
    Db db(path());
    MUST(db, "INSERT INTO t VALUES(4, 4)");
    support::Pipe locked;
    const pid_t closer = fork();
    if (closer == 0) {
        struct flock pending = {};
        pending.l_type = F_WRLCK;
        pending.l_whence = SEEK_SET;
        pending.l_start = 0x40000000;
        pending.l_len = 1;
        const int fd = open(path().c_str(), O_RDWR | O_CLOEXEC);
        const bool good = fcntl(fd, F_OFD_SETLK, &pending) == 0;
        locked.tell();
        usleep(300 * 1000);
        _exit(good ? 0 : 1);
    }
    locked.hear();
    EXPECT_EQ(db.close(), SQLITE_OK);
    int status = 1;
    waitpid(closer, &status, 0);
    EXPECT_EQ(status, 0);
    EXPECT_EQ(left(), 0u);
    EXPECT_EQ(stock_sum(path()), "10");
}

long descriptors_of(const std::string &path)
{
    long n = 0;
    for (const auto &fd : std::filesystem::directory_iterator("/proc/self/fd")) {
        std::error_code gone;
        n += std::filesystem::read_symlink(fd, gone) == path;
    }
    return n;
}

/* The descriptor with the lock of the last close is not inherited: a child would keep that lock when its parent
 * dies. */
TEST_F(SqliteOthers, AreNotLockedOutByAForkedChild)
{
    make();
    const Db db(path());
    const long all = descriptors_of(path());
    EXPECT_EQ(support::in_child([&] { return static_cast<int>(all - descriptors_of(path())); }), 1);
}

/* One process has its journal on the disk and writes through; the other stages its writes. */
TEST_F(SqliteOthers, SeeCommitsOfAProcessThatWritesThrough)
{
    make();
    ASSERT_EQ(other.open(path(), "journal=file"), SQLITE_OK);
    ASSERT_EQ(other.text("SELECT sum(a) FROM t"), "6");
    Db db(path());
    EXPECT_EQ(db.number("SELECT sum(a) FROM t"), 6);
    EXPECT_EQ(other.run(fill("t", 100, 300)), SQLITE_OK) << other.error();
    MUST(db, "INSERT INTO t VALUES(4, 4)");
    EXPECT_EQ(other.run("INSERT INTO t VALUES(5, 5)"), SQLITE_OK) << other.error();
    EXPECT_EQ(db.number("SELECT sum(a) FROM t WHERE a<100"), 15);
    EXPECT_EQ(db.text("PRAGMA integrity_check"), "ok");
}

/* SQLite reads 4096 bytes before it knows the page size. */
TEST_F(SqliteOthers, DoNotHinderAtoInADatabaseSmallerThanAPage)
{
    Db db(path());
    MUST(db, "PRAGMA page_size=512; CREATE TABLE t(a); INSERT INTO t VALUES(1)");
    EXPECT_EQ(Db(path()).number("SELECT sum(a) FROM t"), 1);
    EXPECT_EQ(Db::stock(path()).run("SELECT * FROM t"), SQLITE_NOTADB);
}

/* Connections that have not written yet read the rows that stock SQLite writes, and the file's new length. */
TEST_F(SqliteOthers, MayChangeItsLengthBeforeTheFirstWrite)
{
    make();
    Db db(path());
    EXPECT_EQ(db.number("SELECT count(*) FROM t"), 3);
    ASSERT_EQ(other.open(path()), SQLITE_OK);
    EXPECT_EQ(other.text("SELECT count(*) FROM t"), "3");
    MUST(Db::stock(path()), fill("t", 10, 300));
    EXPECT_EQ(db.number("SELECT count(*) FROM t"), 294);
    EXPECT_EQ(other.text("SELECT count(*) FROM t"), "294");
    EXPECT_EQ(db.text("PRAGMA integrity_check"), "ok");
    EXPECT_EQ(other.run("DELETE FROM t WHERE a>50"), SQLITE_OK) << other.error();
    EXPECT_EQ(db.number("SELECT count(*) FROM t"), 44);
    MUST(db, "DELETE FROM t WHERE a>5");
    EXPECT_EQ(other.text("SELECT count(*) FROM t"), "3");
    EXPECT_EQ(db.text("PRAGMA integrity_check"), "ok");
}

/* The header is not known before the first commit. */
TEST_F(SqliteOthers, AreRefusedANewDatabase)
{
    Remote writer;
    ASSERT_EQ(writer.open(path()), SQLITE_OK);
    ASSERT_EQ(writer.run("CREATE TABLE t(a); INSERT INTO t VALUES(1)"), SQLITE_OK);
    EXPECT_EQ(Db::stock(path()).run("SELECT * FROM t"), SQLITE_NOTADB);
    writer.kill();
    EXPECT_EQ(Db::stock(path()).run("SELECT * FROM t"), SQLITE_NOTADB);
    EXPECT_EQ(Db(path()).number("SELECT sum(a) FROM t"), 1);
    EXPECT_EQ(stock_sum(path()), "1");
}

/* Stock SQLite may open it as soon as it is in WAL mode, and is refused when it no longer is. */
TEST_F(SqliteOthers, ShareADatabaseInWalMode)
{
    make();
    Db db(path());
    MUST(db, "INSERT INTO t VALUES(4, 4); PRAGMA journal_mode=WAL; INSERT INTO t VALUES(5, 5)");
    ASSERT_EQ(other.open_stock(path()), SQLITE_OK);
    int n = 5;
    for (const char *also :
         {"", "PRAGMA wal_checkpoint(FULL);", "PRAGMA wal_checkpoint(TRUNCATE);", ""})
        for (const bool ours : {true, false}) {
            const std::string text = std::to_string(++n), change = "INSERT INTO t VALUES(" + text +
                                                                   ", randomblob(9000)); " + also;
            EXPECT_EQ(ours ? db.run(change) : other.run(change), SQLITE_OK) << also << ours;
            EXPECT_EQ(other.text("SELECT count(*) FROM t WHERE length(b)>0"), text) << also << ours;
            EXPECT_EQ(db.text("SELECT count(*) FROM t WHERE length(b)>0"), text) << also << ours;
            EXPECT_EQ(other.text("PRAGMA integrity_check"), "ok") << also << ours;
        }
    EXPECT_EQ(other.close(), SQLITE_OK);
    MUST(db, "PRAGMA journal_mode=DELETE; INSERT INTO t VALUES(100, 100)");
    ASSERT_EQ(other.open_stock(path()), SQLITE_OK);
    expect_refused(other);
}

/* The same with policy eager: stock SQLite makes the file longer than the mapping. */
TEST_F(SqliteOthers, ShareADatabaseInWalModeWithPolicyEager)
{
    make();
    Db db(path());
    EXPECT_EQ(db.text("PRAGMA ato_read_policy=eager"), "eager");
    MUST(db, "PRAGMA journal_mode=WAL; INSERT INTO t VALUES(4, 4)");
    MUST(Db::stock(path()), fill("t", 10, 2000) + "; PRAGMA wal_checkpoint");
    EXPECT_EQ(db.number("SELECT count(*) FROM t"), 1995);
    EXPECT_EQ(db.text("PRAGMA integrity_check"), "ok");
}

/* Bytes that stock SQLite writes meanwhile are not undone. */
TEST_F(SqliteOthers, MayWriteADatabaseWithAGuardAndNoMask)
{
    look();
    guard();
    EXPECT_EQ(guarded(), 7u);
    MUST(Db::stock(path()), "UPDATE t SET a=a+10");
    {
        const Db db(path(), "unmap=fast");
        EXPECT_EQ(db.number("SELECT sum(a) FROM t"), 36);
    }
    guard();
    MUST(Db::stock(path()), "UPDATE t SET a=a+10");
    EXPECT_EQ(Db(path()).opened, SQLITE_OK);
    EXPECT_EQ(left(), 0u);
    EXPECT_EQ(other.text("SELECT sum(a) FROM t"), "66");
    guard();
    MUST(Db::stock(path()), fill("t", 100, 2000));
    EXPECT_EQ(Db(path()).number("SELECT count(*) FROM t"), 1904);
    EXPECT_EQ(left(), 0u);
}

/* The guard may belong to a connection that is about to mask the file. */
TEST_F(SqliteOthers, DoNotRemoveTheGuardOfAWriter)
{
    make();
    ASSERT_EQ(other.open(path()), SQLITE_OK);
    ASSERT_EQ(other.run("BEGIN EXCLUSIVE"), SQLITE_OK);
    guard();
    EXPECT_EQ(Db(path()).opened, SQLITE_OK);
    EXPECT_EQ(guarded(), 7u);
    EXPECT_EQ(other.run("COMMIT"), SQLITE_OK);
    EXPECT_EQ(other.close(), SQLITE_OK);
    EXPECT_EQ(left(), 0u);
    EXPECT_EQ(stock_sum(path()), "6");
}

/* With a journal on the disk, the VFS below cuts the file. */
TEST_F(SqliteOthers, CutARolledBackDatabaseToSizeZero)
{
    Db db(path(), "journal=file");
    MUST(db, "PRAGMA cache_size=1; BEGIN; CREATE TABLE t(a)");
    MUST(db, "CREATE TABLE u(a); INSERT INTO t VALUES(zeroblob(100000)); INSERT INTO u "
             "VALUES(zeroblob(100000))");
    EXPECT_GT(support::read_file(path()).size(), 0u);
    MUST(db, "ROLLBACK");
    EXPECT_EQ(db.close(), SQLITE_OK);
    EXPECT_EQ(logged(), std::vector<std::string>());
    EXPECT_EQ(support::read_file(path()).size(), 0u);
}

/* The other bytes of a copy are in the reflection of its original. */
TEST_F(SqliteOthers, CopyIsRefusedUntilItIsOpenedWithPreferFile)
{
    make();
    ASSERT_EQ(other.open(path()), SQLITE_OK);
    ASSERT_EQ(other.run("UPDATE t SET b=a*7"), SQLITE_OK);
    support::write_file(path("copy.db"), support::read_file(path()));
    EXPECT_EQ(Db::stock(path("copy.db")).run("SELECT * FROM t"), SQLITE_NOTADB);
    for (const char *how :
         {"", "mode=ro", "mode=ro&prefer=file", "journal=file", "prefer=reflection"}) {
        EXPECT_EQ(Db(path("copy.db"), how).run("SELECT * FROM t"), SQLITE_CANTOPEN) << how;
        EXPECT_TRUE(logged("copy.db: this is a copy of a database that was not plain")) << how;
    }
    for (const bool shared : {true, false}) {
        const std::string name = path(shared ? "shared.db" : "copy.db");
        support::write_file(name, support::read_file(path()));
        {
            const Db db(name, shared ? "prefer=file&journal=file" : "prefer=file"), second(name);
            EXPECT_EQ(db.number("SELECT sum(a) FROM t"), 6);
            MUST(second, "UPDATE t SET b=a+5; INSERT INTO t VALUES(4, 4)");
            EXPECT_EQ(Db(name).number("SELECT sum(b) FROM t"), 25);
        }
        EXPECT_EQ(stock_sum(name), "10");
    }
}

/* Also after a ROLLBACK of a transaction that did not fit into the cache. */
TEST_F(SqliteOthers, MayReadAfterARollbackWithPolicyEager)
{
    make();
    Db db(path());
    MUST(db, "PRAGMA ato_read_policy=eager; PRAGMA cache_size=2; BEGIN; " + fill("t", 10, 300) +
                 "; ROLLBACK");
    EXPECT_EQ(Db::stock(path()).text("SELECT sum(a) FROM t"), "6");
}

/* Meanwhile this process has no view of the file; its read policy is kept. */
TEST_F(SqliteOthers, MayMakeItLongerWhileTwoProcessesHaveIt)
{
    make();
    Db db(path());
    MUST(db, "PRAGMA ato_read_policy=eager");
    ASSERT_EQ(other.open(path()), SQLITE_OK);
    EXPECT_EQ(other.text("SELECT count(*) FROM t"), "3");
    MUST(Db::stock(path()), fill("t", 10, 2000));
    EXPECT_EQ(db.number("SELECT count(*) FROM t"), 1994);
    EXPECT_EQ(db.text("PRAGMA ato_read_policy"), "eager");
    EXPECT_EQ(other.text("SELECT count(*) FROM t"), "1994");
    EXPECT_EQ(db.text("PRAGMA ato_read_policy"), "eager");
    MUST(db, "INSERT INTO t VALUES(4, 4)");
    EXPECT_EQ(Db::stock(path()).text("SELECT count(*) FROM t"), "1995");
}

/* The threads map the file anew again and again, while each other's calls begin. */
TEST_F(SqliteOthers, MayMakeItLongerWhileThreadsRead)
{
    look();
    std::atomic<bool> ends{false};
    std::vector<std::string> wrong(4);
    std::vector<std::thread> all;
    for (std::string &w : wrong)
        all.emplace_back([&] {
            while (!ends && w.empty()) {
                const Db db(path());
                sqlite3_busy_timeout(db.handle, 60000);
                for (int i = 0; i < 3 && w.empty(); i++)
                    if (db.run("PRAGMA ato_stat") != SQLITE_OK ||
                        db.number("SELECT count(*) FROM t") < 3)
                        w = db.error();
            }
        });
    for (int i = 10; i < 800; i += 10)
        while (other.run(fill("t", i, i + 9)) == SQLITE_BUSY)
            ;
    ends = true;
    for (std::thread &t : all)
        t.join();
    EXPECT_EQ(wrong, std::vector<std::string>(4));
    const Db db(path());
    EXPECT_EQ(db.number("SELECT count(*) FROM t"), 3 + 790);
}

/* Without the mask, stock SQLite reads a state that is neither old nor new. */
TEST_F(SqliteOthers, WouldReadAMixtureWithoutAMask)
{
    make();
    ASSERT_EQ(other.open(path()), SQLITE_OK);
    ASSERT_EQ(other.run("UPDATE t SET b=a*7"), SQLITE_OK);
    EXPECT_EQ(support::in_child([&] {
                  support::Fd fd(path());
                  char plain[10];
                  auto *p = static_cast<char *>(
                      ato_mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
                  if (p == MAP_FAILED || !ato_memcpy(plain, p + 18, 10))
                      return 1;
                  plain[1] = 1;
                  return ato_memcpy_opt(p + 18, plain, 10, ATO_EAGER) && ato_deploy(p + 18, 10) == 0
                             ? 0
                             : 2;
              }),
              0);
    EXPECT_NE(Db::stock(path()).text("SELECT sum(a)||max(b) FROM t"), "621");
}

} // namespace
