/* SPDX-License-Identifier: BSD-3-Clause */
/* If an operation is not possible: does SQLite return the right error, does the log give the reason, and is the
 * database unchanged? */
#include "hazards/lab.h"
#include "lab.h"

#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>

namespace sql
{

class SqliteErrors : public Lab
{
  protected:
    void is_as_it_was(const Db &db) const
    {
        if (!sqlite3_get_autocommit(db.handle)) {
            MUST(db, "ROLLBACK");
        }
        EXPECT_EQ(db.text("SELECT group_concat(b) FROM t"), "one,two,three");
        EXPECT_EQ(db.text("PRAGMA integrity_check"), "ok");
        MUST(db, "BEGIN; INSERT INTO t VALUES(4, 'four'); UPDATE t SET b=b||'!'; COMMIT");
        MUST(db, "DELETE FROM t WHERE a=4; UPDATE t SET b=replace(b, '!', '')");
    }
};

TEST_F(SqliteErrors, UnknownValuesOfParametersAreRefused)
{
    make();
    for (const char *parameters : {"unmap=slow", "unmap=", "prefer=both"}) {
        (void)logged();
        const Db db(path(), parameters);
        EXPECT_EQ(db.opened, SQLITE_CANTOPEN) << parameters;
        EXPECT_TRUE(logged("is not possible: it must be")) << parameters;
    }
    EXPECT_EQ(left(), 0u);
    EXPECT_EQ(stock_sum(path()), "6");
}

TEST_F(SqliteErrors, MaxSizeThatIsNotANumberIsRefused)
{
    make();
    for (const char *parameters :
         {"max_size=-5", "max_size=x", "max_size=1G", "max_size=", "max_size= 5", "max_size=0x500",
          "max_size=9223372036854775807", "max_size=100000000000000000000"}) {
        (void)logged();
        const Db db(path(), parameters);
        EXPECT_EQ(db.opened, SQLITE_CANTOPEN) << parameters;
        EXPECT_TRUE(logged(parameters)) << parameters;
    }
    EXPECT_EQ(left(), 0u);
    EXPECT_EQ(stock_sum(path()), "6");
}

TEST_F(SqliteErrors, DatabaseLargerThanMaxSizeDoesNotGrow)
{
    make();
    for (const char *parameters : {"max_size=1", "max_size=4096"}) {
        Db db(path(), parameters);
        EXPECT_EQ(db.number("SELECT sum(a) FROM t"), 6) << parameters;
        MUST(db, "UPDATE t SET b=a");
        EXPECT_EQ(db.run(fill("t", 10, 2000)), SQLITE_FULL) << parameters;
        EXPECT_EQ(db.number("SELECT sum(a) FROM t"), 6) << parameters;
    }
    EXPECT_EQ(stock_sum(path()), "6");
}

/* A set-user-id program ignores the environment. */
TEST_F(SqliteErrors, SetUserIdProgramsIgnoreTheEnvironment)
{
    const support::TempDir place("/tmp"); /* /dev/shm may be mounted without set-user-id programs */
    struct statvfs mounted;
    if (geteuid() != 0 || statvfs(place.path().c_str(), &mounted) < 0 ||
        (mounted.f_flag & (ST_NOSUID | ST_NOEXEC)))
        GTEST_SKIP() << "needs root, and set-user-id programs in /tmp";
    const std::string program = place / "program";
    ASSERT_EQ(chmod(place.path().c_str(), 0755), 0);
    std::filesystem::copy_file("/proc/self/exe", program);
    for (mode_t mode : {0755, 04755}) {
        ASSERT_EQ(chmod(program.c_str(), mode), 0);
        const pid_t child = fork();
        if (child == 0) {
            setenv("ATO_REFLECTION_DIR", "/dev/null/none", 1); /* no reflection can be made there */
            if (setgid(NOBODY) < 0 || setuid(NOBODY) < 0)
                _exit(3);
            _exit(system((program + " --gtest_filter='*LastCloseLeavesAPlainFile' >/dev/null")
                             .c_str()) == 0);
        }
        int status = 0;
        ASSERT_EQ(waitpid(child, &status, 0), child);
        EXPECT_EQ(WEXITSTATUS(status), (mode & S_ISUID) ? 1 : 0) << "was the database opened?";
    }
}

/* An entry of SQLite's log has at most 209 bytes. */
TEST_F(SqliteErrors, LongSentencesAreLoggedAsAWhole)
{
    std::string deep = folder.path();
    for (int i = 0; i < 2; i++) {
        deep += "/" + std::string(150, (char)('a' + i));
        ASSERT_EQ(mkdir(deep.c_str(), 0700), 0);
    }
    (void)logged();
    const Db db(deep + "/long.db", "unmap=wherever");
    EXPECT_EQ(db.opened, SQLITE_CANTOPEN);
    std::string whole;
    for (std::string entry : logged()) {
        EXPECT_LT(entry.size(), 210u);
        for (const char *mark : {"ato: ", "..."})
            if (entry.rfind(mark, 0) == 0)
                entry.erase(0, strlen(mark));
        whole += entry;
    }
    EXPECT_NE(
        whole.find(deep + "/long.db: unmap=wherever is not possible: it must be plain or fast"),
        std::string::npos)
        << whole;
}

TEST_F(SqliteErrors, PathWithoutARegularFileIsLeftToSqlite)
{
    for (const std::string &name :
         {folder.path(), std::string("/dev/null"), folder / "no/such.db"}) {
        Db db(name);
        Db stock = Db::stock(name);
        EXPECT_EQ(db.opened, stock.opened) << name;
        EXPECT_EQ(db.run("CREATE TABLE t(a)"), stock.run("CREATE TABLE t(a)")) << name;
    }
    ASSERT_EQ(symlink("/nowhere/at/all", path("link").c_str()), 0);
    EXPECT_EQ(Db(path("link")).opened, SQLITE_CANTOPEN);
}

TEST_F(SqliteErrors, ADatabaseBehindASymlinkIsTheSame)
{
    make();
    ASSERT_EQ(symlink(path().c_str(), path("link").c_str()), 0);
    Db db(path("link")), direct(path());
    MUST(db, "INSERT INTO t VALUES(10, 'x')");
    EXPECT_EQ(direct.number("SELECT sum(a) FROM t"), 16);
    EXPECT_EQ(names(), "a.db link");
}

TEST_F(SqliteErrors, FullAtMaxSizeRollsBack)
{
    make();
    for (const char *cache : {"5", "5000"}) {
        Db db(path(), "max_size=200000");
        ASSERT_EQ(db.opened, SQLITE_OK);
        MUST(db, std::string("PRAGMA cache_size=") + cache + "; BEGIN; UPDATE t SET b=a");
        int r = db.run(fill("t", 10, 2000));
        if (r == SQLITE_OK)
            r = db.run("COMMIT");
        EXPECT_EQ(r, SQLITE_FULL) << db.error();
        EXPECT_TRUE(logged("ato: "));
        is_as_it_was(db);
        db.close();
        EXPECT_EQ(stock_sum(path()), "6");
    }
}

TEST_F(SqliteErrors, FullAtALimitOfTheProcessRollsBack)
{
    make();
    struct rlimit before;
    getrlimit(RLIMIT_FSIZE, &before);
    signal(SIGXFSZ, SIG_IGN);
    for (const char *cache : {"5", "5000"}) {
        Db db(path());
        MUST(db, std::string("PRAGMA cache_size=") + cache +
                     "; INSERT INTO t VALUES(4, 4); DELETE FROM t WHERE a=4");
        struct rlimit small = before;
        small.rlim_cur = 400000;
        setrlimit(RLIMIT_FSIZE, &small);
        int r = db.run("BEGIN; UPDATE t SET b=a; " + fill("t", 10, 3000));
        if (r == SQLITE_OK)
            r = db.run("COMMIT");
        EXPECT_TRUE(r == SQLITE_FULL || r == SQLITE_IOERR) << db.error();
        is_as_it_was(db);
        setrlimit(RLIMIT_FSIZE, &before);
        is_as_it_was(db);
        MUST(db, fill("t", 10, 1000) + "; DELETE FROM t WHERE a>3");
        db.close();
        EXPECT_EQ(stock_sum(path()), "6");
    }
}

TEST_F(SqliteErrors, AFileThatIsNotADatabaseIsNotChanged)
{
    const support::Bytes noise = support::pattern(20000, 7);
    support::write_file(path(), noise);
    {
        const Db db(path());
        EXPECT_EQ(db.run("SELECT * FROM sqlite_master"), SQLITE_NOTADB);
        EXPECT_EQ(db.run("CREATE TABLE t(a)"), SQLITE_NOTADB);
    }
    EXPECT_TRUE(support::read_file(path()) == noise);
    EXPECT_EQ(left(), 0u);
}

TEST_F(SqliteErrors, AFolderThatCannotBeWrittenToIsReported)
{
    make();
    support::write_file(folder / ".ato", {1, 2, 3});
    Db db(path());
    EXPECT_EQ(db.number("SELECT sum(a) FROM t"), 6);
    EXPECT_EQ(db.run("INSERT INTO t VALUES(4, 4)"), SQLITE_READONLY);
    EXPECT_TRUE(logged("may not write to " + (folder / ".ato")));
    EXPECT_EQ(db.number("SELECT sum(a) FROM t"), 6);
}

TEST_F(SqliteErrors, AFileRemovedWhileOpenDoesNotAffectItsSuccessor)
{
    make();
    Db db(path());
    EXPECT_EQ(db.number("SELECT sum(a) FROM t"), 6);
    ASSERT_EQ(unlink(path().c_str()), 0);
    make();
    Db second(path());
    MUST(second, "INSERT INTO t VALUES(10, 'x')");
    EXPECT_EQ(second.number("SELECT sum(a) FROM t"), 16);
    (void)db.run("INSERT INTO t VALUES(20, 'y')");
    db.close();
    EXPECT_EQ(second.text("PRAGMA integrity_check"), "ok");
    EXPECT_EQ(second.number("SELECT sum(a) FROM t"), 16);
    second.close();
    EXPECT_EQ(stock_sum(path()), "16");
}

TEST_F(SqliteErrors, InterruptedTransactionsChangeNothing)
{
    make();
    Db db(path());
    MUST(db, "PRAGMA cache_size=5");
    sqlite3_progress_handler(
        db.handle, 5000, [](void *) { return 1; }, nullptr);
    EXPECT_EQ(db.run("BEGIN; UPDATE t SET b=a; " + fill("t", 10, 3000)), SQLITE_INTERRUPT);
    sqlite3_progress_handler(db.handle, 0, nullptr, nullptr);
    is_as_it_was(db);
}

/* Runs in a child. Returns 0 if all is as expected, else the number of the failed step. */
static int fill_a_disk(const std::string &file, const std::string &parameters)
{
    Db db(file, parameters);
    if (db.run("CREATE TABLE t(a INTEGER PRIMARY KEY, b UNIQUE); INSERT INTO t VALUES(1, 'one')"))
        return 1;
    for (const char *cache : {"5", "50000"}) {
        if (db.run(std::string("PRAGMA cache_size=") + cache + "; BEGIN; UPDATE t SET b=a"))
            return 2;
        int r = db.run(fill("t", 10, 40000));
        if (r == SQLITE_OK)
            r = db.run("COMMIT");
        if (r != SQLITE_FULL)
            return 3;
        if (!logged("ato: "))
            return 4;
        if (!sqlite3_get_autocommit(db.handle) && db.run("ROLLBACK"))
            return 5;
        if (db.text("SELECT group_concat(b) FROM t") != "one" ||
            db.text("PRAGMA integrity_check") != "ok")
            return 6;
        if (db.run(fill("t", 10, 100) + "; DELETE FROM t WHERE a>1"))
            return 7;
    }
    if (db.close() != SQLITE_OK)
        return 8;
    const Db stock = Db::stock(file);
    return stock.text("SELECT group_concat(b) FROM t") == "one" ? 0 : 9;
}

/* Runs `what` in a child in which the folder is a file system of 32 MiB. */
static int on_a_small_disk(const std::string &folder, const std::function<int()> &what)
{
    return support::in_child([&] {
        return hazards::alone() && hazards::mount_memory(folder, "size=32m") ? what()
                                                                             : hazards::NO_SCENE;
    });
}

TEST_F(SqliteErrors, FullDiskRollsBack)
{
    for (const char *parameters : {"", "unmap=plain&max_size=100000000"}) {
        SCOPED_TRACE(parameters);
        EXPECT_PLAYED(
            on_a_small_disk(folder.path(), [&] { return fill_a_disk(path(), parameters); }));
    }
}

/* SQLite's own VFS wrote the database, and the disk is full: it can be read, not written. Returns as fill_a_disk(). */
static int read_on_a_full_disk(const std::string &file)
{
    if (Db::stock(file).run("CREATE TABLE t(a); INSERT INTO t VALUES(6)"))
        return 1;
    (void)system(("dd if=/dev/zero of='" + file + ".rest' bs=4096 2>/dev/null").c_str());
    {
        Db db(file);
        if (db.opened || db.number("SELECT sum(a) FROM t") != 6)
            return 2;
        if (db.run("INSERT INTO t VALUES(7)") != SQLITE_FULL || !logged("cannot map"))
            return 3;
        if (db.number("SELECT sum(a) FROM t") != 6)
            return 4;
    }
    if (unlink((file + ".rest").c_str()) < 0)
        return 5;
    Db db(file);
    return db.run("INSERT INTO t VALUES(7)") || db.close() ||
                   Db::stock(file).number("SELECT sum(a) FROM t") != 13
               ? 6
               : 0;
}

TEST_F(SqliteErrors, DatabaseOnAFullDiskIsRead)
{
    EXPECT_PLAYED(on_a_small_disk(folder.path(), [&] { return read_on_a_full_disk(path()); }));
}

/* The shared memory is as large as the database may become, and counts as a file: beyond RLIMIT_FSIZE the kernel would
 * send SIGXFSZ. */
TEST_F(SqliteErrors, ALimitThatAllowsNoSharedMemoryIsAnError)
{
    make();
    EXPECT_EQ(support::in_child([&] {
                  const struct rlimit small = {64 << 20, 64 << 20};
                  setrlimit(RLIMIT_FSIZE, &small);
                  Db db(path());
                  return db.run("DELETE FROM t") == SQLITE_FULL && logged("RLIMIT_FSIZE") ? 0 : 1;
              }),
              0);
    const Db db(path());
    is_as_it_was(db);
}

/* The bytes that the kernel counts as data of this process. */
static rlim_t data_bytes()
{
    std::ifstream statm("/proc/self/statm");
    rlim_t field = 0;
    for (int i = 0; i < 6; i++)
        statm >> field;
    return field * 4096;
}

/* A transaction needs memory only for the pages that it changes. */
TEST_F(SqliteErrors, ATransactionWithinTheMemoryLimitSucceeds)
{
    make();
    EXPECT_EQ(support::in_child([&] {
                  const Db db(path());
                  // AddressSanitizer keeps freed memory for a while.
                  const rlim_t limit = data_bytes() + ((with_sanitizer() ? 450 : 100) << 20);
                  const struct rlimit small = {limit, limit};
                  setrlimit(RLIMIT_DATA, &small);
                  return db.run("BEGIN; " + fill("t", 10, 20000) +
                                "; UPDATE t SET b=b||a; DELETE FROM t WHERE a>3; COMMIT");
              }),
              0);
}

/* The name of a rollback journal would be too long. It is not needed: the journal is in memory. */
TEST_F(SqliteErrors, ANameTooLongForAJournalNameWorks)
{
    const std::string longest(255, 'n');
    {
        const Db db(path(longest));
        MUST(db, "CREATE TABLE t(a); INSERT INTO t VALUES(1)");
        MUST(db,
             "BEGIN; INSERT INTO t VALUES(2); ROLLBACK; BEGIN; INSERT INTO t VALUES(3); COMMIT");
        EXPECT_EQ(db.text("SELECT group_concat(a) FROM t"), "1,3");
    }
    EXPECT_EQ(names(), longest);
}

/* The folder cannot be deleted as a journal: the error comes before the commit. */
TEST_F(SqliteErrors, AFolderWithTheJournalsNameIsAnErrorBeforeTheCommit)
{
    ASSERT_EQ(mkdir(path("b.db-journal").c_str(), 0700), 0);
    EXPECT_EQ(Db(path("b.db")).run("CREATE TABLE t(a)"), SQLITE_CANTOPEN);
    EXPECT_EQ(Db::stock(path("b.db")).run("CREATE TABLE t(a)"), SQLITE_CANTOPEN);
    ASSERT_EQ(rmdir(path("b.db-journal").c_str()), 0);
    EXPECT_EQ(Db(path("b.db")).number("SELECT count(*) FROM sqlite_master"), 0);
}

/* When SQLite deletes the journal, the commit is durable. */
TEST_F(SqliteErrors, CommitInAFolderThatCannotBeSearchedSucceeds)
{
    make();
    ASSERT_TRUE(give_to_nobody());
    const Nobody nobody;
    Db db(path());
    MUST(db, "UPDATE t SET a=a; BEGIN; INSERT INTO t VALUES(4, 'four')");
    EXPECT_EQ(chmod(folder.path().c_str(), 0), 0);
    EXPECT_EQ(db.run("COMMIT"), SQLITE_OK) << db.error();
    EXPECT_EQ(chmod(folder.path().c_str(), 0700), 0);
    EXPECT_EQ(db.number("SELECT sum(a) FROM t"), 10);
    EXPECT_EQ(db.close(), SQLITE_OK);
    EXPECT_EQ(stock_sum(path()), "10");
}

TEST_F(SqliteErrors, OrRollbackRollsTheTransactionBack)
{
    make();
    Db db(path());
    MUST(db, "PRAGMA cache_size=5; BEGIN; UPDATE t SET b=a; " + fill("t", 10, 300));
    EXPECT_EQ(db.run("INSERT OR ROLLBACK INTO t VALUES(1, 1)"), SQLITE_CONSTRAINT);
    EXPECT_EQ(sqlite3_get_autocommit(db.handle), 1);
    is_as_it_was(db);
}

TEST_F(SqliteErrors, AnExitDuringATransactionRollsItBack)
{
    make();
    EXPECT_EQ(support::in_exiting_child([&] {
                  static Db db(path());
                  return db.run(
                      "INSERT INTO t VALUES(4, 4); PRAGMA cache_size=5; BEGIN; UPDATE t SET b=a;" +
                      fill("t", 10, 300));
              }),
              0);
    Db db(path());
    MUST(db, "DELETE FROM t WHERE a=4");
    is_as_it_was(db);
    db.close();
    EXPECT_EQ(left(), 0u);
    EXPECT_EQ(stock_sum(path()), "6");
}

/* Goes on in the child of the next tests, after the VFS has left all databases: destructors with the lowest number run last. Returns
 * whether it committed. */
static const std::function<bool()> *goes_on;
static void __attribute__((destructor(101))) go_on()
{
    if (goes_on)
        _exit((*goes_on)() ? 1 : 0);
}

/* Another thread may be within a transaction during an exit: half of it is rolled back, and the other half must not be committed. */
TEST_F(SqliteErrors, WhatGoesOnDuringAnExitIsNotCommitted)
{
    make();
    MUST(Db(path()), "CREATE TABLE s(b); INSERT INTO s VALUES(1); " + fill("t", 10, 300));
    EXPECT_EQ(support::in_exiting_child([&] {
                  const auto *db = new Db(path());
                  goes_on = new std::function<bool()>(
                      [=] { return db->run("UPDATE s SET b=9; COMMIT") == SQLITE_OK; });
                  return db->run("PRAGMA cache_size=5; BEGIN; UPDATE t SET b=a*3");
              }),
              0);
    const Db db(path());
    EXPECT_EQ(db.number("SELECT count(*) FROM t WHERE b=a*3"), 0);
    EXPECT_EQ(db.number("SELECT b FROM s"), 1);
}

/* All pages are staged when the exit begins. SQLite syncs next, or, with synchronous=OFF, only says that it has committed. */
TEST_F(SqliteErrors, WhatIsStagedWhenAnExitBeginsIsNoSuccess)
{
    for (const bool syncs : {true, false}) {
        make();
        EXPECT_EQ(support::in_exiting_child([&] {
                      const auto *db = new Db(path());
                      std::string page(4096, 0);
                      sqlite3_file *file = nullptr;
                      sqlite3_file_control(db->handle, "main", SQLITE_FCNTL_FILE_POINTER, &file);
                      const sqlite3_io_methods *m = file->pMethods;
                      goes_on = new std::function<bool()>([=] {
                          return (syncs ? m->xSync(file, SQLITE_SYNC_NORMAL)
                                        : m->xFileControl(file, SQLITE_FCNTL_COMMIT_PHASETWO,
                                                          nullptr)) == SQLITE_OK;
                      });
                      int r = 0;
                      for (const int level :
                           {SQLITE_LOCK_SHARED, SQLITE_LOCK_RESERVED, SQLITE_LOCK_EXCLUSIVE})
                          r |= m->xLock(file, level);
                      r |= m->xRead(file, page.data(), 4096, 0);
                      return r | m->xWrite(file, page.data(), 4096, 0);
                  }),
                  0)
            << syncs;
        ASSERT_EQ(unlink(path().c_str()), 0);
    }
}

TEST_F(SqliteErrors, AnExitingChildKeepsTheTransactionOfItsParent)
{
    make();
    Db db(path());
    MUST(db, "PRAGMA cache_size=5; BEGIN; " + fill("t", 10, 300));
    EXPECT_EQ(support::in_child([] { return 0; }), 0);
    EXPECT_EQ(support::in_exiting_child([] { return 0; }), 0);
    MUST(db, fill("t", 400, 500) + "; COMMIT");
    EXPECT_EQ(db.number("SELECT count(*) FROM t"), 395);
    EXPECT_EQ(db.text("PRAGMA integrity_check"), "ok");
}

/* Another program cuts a file of the database while it is open: an error, and none of these processes dies or waits. */
TEST_F(SqliteErrors, ADatabaseThatIsCutWhileItIsOpenIsAnIoError)
{
    int files = 0;
    for (const auto of : {+[](const std::string &p) { return p; },
                          +[](const std::string &p) { return support::reflection_of(p); },
                          +[](const std::string &p) { return support::manifest_of(p); }})
        for (const off_t to : {0, 4096}) {
            const std::string name = "cut" + std::to_string(++files) + ".db";
            make(name);
            EXPECT_EQ(support::in_child([&] {
                          start();
                          Db db(path(name), "lock_wait_ms=100"),
                              idle(path(name), "lock_wait_ms=100");
                          if (db.run(fill("t", 10, 500)) != SQLITE_OK ||
                              idle.number("SELECT count(*) FROM t") < 490)
                              return 1;
                          const std::string file = of(path(name));
                          if (truncate(file.c_str(), to) < 0)
                              return 2;
                          bool failed = false;
                          for (const Db *one : {&db, &idle, &db, &idle})
                              for (const char *statement :
                                   {"PRAGMA cache_size=1; UPDATE t SET b = b || 'x'",
                                    "SELECT sum(length(b)) FROM t", "VACUUM"}) {
                                  const int r = one->run(statement);
                                  failed |= r != SQLITE_OK;
                                  if (r != SQLITE_OK && (r & 0xff) != SQLITE_IOERR &&
                                      r != SQLITE_BUSY && r != SQLITE_CANTOPEN)
                                      return 100 + r;
                              }
                          return failed ? 0 : 3;
                      }),
                      0)
                << of(path(name)) << " " << to;
        }
}

} // namespace sql
