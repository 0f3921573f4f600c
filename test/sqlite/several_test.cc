/* SPDX-License-Identifier: BSD-3-Clause */
/* Is a transaction over several databases atomic, whether it succeeds or fails? */
#include "several.h"

#include "model/rig.h"
#include "support/child.h"

#include <sys/stat.h>
#include <thread>
#include <unistd.h>

namespace sql
{

TEST_F(SqliteSeveral, CommitAsOne)
{
    make_both();
    for (const char *mode : {"delete", "truncate", "persist"}) {
        SCOPED_TRACE(mode);
        Db db = open_both();
        MUST(db, std::string("PRAGMA main.journal_mode=") + mode +
                     "; PRAGMA other.journal_mode=" + mode);
        MUST(db, std::string(CHANGE_BOTH) + "; COMMIT");
        EXPECT_EQ(both(db), "16 26");
        EXPECT_EQ(names(), "a.db b.db");
        MUST(db, "BEGIN; DELETE FROM main.t WHERE a=10; DELETE FROM other.t WHERE a=20");
        MUST(db, "ROLLBACK");
        EXPECT_EQ(both(db), "16 26");
        MUST(db, "BEGIN; DELETE FROM main.t WHERE a=10; DELETE FROM other.t WHERE a=20; COMMIT");
        db.close();
        EXPECT_EQ(stock_sum(path()), "6");
        EXPECT_EQ(stock_sum(second()), "6");
    }
}

TEST_F(SqliteSeveral, OfAKilledProcessAreInNeitherDatabase)
{
    make_both();
    ASSERT_EQ(other.open(path()), SQLITE_OK);
    ASSERT_EQ(other.run("ATTACH '" + uri(second()) + "' AS other; PRAGMA main.cache_size=5; " +
                        CHANGE_BOTH + ";" + fill("main.t", 100, 300)),
              SQLITE_OK);
    other.kill();
    const Db db = open_both();
    EXPECT_EQ(both(db), "6 6");
    MUST(db, std::string(CHANGE_BOTH) + "; COMMIT");
    EXPECT_EQ(both(db), "16 26");
}

/* Of other folders, file systems, users and VFSs, in all journal modes. */
TEST_F(SqliteSeveral, OfAllKindsCommitAsOne)
{
    const support::TempDir disk("/tmp");
    const std::string far = disk / "b.db";
    make_both();
    MUST(Db::stock(far), "CREATE TABLE t(a INTEGER PRIMARY KEY, b); INSERT INTO t VALUES(6, 'x')");
    chmod(path().c_str(), 0666);
    chmod(second().c_str(), 0600);
    for (const bool is_stock : {false, true})
        for (const std::string &other : {uri(second()), "file:" + second() + "?vfs=unix", uri(far)})
            for (const char *mode : {"delete", "truncate", "persist", "memory", "wal"})
                for (const char *locking : {"normal", "exclusive"}) {
                    SCOPED_TRACE(std::string(is_stock ? "stock " : "") + other + " " + mode + " " +
                                 locking);
                    Db db = is_stock ? Db::stock(path()) : Db(path());
                    MUST(db, "ATTACH '" + other + "' AS other; PRAGMA other.journal_mode=" + mode +
                                 "; PRAGMA other.locking_mode=" + locking);
                    for (int turn = 0; turn < 2; turn++) {
                        MUST(db, std::string(CHANGE_BOTH) + "; ROLLBACK");
                        EXPECT_EQ(both(db), "6 6");
                        MUST(db, std::string(CHANGE_BOTH) + "; COMMIT");
                        EXPECT_EQ(both(db), "16 26");
                        MUST(db, "DELETE FROM main.t WHERE a=10; DELETE FROM other.t WHERE a=20");
                    }
                    MUST(db, "PRAGMA other.journal_mode=delete");
                    EXPECT_EQ(db.close(), SQLITE_OK);
                    EXPECT_EQ(names(), "a.db b.db");
                    EXPECT_EQ(stock_sum(path()), "6");
                    EXPECT_EQ(left(), 0u);
                }
}

/* More than SQLite's cache holds, committed and rolled back; the databases get longer and shorter. */
TEST_F(SqliteSeveral, LargerThanTheCacheCommitAsOne)
{
    make_both();
    Db db = open_both();
    MUST(db, "PRAGMA main.cache_size=5; PRAGMA other.cache_size=5");
    const std::string grow = fill("main.t", 100, 1000) + ";" + fill("other.t", 100, 1000);
    for (const bool commits : {false, true, true}) {
        MUST(db, "BEGIN; " + grow);
        MUST(db, commits ? "COMMIT" : "ROLLBACK");
        const std::string counts =
            "SELECT (SELECT count(*) FROM main.t)||' '||(SELECT count(*) FROM other.t)";
        EXPECT_EQ(db.text(counts), commits ? "904 904" : "3 3");
        MUST(db, "BEGIN; UPDATE main.t SET b=a||hex(zeroblob(700)); UPDATE other.t SET b=a");
        MUST(db, commits ? "COMMIT" : "ROLLBACK");
        MUST(db, "BEGIN; DELETE FROM main.t WHERE a>3; DELETE FROM other.t WHERE a>3; COMMIT;"
                 "VACUUM main");
        EXPECT_EQ(both(db), "6 6");
    }
    for (const char *name : {"main", "other"})
        EXPECT_EQ(db.text(std::string("PRAGMA ") + name + ".integrity_check"), "ok");
    db.close();
    EXPECT_EQ(stock_sum(path()), "6");
    EXPECT_EQ(stock_sum(second()), "6");
}

/* The process ends before, or after, each call that changes a file; each second or fifth one if less than all work is to be done. */
class SqliteSeveralSteps : public SqliteSeveral, public testing::WithParamInterface<const char *>
{
  protected:
    static int step, last;
    static bool after;

