/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What does a program that does not use libato read? SQLITE_BUSY while a process has the database open through ato, and
 * SQLITE_NOTADB if a page of it may be in the reflection all the same; else the whole database; never a mixture.
 * Connections through ato are not disturbed.
 */
#include "lab.h"

#include "ato_engine.h"

#include "support/child.h"
#include "support/temp.h"

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
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
    void expect_busy(Remote &stock)
    {
        EXPECT_EQ(stock.run("SELECT sum(a) FROM t"), SQLITE_BUSY);
        EXPECT_EQ(stock.run("INSERT INTO t VALUES(1000, 1000)"), SQLITE_BUSY);
        EXPECT_EQ(stock.run("VACUUM INTO '" + path("copy.db") + "'"), SQLITE_BUSY);
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
            struct ato_stat st = {};
            st.struct_size = sizeof(st);
            return ato_stat(map(), &st) == 0 ? static_cast<int>(st.guard_bytes) : 100;
        }));
    }
    Remote late; /* opens the database when ato has it */

    char *map() const
    {
        support::Fd fd(path());
        return static_cast<char *>(
            ato_mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
    }
};

TEST_F(SqliteOthers, AreBusyFromTheFirstWriteToTheLastClose)
{
    look();
    const Db here = Db::stock(path());
    EXPECT_EQ(here.number("SELECT sum(a) FROM t"), 6);
    Db db(path()), second(path());
    EXPECT_EQ(db.number("SELECT sum(a) FROM t"), 6);
    EXPECT_EQ(other.text("SELECT sum(a) FROM t"), "6") << "no connection has written";
    MUST(db, "INSERT INTO t VALUES(4, 4); DELETE FROM t WHERE a=4");
    ASSERT_EQ(late.open_stock(path()), SQLITE_OK);
    for (int i = 4; i < 9; i++) {
        expect_busy(other);
        expect_busy(late);
        EXPECT_EQ(here.run("SELECT * FROM t"), SQLITE_BUSY) << "in this process";
        EXPECT_EQ(Db::stock(path()).run("SELECT * FROM t"), SQLITE_BUSY) << "in this process";
        MUST(i % 2 ? db : second,
             "INSERT INTO t VALUES(" + std::to_string(i) + ", " + std::to_string(i) + ")");
        EXPECT_EQ(second.text("PRAGMA integrity_check"), "ok");
        EXPECT_EQ(second.number("SELECT count(*) FROM t"), i);
    }
    EXPECT_EQ(db.close(), SQLITE_OK);
    expect_busy(other);
    EXPECT_EQ(second.close(), SQLITE_OK);
    for (Remote *stock : {&other, &late}) {
        EXPECT_EQ(stock->text("SELECT sum(a) FROM t WHERE a<9"), "36") << stock->error();
        EXPECT_EQ(stock->text("PRAGMA integrity_check"), "ok");
        EXPECT_EQ(stock->run(stock == &late ? "INSERT INTO t VALUES(9, 9)"
                                            : "INSERT INTO t VALUES(10, 10)"),
                  SQLITE_OK);
    }
    EXPECT_EQ(here.number("SELECT sum(a) FROM t"), 55);
    EXPECT_EQ(Db(path()).number("SELECT sum(a) FROM t"), 55);
    EXPECT_EQ(left(), 0u);
}

