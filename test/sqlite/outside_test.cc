/* SPDX-License-Identifier: BSD-3-Clause */
/* What if other programs overwrite, rename or remove the file of an open database, or the process itself does what takes its locks? */
#include "lab.h"

#include "ato_engine.h"
#include "support/child.h"
#include "support/copied.h"
#include "support/temp.h"

#include <csignal>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>

namespace sql
{

class SqliteOutside : public Lab
{
  protected:
    /* The database is open, and has committed a row that is in its reflection. */
    Db begin(const std::string &parameters = "") const
    {
        make();
        Db db(path(), parameters);
        EXPECT_EQ(db.run("INSERT INTO t VALUES(4, 'four')"), SQLITE_OK) << db.error();
        return db;
    }
    /* As cp(1) does. */
    static int copy_over(const std::string &from, const std::string &to)
    {
        return system(("cp " + from + " " + to).c_str());
    }
    static int extended(const Db &db)
    {
        return sqlite3_extended_errcode(db.handle);
    }
};

TEST_F(SqliteOutside, ABackupCopiedOverItIsNoticed)
{
    make("small.db");
    make("large.db");
    MUST(Db::stock(path("large.db")), fill("t", 10, 100));
    support::write_file(path("no.db"), support::Bytes(20000, 'x')); /* as an encrypted one */
    for (const char *backup : {"small.db", "large.db", "no.db"}) {
        Db db = begin(), second(path());
        EXPECT_EQ(second.number("SELECT sum(a) FROM t"), 10);
        MUST(db, "BEGIN; INSERT INTO t VALUES(5, 'five')");
        ASSERT_EQ(copy_over(path(backup), path()), 0);
        EXPECT_EQ(db.run("COMMIT"), SQLITE_IOERR) << backup;
        EXPECT_EQ(extended(db), SQLITE_IOERR_DATA);
        EXPECT_TRUE(logged("has overwritten the database"));
        EXPECT_EQ(second.run("SELECT * FROM t"), SQLITE_IOERR);
        EXPECT_EQ(db.run("INSERT INTO t VALUES(6, 'six')"), SQLITE_IOERR);
        /* Both sides are kept. */
        EXPECT_EQ(db.close(), SQLITE_OK);
        EXPECT_EQ(second.close(), SQLITE_OK);
        EXPECT_EQ(support::read_file(path()), support::read_file(path(backup)));
        EXPECT_EQ(left(), 2u);
        ASSERT_EQ(unlink(path().c_str()), 0);
        ASSERT_EQ(system(("rm -r " + (folder / ".ato")).c_str()), 0);
    }
}

/* The backup has the same size, so that only the mask tells. Without a transaction after it the close refuses to mix the two. */
TEST_F(SqliteOutside, ABackupCopiedOverItIsRefusedUntilASideIsPreferred)
{
    make("backup.db");
    for (const bool writes : {true, false})
        for (const char *side : {"file", "reflection"}) {
            Db db = begin();
            ASSERT_EQ(copy_over(path("backup.db"), path()), 0);
            if (writes) {
                EXPECT_EQ(db.run("INSERT INTO t VALUES(5, 'five')"), SQLITE_IOERR);
            }
            EXPECT_EQ(db.close(), SQLITE_OK);
            EXPECT_EQ(support::read_file(path()), support::read_file(path("backup.db")));
            for (const char *sql : {"SELECT sum(a) FROM t", "INSERT INTO t VALUES(6, 'six')"}) {
                EXPECT_EQ(Db(path()).run(sql), SQLITE_CANTOPEN);
                EXPECT_TRUE(logged("--prefer="));
            }
            EXPECT_EQ(support::read_file(path()), support::read_file(path("backup.db")));
            Db again(path(), std::string("prefer=") + side);
            const int sum = *side == 'f' ? 6 : 10;
            EXPECT_EQ(again.number("SELECT sum(a) FROM t"), sum) << side;
            MUST(again, "INSERT INTO t VALUES(7, 'seven')");
            EXPECT_EQ(again.close(), SQLITE_OK);
            EXPECT_EQ(stock_sum(path()), std::to_string(sum + 7)) << side;
            ASSERT_EQ(unlink(path().c_str()), 0);
            ASSERT_EQ(system(("rm -r " + (folder / ".ato")).c_str()), 0);
        }
}

/* A copy of the open database, which has a mask, and cut or removed parts: nothing is acknowledged that would be lost. */
TEST_F(SqliteOutside, AnotherLengthIsNoticedAndARemovedReflection)
{
    const std::string reflections = folder / ".ato";
    for (const std::string &does :
         {"cp " + path("masked.db") + " " + path(), "truncate -s -4096 " + path(),
          "truncate -s +8192 " + path(), "rm -r " + reflections}) {
        Db db = begin();
        ASSERT_EQ(copy_over(path(), path("masked.db")), 0);
        MUST(db, fill("t", 10, 100));
        ASSERT_EQ(system(does.c_str()), 0);
        usleep(20 * 1000);
        EXPECT_EQ(db.run("UPDATE t SET b=a"), SQLITE_IOERR) << does;
        EXPECT_EQ(extended(db), SQLITE_IOERR_DATA);
        EXPECT_TRUE(logged("another program")) << does;
        EXPECT_EQ(db.close(), SQLITE_OK);
        /* A close brings home what a removed reflection has. */
        EXPECT_EQ(Db(path()).text("SELECT count(*) FROM t"),
                  does[0] == 'r' ? "95" : "error: unable to open database file (14)")
            << does;
        ASSERT_EQ(unlink(path().c_str()), 0);
        ASSERT_EQ(system(("rm -rf " + reflections).c_str()), 0);
    }
}

/* As by an extension that encrypts a database in place: such a page has no mask, and stays as it was written. */
TEST_F(SqliteOutside, AFirstPageThatIsNoHeaderStaysAsItIs)
{
    const std::string same = "SELECT count(*) FROM t WHERE b=a";
    std::string plain(4096, 0), noise(4096, 0);
    for (unsigned i = 0; i < 4096; i++)
        noise[i] = static_cast<char>(i * 37 + 11);
    const auto write = [&](const Db &db, const std::string &page, bool commits) {
        sqlite3_file *file = nullptr;
        sqlite3_file_control(db.handle, "main", SQLITE_FCNTL_FILE_POINTER, &file);
        const sqlite3_io_methods *m = file->pMethods;
        for (const int level : {SQLITE_LOCK_SHARED, SQLITE_LOCK_RESERVED, SQLITE_LOCK_EXCLUSIVE})
            ASSERT_EQ(m->xLock(file, level), SQLITE_OK);
        if (plain[0] == 0) {
            ASSERT_EQ(m->xRead(file, plain.data(), 4096, 0), SQLITE_OK);
        }
        ASSERT_EQ(m->xWrite(file, page.data(), 4096, 0), SQLITE_OK);
        if (commits) {
            ASSERT_EQ(m->xSync(file, SQLITE_SYNC_NORMAL), SQLITE_OK);
        }
        ASSERT_EQ(m->xUnlock(file, SQLITE_LOCK_NONE), SQLITE_OK);
    };
    Db db = begin();
    MUST(db, fill("t", 10, 100) + "; UPDATE t SET b=a");
    /* To the reflection, and to the file. */
    for (const int times : {1, 2})
        for (const bool commits : {false, true}) {
            for (int i = 0; i < times; i++)
                write(db, noise, commits);
            if (commits)
                write(db, plain, true);
            EXPECT_EQ(db.number(same), 95);
            MUST(db, "UPDATE t SET b=a");
        }
    EXPECT_EQ(db.close(), SQLITE_OK);
    EXPECT_EQ(Db::stock(path()).number(same), 95);
    /* A kill before the commit. */
    ASSERT_EQ(support::in_child([&] {
                  start();
                  const Db killed(path());
                  killed.run("UPDATE t SET b=a");
                  sqlite3_file *file = nullptr;
                  sqlite3_file_control(killed.handle, "main", SQLITE_FCNTL_FILE_POINTER, &file);
                  for (const int level : {1, 2, 4})
                      (void)file->pMethods->xLock(file, level);
                  (void)file->pMethods->xWrite(file, noise.data(), 4096, 0);
                  _exit(support::CUT);
                  return 0;
              }),
              support::CUT);
    {
        Db again(path());
        EXPECT_EQ(again.number(same), 95);
        EXPECT_EQ(again.close(), SQLITE_OK);
        EXPECT_EQ(Db::stock(path()).number(same), 95);
    }
    {
        const Db again(path());
        MUST(again, "UPDATE t SET b=a");
        write(again, noise, true);
    }
    const support::Bytes now = support::read_file(path());
    EXPECT_EQ(left(), 0u);
    EXPECT_EQ(std::string(now.begin(), now.begin() + 4096), noise);
}

/* Shared memory is made before the mask: without it nothing could take the mask off. */
TEST_F(SqliteOutside, AFirstWriteWithoutSharedMemoryLeavesAnOrdinaryFile)
{
    make();
    ASSERT_EQ(support::in_child([&] {
                  start();
                  const rlimit most = {100 << 20, 100 << 20};
                  signal(SIGXFSZ, SIG_IGN);
                  setrlimit(RLIMIT_FSIZE, &most);
                  Db db(path());
                  const int r = db.run("UPDATE t SET b=a");
                  return r == SQLITE_OK || db.number("SELECT sum(a) FROM t") != 6 ||
                         db.close() != SQLITE_OK;
              }),
              0);
    EXPECT_EQ(stock_sum(path()), "6");
    EXPECT_EQ(left(), 0u);
}

/* Within a transaction, of which nothing is staged yet, or pages that did not fit in the cache: no byte of it reaches the file, neither
 * by the COMMIT nor by a read, which makes libato store what it has queued. */
TEST_F(SqliteOutside, ABackupCopiedOverItWithinATransactionStaysAsItIs)
{
    make("backup.db");
    MUST(Db::stock(path("backup.db")), fill("t", 10, 300));
    const std::string change = "UPDATE t SET b=a||hex(zeroblob(1500)) WHERE a>10";
    /* The change before the copy, and the statement after it. */
    for (const auto &[before, after] :
         {std::pair<std::string, std::string>{change, "COMMIT"},
          {change, "SELECT sum(length(b)) FROM t"},
          {"UPDATE t SET b=a||hex(zeroblob(1500)) WHERE a=300", "COMMIT"},
          {"UPDATE t SET b=2 WHERE a=2", change + "; COMMIT"}}) {
        support::write_file(path(), support::read_file(path("backup.db")));
        Db db(path());
        /* All of it is in the reflection: the other home of each page is in the file. */
        MUST(db, "UPDATE t SET b=randomblob(length(b)); PRAGMA cache_size=5; BEGIN; " + before);
        ASSERT_EQ(copy_over(path("backup.db"), path()), 0);
        EXPECT_NE(db.run(after), SQLITE_OK) << after;
        EXPECT_EQ(extended(db), SQLITE_IOERR_DATA) << db.error();
        EXPECT_EQ(db.close(), SQLITE_OK);
        support::Bytes now = support::read_file(path());
        const support::Bytes backup = support::read_file(path("backup.db"));
        now.resize(backup.size());
        EXPECT_TRUE(now == backup) << before << after;
        ASSERT_EQ(unlink(path().c_str()), 0);
        ASSERT_EQ(system(("rm -r " + (folder / ".ato")).c_str()), 0);
    }
}

/* `ato cp` does this. */
TEST_F(SqliteOutside, NoCopyIsMadeOfAFileThatABackupWasCopiedOver)
{
    const auto error = [this](int access) {
        return support::in_child([&] {
            support::Bytes all;
            const int fd = open(path().c_str(), access),
                      prot = access == O_RDWR ? PROT_READ | PROT_WRITE : PROT_READ;
            void *view = ato_mmap(nullptr, 4096, prot, MAP_SHARED, fd, 0);
            return view != MAP_FAILED && support::copy_now(view, all) > 0 ? 0 : errno;
        });
    };
    make("backup.db");
    Db db = begin();
    EXPECT_EQ(error(O_RDWR), 0);
    EXPECT_EQ(error(O_RDONLY), 0);
    ASSERT_EQ(copy_over(path("backup.db"), path()), 0);
    EXPECT_EQ(error(O_RDWR), ESTALE);
    EXPECT_EQ(error(O_RDONLY), ESTALE);
    EXPECT_EQ(db.close(), SQLITE_OK);
}

TEST_F(SqliteOutside, WritesToAFileWithoutItsNameFail)
{
    make("b.db");
    const std::string a = path(), b = path("b.db"), moved = path("moved.db");
    for (const std::string &how :
         {"mv " + a + " " + moved, "rm " + a, "cp " + b + " c.db; mv c.db " + a,
          "mv " + a + " " + moved + "; cp " + b + " " + a}) {
        Db db = begin();
        usleep(20000); /* the name is not looked at for 10 ms after a commit */
        ASSERT_EQ(system(("cd " + folder.path() + "; " + how).c_str()), 0);
        EXPECT_EQ(db.run("INSERT INTO t VALUES(5, 'five')"), SQLITE_READONLY) << how;
        EXPECT_EQ(extended(db), SQLITE_READONLY_DBMOVED) << how;
        EXPECT_EQ(db.run("INSERT INTO t VALUES(6, 'six')"), SQLITE_READONLY) << how;
        EXPECT_EQ(db.number("SELECT sum(a) FROM t"), 10) << how;
        EXPECT_EQ(db.close(), SQLITE_OK);
        if (support::exists(a)) {
            EXPECT_EQ(stock_sum(a), "6") << how;
        }
        if (support::exists(moved)) {
            EXPECT_EQ(stock_sum(moved), "10") << how;
        }
        (void)system(("rm -rf " + a + " " + moved + " " + (folder / ".ato")).c_str());
    }
}

TEST_F(SqliteOutside, AConnectionOfTheParentWritesNothingInAChild)
{
    for (const char *open :
         {"", "BEGIN; UPDATE t SET a=a+10 WHERE a=4", "BEGIN; SELECT * FROM t"}) {
        Db db = begin();
        MUST(db, open);
        EXPECT_EQ(support::in_child([&] {
                      (void)logged();
                      const bool wrote = db.run("INSERT INTO t VALUES(5, 5)") == SQLITE_OK &&
                                         (!*open || db.run("COMMIT") == SQLITE_OK);
                      return wrote * 2 + !logged("was opened before fork()");
                  }),
                  0)
            << open;
        if (*open) {
            MUST(db, "COMMIT");
        }
        EXPECT_EQ(db.number("SELECT count(*) FROM t"), 4);
        MUST(db, "INSERT INTO t VALUES(5, 'five')");
        EXPECT_EQ(db.text("PRAGMA integrity_check"), "ok");
        EXPECT_EQ(db.close(), SQLITE_OK);
        ASSERT_EQ(unlink(path().c_str()), 0);
    }
}

/* Without a lock a process that may not write to the file cannot map it. */
TEST_F(SqliteOutside, WithoutLocksOldPagesAreNotReadAsTheContent)
{
    ASSERT_EQ(chmod(folder.path().c_str(), 0755), 0);
    make();
    ASSERT_EQ(other.open(path()), SQLITE_OK);
    ASSERT_EQ(other.run("INSERT INTO t VALUES(4, 'four')"), SQLITE_OK);
    ASSERT_EQ(chmod(path().c_str(), 0644), 0);
    for (const char *how : {"immutable=1", "immutable=1&mode=ro", "nolock=1", "nolock=1&mode=ro"}) {
        const Nobody nobody;
        ASSERT_TRUE(nobody.is);
        EXPECT_EQ(Db(path(), how).text("SELECT sum(a) FROM t").find("error: "), 0u) << how;
    }
    /* A process that may write maps it. */
    EXPECT_EQ(Db(path(), "immutable=1").number("SELECT sum(a) FROM t"), 10);
    EXPECT_EQ(other.close(), SQLITE_OK);
    for (const char *how : {"immutable=1", "nolock=1"}) {
        const Nobody nobody;
        EXPECT_EQ(Db(path(), how).number("SELECT sum(a) FROM t"), 10) << how;
    }
}

/* The connection keeps SHARED for its SELECT over several transactions of its own. */
TEST_F(SqliteOutside, ACommitOfItsOwnIsNoLossOfLocks)
{
    make();
    const Db db(path());
    sqlite3_stmt *s = nullptr;
    ASSERT_EQ(sqlite3_prepare_v2(db.handle, "SELECT a FROM t", -1, &s, nullptr), SQLITE_OK);
    for (int i = 4; i < 7; i++) {
        EXPECT_EQ(sqlite3_step(s), SQLITE_ROW);
        MUST(db, "INSERT INTO t VALUES(" + std::to_string(i * 10) + "," + std::to_string(i) + ")");
    }
    sqlite3_finalize(s);
    EXPECT_EQ(db.number("SELECT sum(a) FROM t"), 156);
}

/* As by a second copy of this VFS, of a program that has two of SQLite. It is logged once. */
TEST_F(SqliteOutside, MappedOtherwiseByTheProcessItIsBusy)
{
    make();
    support::Fd fd(path());
    struct ato_options o = {};
    o.struct_size = sizeof(o);
    o.flags = ATO_BORROW_FD;
    void *view = ato_mmap_opt(4096, fd, 0, &o);
    ASSERT_NE(view, MAP_FAILED) << ato_errormsg();
    {
        const Db db(path());
        (void)logged();
        for (int i = 0; i < 3; i++) {
            EXPECT_EQ(db.run("SELECT * FROM t"), SQLITE_BUSY);
            EXPECT_EQ(logged("can be mapped only once"), i == 0);
        }
        ASSERT_EQ(ato_munmap(view, 4096, ATO_UNMAP_SPATIAL), 0) << ato_errormsg();
        EXPECT_EQ(db.number("SELECT sum(a) FROM t"), 6);
        MUST(db, "INSERT INTO t VALUES(4, 'four')");
    }
    EXPECT_EQ(stock_sum(path()), "10");
}

/* SQLite takes such a file for a new database, and one of two bytes and more for none. */
TEST_F(SqliteOutside, AFileOfOneByteIsANewDatabase)
{
    for (const size_t n : {1, 2}) {
        support::write_file(path(), support::Bytes(n, 'x'));
        EXPECT_EQ(Db(path()).run("CREATE TABLE t(a); INSERT INTO t VALUES(6)"),
                  n == 1 ? SQLITE_OK : SQLITE_NOTADB);
    }
    EXPECT_EQ(support::read_file(path()).size(), 2u);
}

/* A process loses the locks of SQLite's own VFS, which its first transaction has, when it closes any descriptor of the file. */
TEST_F(SqliteOutside, AFirstTransactionThatLostItsLocksIsRolledBack)
{
    for (const char *begins : {"BEGIN; SELECT count(*) FROM t", "BEGIN IMMEDIATE",
                               "PRAGMA cache_size=5; BEGIN; UPDATE t SET b=b||'!'"}) {
        make();
        Db db(path());
        MUST(db, begins);
        (void)support::read_file(path()); /* opens and closes it */
        ASSERT_EQ(other.open(path()), SQLITE_OK);
        const int theirs = other.run("INSERT INTO t VALUES(5, 'five')");
        int ours = db.run("INSERT INTO t VALUES(4, 'four')");
        if (ours == SQLITE_OK)
            ours = db.run("COMMIT");
        if (!sqlite3_get_autocommit(db.handle)) {
            MUST(db, "ROLLBACK");
        }
        const int sum = 6 + (theirs ? 0 : 5) + (ours ? 0 : 4);
        EXPECT_TRUE(theirs == SQLITE_OK || ours == SQLITE_OK) << begins;
        EXPECT_EQ(other.close(), SQLITE_OK);
        EXPECT_EQ(db.number("SELECT sum(a) FROM t"), sum) << begins;
        MUST(db, "INSERT INTO t VALUES(7, 'seven')");
        EXPECT_EQ(db.text("PRAGMA integrity_check"), "ok");
        EXPECT_EQ(db.close(), SQLITE_OK);
        EXPECT_EQ(stock_sum(path()), std::to_string(sum + 7)) << begins;
        ASSERT_EQ(unlink(path().c_str()), 0);
    }
}

/* A rollback finds those locks lost, and a reader has got one meanwhile: the file is unmapped, under PENDING, and others may write. */
TEST_F(SqliteOutside, ARollbackThatLostItsLocksKeepsNoneThatItTookInstead)
{
    make();
    Db db(path());
    MUST(db, "PRAGMA cache_size=5; BEGIN; " + fill("t", 10, 300));
    (void)support::read_file(path());
    support::Peer reader([&](const auto &wait) {
        struct flock shared = {};
        shared.l_type = F_RDLCK;
        shared.l_start = 0x40000002;
        shared.l_len = 510;
        if (fcntl(open(path().c_str(), O_RDONLY), F_SETLK, &shared) < 0)
            return 1;
        wait();
        return 0;
    });
    ASSERT_TRUE(reader.is_ready());
    MUST(db, "ROLLBACK");
    EXPECT_EQ(reader.end(), 0);
    ASSERT_EQ(other.open_stock(path()), SQLITE_OK);
    EXPECT_EQ(other.run("INSERT INTO t VALUES(5, 'five')"), SQLITE_OK) << other.error();
    EXPECT_EQ(other.close(), SQLITE_OK);
    EXPECT_EQ(db.number("SELECT sum(a) FROM t"), 11);
}

} // namespace sql