    template <typename Call> static auto counted(const Call &call)
    {
        const bool ends = ++step == last;
        if (ends && !after)
            _exit(support::CUT);
        const auto r = call();
        if (ends)
            _exit(support::CUT);
        return r;
    }
    /* A database's own calls count, too: some of them change no file by SQLite's own VFS. */
    static void count_calls(const Db &db, const char *name)
    {
        sqlite3_file *file = nullptr;
        (void)sqlite3_file_control(db.handle, name, SQLITE_FCNTL_FILE_POINTER, &file);
        auto *methods = const_cast<sqlite3_io_methods *>(file->pMethods);
        static const sqlite3_io_methods ours = *methods;
        methods->xWrite = [](sqlite3_file *f, const void *from, int n, sqlite3_int64 at) {
            return counted([&] { return ours.xWrite(f, from, n, at); });
        };
        methods->xSync = [](sqlite3_file *f, int flags) {
            return counted([&] { return ours.xSync(f, flags); });
        };
        methods->xFileControl = [](sqlite3_file *f, int what, void *arg) {
            return what == SQLITE_FCNTL_SYNC
                       ? counted([&] { return ours.xFileControl(f, what, arg); })
                       : ours.xFileControl(f, what, arg);
        };
    }
    static void count_calls()
    {
        sqlite3_vfs *vfs = sqlite3_vfs_find("unix");
        const auto set = [&](const char *name, auto *call) {
            (void)vfs->xSetSystemCall(vfs, name, reinterpret_cast<sqlite3_syscall_ptr>(call));
        };
        set(
            "pwrite64", +[](int fd, const void *from, size_t n, off_t at) {
                return counted([&] { return pwrite(fd, from, n, at); });
            });
        set(
            "pwrite", +[](int fd, const void *from, size_t n, off_t at) {
                return counted([&] { return pwrite(fd, from, n, at); });
            });
        set(
            "unlink", +[](const char *name) { return counted([&] { return unlink(name); }); });
        set(
            "ftruncate",
            +[](int fd, off_t size) { return counted([&] { return ftruncate(fd, size); }); });
    }
};

int SqliteSeveralSteps::step, SqliteSeveralSteps::last;
bool SqliteSeveralSteps::after;

INSTANTIATE_TEST_SUITE_P(Synchronous, SqliteSeveralSteps, testing::Values("NORMAL", "FULL"),
                         [](const auto &parameter) { return std::string(parameter.param); });

/* What the killed process was about to do. */
struct Change {
    bool spills; /* more than the cache holds */
    bool first;  /* the files are plain before */
    bool wal;    /* a third one is in WAL mode, which SQLite commits apart from the others */
};

TEST_P(SqliteSeveralSteps, AKillLeavesAllOrNone)
{
    const std::string mode = GetParam(), alone = "CREATE TABLE main.u AS SELECT 7 AS a;"
                                                 "PRAGMA other.user_version=1;";
    for (int which = 0; which < (mode == "FULL" ? 6 : 2); which++) {
        const Change change = {which >= 4, which % 2 == 1, which / 2 % 2 == 1};
        bool ended = false;
        const auto stride = static_cast<int>(rig::stride(change.spills ? 5 : 1));
        for (last = 1 + rig::first_step(stride); !ended; last += stride)
            for (const bool later : {false, true}) {
                const bool stock = later ? last % 2 == 0
                                         : last % 2 == 1 || !change.first; /* who opens them next */
                after = later;
                SCOPED_TRACE("change " + std::to_string(which) + ", step " + std::to_string(last) +
                             (later ? " after" : "") + (stock ? " stock, " : ", ") + rig::replay());
                ASSERT_EQ(system(("rm -rf " + path("*") + " " + path(".ato")).c_str()), 0);
                make_both();
                make("c.db", change.wal ? "PRAGMA journal_mode=WAL" : "");
                if (!change.first && later) { /* a process lives on that shares them in memory */
                    ASSERT_EQ(other.open(path()), SQLITE_OK);
                    ASSERT_EQ(other.run("ATTACH '" + uri(second()) + "' AS other;" + alone),
                              SQLITE_OK);
                }
                const int status = support::in_child([&] {
                    start();
                    const Db db = open_both();
                    (void)db.run("ATTACH '" + uri(path("c.db")) + "' AS third;" +
                                 (change.first || later ? "" : alone) + "PRAGMA main.synchronous=" +
                                 mode + "; PRAGMA other.synchronous=" + mode +
                                 (change.spills ? "; PRAGMA main.cache_size=2" : ""));
                    step = -1000000;
                    count_calls();
                    for (const char *name : {"main", "other", "third"})
                        count_calls(db, name);
                    (void)db.run(std::string(CHANGE_BOTH) +
                                 "; INSERT INTO third.t VALUES(30, 'x')" +
                                 (change.spills ? ";" + fill("main.t", 100, 300) : ""));
                    step = 0;
                    (void)db.run("COMMIT");
                    _exit(0);
                    return 0;
                });
                ended = status == 0;
                ASSERT_TRUE(ended || status == support::CUT);
                if (!change.first && later) {
                    const std::string sums = other.text(SUMS);
                    EXPECT_TRUE(sums == "6 6" || sums == (change.spills ? "40216 26" : "16 26"))
                        << sums;
                    EXPECT_EQ(other.close(), SQLITE_OK);
                }
                if (stock) { /* it refuses what has a mask */
                    const Db db = Db::stock(path());
                    (void)db.run("ATTACH '" + second() +
                                 "' AS other; SELECT * FROM main.t;"
                                 "SELECT * FROM other.t");
                }
                const Db db = open_both();
                MUST(db, "ATTACH '" + uri(path("c.db")) + "' AS third");
                const int64_t rows = db.number("SELECT count(*) FROM main.t WHERE a>3");
                EXPECT_TRUE(rows == 0 || rows == (change.spills ? 202 : 1)) << rows;
                EXPECT_EQ(db.number("SELECT count(*) FROM other.t WHERE a>3"), rows > 0);
                if (!change.wal) {
                    EXPECT_EQ(db.number("SELECT count(*) FROM third.t WHERE a>3"), rows > 0);
                }
                for (const char *name : {"main", "other", "third"})
                    EXPECT_EQ(db.text(std::string("PRAGMA ") + name + ".integrity_check"), "ok");
                EXPECT_TRUE(change.first || db.number("SELECT a FROM main.u") == 7);
                MUST(db, "BEGIN; DELETE FROM main.t WHERE a>3; DELETE FROM other.t WHERE a>3;"
                         "DELETE FROM third.t; COMMIT");
                EXPECT_EQ(both(db), "6 6");
                if (HasFailure())
                    return;
            }
    }
}

/* A process ends within a commit: before it deletes the super-journal, or when it has, before it deletes the second journal. */
class SqliteSeveralDead : public SqliteSeveral
{
  protected:
    void leave_journals(const char *last, const std::string &statements)
    {
        static std::string end;
        end = last;
        EXPECT_EQ(support::in_child([&] {
                      start();
                      const Db db = open_both();
                      sqlite3_vfs *vfs = sqlite3_vfs_find("unix");
                      const auto unlink_unless = +[](const char *name) {
                          if (std::string(name).find(end) != std::string::npos)
                              _exit(support::CUT);
                          return unlink(name);
                      };
                      (void)vfs->xSetSystemCall(
                          vfs, "unlink", reinterpret_cast<sqlite3_syscall_ptr>(unlink_unless));
                      return db.run(statements);
                  }),
                  support::CUT);
    }
};

/* SQLite finds the name of the super-journal at the end of the journal that was left, also when it has written a shorter one over its
 * beginning. */
TEST_F(SqliteSeveralDead, LeaveNoJournalThatEndsAnotherOne)
{
    for (const bool in_memory : {false, true})
        for (const char *mode : {"delete", "truncate", "persist"})
            for (const char *locking : {"normal", "exclusive"}) {
                SCOPED_TRACE(std::string(mode) + (in_memory ? " in memory " : " ") + locking);
                ASSERT_EQ(system(("rm -rf " + path("*") + " " + path(".ato")).c_str()), 0);
                make_both();
                MUST(Db::stock(second()), fill("t", 101, 400));
                ASSERT_EQ(other.open(second()), SQLITE_OK);
                ASSERT_EQ(
                    other.run(std::string("PRAGMA journal_mode=") + mode +
                              "; PRAGMA cache_size=5; SELECT * FROM t;" +
                              (in_memory ? "PRAGMA user_version=1; PRAGMA user_version=2" : "")),
                    SQLITE_OK);
                leave_journals("b.db-journal",
                               "BEGIN; UPDATE main.t SET a=a+10; UPDATE other.t SET "
                               "b=randomblob(500); COMMIT");
                ASSERT_EQ(other.run(std::string("PRAGMA locking_mode=") + locking +
                                    "; BEGIN IMMEDIATE; UPDATE t SET b=randomblob(600) WHERE a<150;"
                                    "UPDATE t SET a=a+10000 WHERE a>350; ROLLBACK"),
                          SQLITE_OK)
                    << other.error();
                EXPECT_EQ(other.text("PRAGMA integrity_check"), "ok");
                EXPECT_EQ(other.text("SELECT max(a)||' '||max(length(b)) FROM t"), "400 500");
                EXPECT_EQ(other.close(), SQLITE_OK);
                EXPECT_EQ(stock_sum(path()), "36");
            }
}

/* Those that find the journals at the same time do not take one another for their writer. */
TEST_F(SqliteSeveralDead, LeaveJournalsThatAreHotForAll)
{
    make_both();
    ASSERT_EQ(other.open(path()), SQLITE_OK); /* shares it in memory */
    ASSERT_EQ(other.run("PRAGMA user_version=1; PRAGMA user_version=2"), SQLITE_OK);
    leave_journals("-mj", std::string(CHANGE_BOTH) + "; COMMIT");
    const Db one(path()), two(path());
    sqlite3_file *first = nullptr, *second = nullptr;
    (void)sqlite3_file_control(one.handle, "main", SQLITE_FCNTL_FILE_POINTER, &first);
    (void)sqlite3_file_control(two.handle, "main", SQLITE_FCNTL_FILE_POINTER, &second);
    ASSERT_EQ(first->pMethods->xLock(first, SQLITE_LOCK_SHARED), SQLITE_OK);
    ASSERT_EQ(second->pMethods->xLock(second, SQLITE_LOCK_SHARED), SQLITE_OK);
    EXPECT_EQ(second->pMethods->xLock(second, SQLITE_LOCK_EXCLUSIVE), SQLITE_BUSY);
    int is_reserved = 2;
    EXPECT_EQ(first->pMethods->xCheckReservedLock(first, &is_reserved), SQLITE_OK);
    EXPECT_EQ(is_reserved, 0);
    EXPECT_EQ(second->pMethods->xUnlock(second, SQLITE_LOCK_NONE), SQLITE_OK);
    EXPECT_EQ(first->pMethods->xUnlock(first, SQLITE_LOCK_NONE), SQLITE_OK);
    EXPECT_EQ(two.text("SELECT sum(a) FROM t"), "6");
}

TEST_F(SqliteSeveral, ContainTemporaryTablesAndThreeFiles)
{
    make_both();
    Db db = open_both();
    MUST(db, "ATTACH '" + uri(path("c.db")) + "' AS third; CREATE TABLE third.t(a)");
    MUST(db, std::string("CREATE TEMP TABLE x(a);") + CHANGE_BOTH +
                 "; INSERT INTO third.t VALUES(30); INSERT INTO x VALUES(1); COMMIT");
    EXPECT_EQ(both(db) + " " + db.text("SELECT sum(a) FROM third.t"), "16 26 30");
    MUST(db, "BEGIN; DELETE FROM main.t; DELETE FROM third.t; DELETE FROM x; ROLLBACK");
    EXPECT_EQ(both(db) + " " + db.text("SELECT sum(a) FROM third.t"), "16 26 30");
}

/* The super-journal names databases in memory, too. */
TEST_F(SqliteSeveral, ContainDatabasesInMemory)
{
    make_both();
    for (const char *memory : {":memory:", "file:one?mode=memory",
                               "file:two?mode=memory&cache=shared", "file:/three?vfs=memdb"}) {
        Db db = open_both();
        const std::string before = both(db);
        MUST(db, std::string("ATTACH '") + memory + "' AS third; CREATE TABLE third.t(a)");
        MUST(db, std::string(CHANGE_BOTH) + "; INSERT INTO third.t VALUES(30); ROLLBACK");
        EXPECT_EQ(both(db) + " " + db.text("SELECT count(*) FROM third.t"), before + " 0")
            << memory;
        MUST(db, std::string(CHANGE_BOTH) + "; INSERT INTO third.t VALUES(30); COMMIT");
        EXPECT_NE(both(db), before) << memory;
        EXPECT_EQ(db.text("SELECT sum(a) FROM third.t"), "30") << memory;
        MUST(db, "DELETE FROM main.t WHERE a>3; DELETE FROM other.t WHERE a>3");
    }
}

TEST_F(SqliteSeveral, OfSeveralConnectionsTakeTurns)
{
    make_both();
    std::vector<Db> all;
    for (int i = 0; i < 3; i++)
        all.push_back(open_both());
    for (int turn = 0; turn < 20; turn++)
        for (const Db &db : all) {
            MUST(db, "BEGIN IMMEDIATE; UPDATE main.t SET a=a+10; UPDATE other.t SET a=a+10");
            MUST(db, turn % 3 ? "COMMIT" : "ROLLBACK");
        }
    EXPECT_EQ(both(all[0]), "1176 1176");
}

TEST_F(SqliteSeveral, OfThreadsAreInBothDatabasesOrInNeither)
{
    make_both();
    std::vector<std::thread> all;
    std::vector<std::string> wrong(6);
    for (std::string &w : wrong)
        all.emplace_back([&] {
            const Db db = open_both();
            for (int turn = 0; turn < 25 && w.empty(); turn++)
                if (db.run(
                        "BEGIN IMMEDIATE; UPDATE main.t SET a=a+10; UPDATE other.t SET a=a+10") ||
                    both(db).substr(0, both(db).find(' ')) !=
                        both(db).substr(both(db).find(' ') + 1) ||
                    db.run(turn % 5 ? "COMMIT" : "ROLLBACK"))
                    w = db.error() + " " + both(db);
        });
    for (std::thread &t : all)
        t.join();
    for (const std::string &w : wrong)
        EXPECT_EQ(w, "");
    const std::string sum = std::to_string(6 + 6 * 20 * 30);
    EXPECT_EQ(stock_sum(path()), sum);
    EXPECT_EQ(stock_sum(second()), sum);
    EXPECT_EQ(left(), 0u);
}

TEST_F(SqliteSeveral, TenDatabasesAreOneTransaction)
{
    make();
    Db db(path());
    std::string insert = "BEGIN; INSERT INTO main.t VALUES(10, 'x');",
                sum = "SELECT (SELECT sum(a) FROM main.t)";
    for (char c = 'a'; c <= 'j'; c++) {
        const std::string schema = std::string("db_") + c;
        MUST(db, "ATTACH '" + uri(path(schema)) + "' AS " + schema + "; CREATE TABLE " + schema +
                     ".t(a, b)");
        insert += "INSERT INTO " + schema + ".t VALUES(1, 2);";
        sum += "+(SELECT sum(a) FROM " + schema + ".t)";
    }
    MUST(db, insert + "COMMIT");
    EXPECT_EQ(db.number(sum), 26);
    MUST(db, insert.substr(0, 7) + insert.substr(insert.find(';', 7) + 1) + "ROLLBACK");
    EXPECT_EQ(db.number(sum), 26);
}

} // namespace sql