/* Whoever was there first keeps the other out: with a lock, or for as long as it has the database open in WAL mode. */
TEST_F(SqliteOthers, KeepAtoFromWritingIfTheyWereThereFirst)
{
    look();
    Db db(path());
    for (const char *begin : {"BEGIN; SELECT * FROM t", "BEGIN IMMEDIATE", "BEGIN EXCLUSIVE"}) {
        const bool excludes = strstr(begin, "EXCLUSIVE");
        ASSERT_EQ(other.run(begin), SQLITE_OK) << begin;
        EXPECT_EQ(db.run("SELECT * FROM t"), excludes ? SQLITE_BUSY : SQLITE_OK) << begin;
        EXPECT_EQ(db.run("INSERT INTO t VALUES(4, 4)"), SQLITE_BUSY) << begin;
        ASSERT_EQ(other.run("ROLLBACK"), SQLITE_OK);
    }
    {
        const Db here = Db::stock(path());
        sqlite3_stmt *s = nullptr;
        ASSERT_EQ(sqlite3_prepare_v2(here.handle, "SELECT * FROM t", -1, &s, nullptr), SQLITE_OK);
        for (int row = 0; row < 3; row++) {
            EXPECT_EQ(sqlite3_step(s), SQLITE_ROW);
            EXPECT_EQ(db.run("SELECT * FROM t"), SQLITE_OK) << "in this process";
            EXPECT_EQ(db.run("INSERT INTO t VALUES(4, 4)"), SQLITE_BUSY) << "in this process";
        }
        EXPECT_EQ(sqlite3_step(s), SQLITE_DONE);
        sqlite3_finalize(s);
        EXPECT_EQ(here.run("DELETE FROM t WHERE a>3"), SQLITE_OK) << "a refusal leaves no lock";
    }
    /* In WAL mode both do the same. */
    ASSERT_EQ(other.run("PRAGMA journal_mode=WAL; SELECT * FROM t"), SQLITE_OK);
    MUST(db, "INSERT INTO t VALUES(4, 4)");
    EXPECT_EQ(other.text("SELECT sum(a) FROM t"), "10");
    db.close();
    ASSERT_EQ(other.close(), SQLITE_OK);
    EXPECT_EQ(left(), 0u);
    EXPECT_EQ(stock_sum(path()), "10");
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

/* What was only read has no mask. */
/* A database that is only read stays as it is. */
TEST_F(SqliteOthers, ReadAndWriteADatabaseThatAtoHasOnlyRead)
{
    look();
    const struct stat before = support::stat_of(path());
    {
        Db db(path()), second(path(), "mode=ro");
        for (const Db *reader : {&db, &second}) {
            EXPECT_EQ(reader->number("SELECT sum(a) FROM t"), 6);
            EXPECT_EQ(reader->text("PRAGMA integrity_check"), "ok");
        }
        MUST(db, "BEGIN; SELECT * FROM t; ROLLBACK; BEGIN IMMEDIATE; COMMIT");
        EXPECT_EQ(other.text("SELECT sum(a) FROM t"), "6");
        const struct stat after = support::stat_of(path());
        EXPECT_EQ(after.st_ctim.tv_sec, before.st_ctim.tv_sec);
        EXPECT_EQ(after.st_ctim.tv_nsec, before.st_ctim.tv_nsec);
        EXPECT_FALSE(support::exists(folder / ".ato"));
        EXPECT_EQ(names(), "a.db");
        EXPECT_EQ(other.run("INSERT INTO t VALUES(4, 4)"), SQLITE_OK) << other.error();
        EXPECT_EQ(db.number("SELECT sum(a) FROM t"), 10);
    }
    ASSERT_EQ(late.open(path()), SQLITE_OK);
    ASSERT_EQ(late.text("SELECT sum(a) FROM t"), "10");
    late.kill();
    EXPECT_EQ(other.run("INSERT INTO t VALUES(5, 5)"), SQLITE_OK) << other.error();
    EXPECT_EQ(stock_sum(path()), "15");
    EXPECT_FALSE(support::exists(folder / ".ato"));
}

/* The kill comes at any moment of transactions that change all rows. */
TEST_F(SqliteOthers, AreRefusedOrReadOneStateAfterAKillOfAWriter)
{
    static constexpr char STATE[] =
        "SELECT min(CAST(b AS INTEGER))||' '||max(CAST(b AS INTEGER))||' '||n FROM t, g";
    const auto state = [](int n) {
        const std::string text = std::to_string(n);
        return text + " " + text + " " + text;
    };
    make();
    MUST(Db::stock(path()), fill("t", 4, 60) + "; CREATE TABLE g AS SELECT 0 AS n; "
                                               "UPDATE t SET b='0-'||a");
    ASSERT_EQ(other.open_stock(path()), SQLITE_OK);
    auto *told = static_cast<std::atomic<int> *>(
        mmap(nullptr, sizeof(int), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    ASSERT_NE(told, MAP_FAILED);
    int refused = 0, read = 0;
    for (int round = 0; round < 500 && (round < 50 || !refused || !read); round++) {
        SCOPED_TRACE(round);
        const int before = *told;
        support::Pipe begins;
        const pid_t pid = fork();
        if (pid == 0) {
            const Db db(path());
            begins.tell();
            while (db.run("BEGIN IMMEDIATE; UPDATE g SET n=n+1; UPDATE t SET b=(SELECT n FROM g)||"
                          "'-'||a||hex(zeroblob(300)); COMMIT") == SQLITE_OK)
                ++*told;
            _exit(1);
        }
        begins.hear();
        usleep(static_cast<unsigned>(round * 7919 % 4000));
        kill(pid, SIGKILL);
        int status = 0;
        waitpid(pid, &status, 0);
        ASSERT_TRUE(WIFSIGNALED(status));
        const std::string seen = other.text(STATE);
        const std::string now = Db(path()).text(STATE);
        if (now == state(*told + 1))
            ++*told;
        EXPECT_GE(*told, before);
        EXPECT_EQ(now, state(*told));
        if (seen == "error: file is not a database (26)") {
            refused++;
        } else {
            read++;
            EXPECT_EQ(seen, now);
        }
        EXPECT_EQ(other.text(STATE), now);
        EXPECT_EQ(other.text("PRAGMA integrity_check"), "ok");
        ASSERT_FALSE(HasFailure());
    }
    EXPECT_GT(refused, 0);
    EXPECT_GT(read, 0);
    munmap(told, sizeof(int));
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

/* A process dies that has forked a child meanwhile: the child does not keep its locks. */
TEST_F(SqliteOthers, AreNotLockedOutByAForkedChild)
{
    look();
    support::Pipe forked, over;
    EXPECT_EQ(support::in_child([&] {
                  const auto *db = new Db(path()); /* is not closed */
                  const bool good = db->run("INSERT INTO t VALUES(4, 4)") == SQLITE_OK &&
                                    other.run("SELECT * FROM t") == SQLITE_BUSY;
                  if (fork() == 0) {
                      forked.tell();
                      over.hear();
                      _exit(0);
                  }
                  return good && forked.hear() ? 0 : 1;
              }),
              0);
    EXPECT_EQ(other.run("SELECT * FROM t"), SQLITE_NOTADB);
    EXPECT_EQ(Db(path()).number("SELECT sum(a) FROM t"), 10);
    EXPECT_EQ(other.text("SELECT sum(a) FROM t"), "10");
    over.tell();
}

/* SQLite reads 4096 bytes before it knows the page size. */
TEST_F(SqliteOthers, DoNotHinderAtoInADatabaseSmallerThanAPage)
{
    Db db(path());
    MUST(db, "PRAGMA page_size=512; CREATE TABLE t(a); INSERT INTO t VALUES(1)");
    EXPECT_EQ(Db(path()).number("SELECT sum(a) FROM t"), 1);
    EXPECT_EQ(Db::stock(path()).run("SELECT * FROM t"), SQLITE_BUSY);
}

/* The header is not known before the first commit. */
TEST_F(SqliteOthers, AreRefusedANewDatabase)
{
    Remote writer;
    ASSERT_EQ(writer.open(path()), SQLITE_OK);
    ASSERT_EQ(writer.run("CREATE TABLE t(a); INSERT INTO t VALUES(1)"), SQLITE_OK);
    EXPECT_EQ(Db::stock(path()).run("SELECT * FROM t"), SQLITE_BUSY);
    writer.kill();
    EXPECT_EQ(Db::stock(path()).run("SELECT * FROM t"), SQLITE_NOTADB);
    EXPECT_EQ(Db(path()).number("SELECT sum(a) FROM t"), 1);
    EXPECT_EQ(stock_sum(path()), "1");
}

/* In WAL mode the file is complete, also after a kill, and from the switch on. */
TEST_F(SqliteOthers, MayUseADatabaseInWalModeAfterAKill)
{
    const std::string change =
        fill("t", 10, 300) + "; PRAGMA wal_checkpoint; DELETE FROM t WHERE a>=10";
    for (const std::string &after : {std::string(), change}) {
        SCOPED_TRACE(after);
        support::write_file(path(), {});
        make();
        Remote writer;
        ASSERT_EQ(writer.open(path()), SQLITE_OK);
        ASSERT_EQ(writer.run("INSERT INTO t VALUES(4, 4); PRAGMA journal_mode=WAL; " + after),
                  SQLITE_OK)
            << writer.error();
        EXPECT_EQ(Db::stock(path()).run("SELECT * FROM t"), SQLITE_BUSY);
        writer.kill();
        {
            const Db stock = Db::stock(path());
            EXPECT_EQ(stock.number("SELECT sum(a) FROM t"), 10);
            EXPECT_EQ(stock.text("PRAGMA integrity_check"), "ok");
        }
        EXPECT_EQ(Db(path()).number("SELECT sum(a) FROM t"), 10);
    }
}

/* By a program that uses libato itself. Stock connections have cached pages from before the commit, of
 * which only the change counter tells: it changes no length. */
TEST_F(SqliteOthers, ReadAllCommitsWhenItIsMadePlainWithoutSqlite)
{
    static constexpr char CHANGED[] = "SELECT count(*) FROM t WHERE b=a";
    for (const char *how : {"", "unmap=fast"}) {
        SCOPED_TRACE(how);
        Remote writer;
        support::write_file(path(), {});
        make();
        ASSERT_EQ(other.open_stock(path()), SQLITE_OK);
        const Db here = Db::stock(path());
        EXPECT_EQ(other.text(CHANGED), "0");
        EXPECT_EQ(here.text(CHANGED), "0");
        ASSERT_EQ(writer.open(path(), how), SQLITE_OK);
        ASSERT_EQ(writer.run("UPDATE t SET b=a"), SQLITE_OK) << writer.error();
        *how ? (void)writer.close() : writer.kill();
        EXPECT_EQ(support::in_child([&] {
                      char *view = map();
                      const bool good =
                          view != MAP_FAILED && ato_munmap(view, 4096, ATO_UNMAP_SPATIAL) == 0;
                      return good ? 0 : 1;
                  }),
                  0);
        EXPECT_EQ(left(), 0u);
        EXPECT_EQ(other.text(CHANGED), "3");
        EXPECT_EQ(here.text(CHANGED), "3");
        EXPECT_EQ(other.text("PRAGMA integrity_check"), "ok");
        ASSERT_EQ(other.close(), SQLITE_OK);
    }
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
    EXPECT_EQ(Db(path()).number("SELECT sum(a) FROM t"), 66);
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
    ASSERT_EQ(other.run("UPDATE t SET a=a; BEGIN EXCLUSIVE"), SQLITE_OK);
    guard();
    EXPECT_EQ(Db(path()).opened, SQLITE_OK);
    EXPECT_EQ(guarded(), 7u);
    EXPECT_EQ(other.run("COMMIT"), SQLITE_OK);
    EXPECT_EQ(other.close(), SQLITE_OK);
    EXPECT_EQ(left(), 0u);
    EXPECT_EQ(stock_sum(path()), "6");
}

/* The other bytes of a copy are in the reflection of its original. */
TEST_F(SqliteOthers, CopyIsRefusedUntilItIsOpenedWithPreferFile)
{
    make();
    ASSERT_EQ(other.open(path()), SQLITE_OK);
    ASSERT_EQ(other.run("UPDATE t SET b=a*7"), SQLITE_OK);
    support::write_file(path("copy.db"), support::read_file(path()));
    EXPECT_EQ(Db::stock(path("copy.db")).run("SELECT * FROM t"), SQLITE_NOTADB);
    for (const char *how : {"", "mode=ro", "mode=ro&prefer=file", "prefer=reflection"}) {
        EXPECT_EQ(Db(path("copy.db"), how).run("SELECT * FROM t"), SQLITE_CANTOPEN) << how;
        EXPECT_TRUE(logged("copy.db: this is a copy of a database that was not plain")) << how;
    }
    {
        const Db db(path("copy.db"), "prefer=file"), second(path("copy.db"));
        EXPECT_EQ(db.number("SELECT sum(a) FROM t"), 6);
        MUST(second, "UPDATE t SET b=a+5; INSERT INTO t VALUES(4, 4)");
        EXPECT_EQ(db.number("SELECT sum(b) FROM t"), 25);
    }
    EXPECT_EQ(stock_sum(path("copy.db")), "10");
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
