/* SPDX-License-Identifier: BSD-3-Clause */
/* Is a transaction over several databases atomic, whether it succeeds or fails? */
#include "lab.h"
#include "support/child.h"

#include <algorithm>
#include <cstring>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>

static bool no_memory;

extern "C" {
void *__real_realloc(void *block, size_t n);
void *__wrap_realloc(void *block, size_t n);
void *__wrap_realloc(void *block, size_t n)
{
    return no_memory ? nullptr : __real_realloc(block, n);
}
}

namespace sql
{

class SqliteSeveral : public Lab
{
  protected:
    std::string second() const
    {
        return path("b.db");
    }
    void make_both() const
    {
        make();
        make("b.db");
    }
    Db open_both(const std::string &parameters = "", const std::string &of_second = "") const
    {
        Db db(path(), parameters);
        sqlite3_busy_timeout(db.handle, 60000);
        EXPECT_EQ(db.run("ATTACH '" + uri(second(), of_second.empty() ? parameters : of_second) +
                         "' AS other"),
                  SQLITE_OK)
            << db.error();
        return db;
    }
    static std::string both(const Db &db)
    {
        return db.text("SELECT (SELECT sum(a) FROM main.t)||' '||(SELECT sum(a) FROM other.t)");
    }
    /* As an SQLite that does not tell which connection uses a database. */
    static void hide_handle(const Db &db)
    {
        static sqlite3 *none;
        for (const char *name : {"main", "other"})
            (void)sqlite3_file_control(db.handle, name, SQLITE_FCNTL_PDB, &none);
    }
    static void roll_back(const Db &db)
    {
        if (!sqlite3_get_autocommit(db.handle)) {
            MUST(db, "ROLLBACK");
        }
    }
};

static constexpr char CHANGE_BOTH[] =
    "BEGIN; INSERT INTO main.t VALUES(10, 'x'); INSERT INTO other.t VALUES(20, 'x')";

TEST_F(SqliteSeveral, CommitAsOne)
{
    make_both();
    for (const char *mode : {"delete", "truncate", "persist"}) {
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

TEST_F(SqliteSeveral, AreCommittedByOneStep)
{
    make_both();
    Db db = open_both();
    auto commits = [&] {
        auto of = [&](const char *name) {
            const std::string stat = db.text(std::string("PRAGMA ") + name + ".ato_stat");
            return db.number(
                "SELECT j->>'commits_single'+(j->>'commits_rtm')+(j->>'commits_journal')"
                " FROM (SELECT '" +
                stat + "' AS j)");
        };
        return of("main") + of("other");
    };
    MUST(db, std::string(CHANGE_BOTH) + "; COMMIT; DELETE FROM main.t WHERE a=10;"
                                        "DELETE FROM other.t WHERE a=20");
    const int64_t before = commits();
    MUST(db, std::string(CHANGE_BOTH) + "; COMMIT");
    /* The counters of either file may show it. */
    EXPECT_GE(commits() - before, 1);
    EXPECT_LE(commits() - before, 2);
}

TEST_F(SqliteSeveral, FailAsOneIfNoCommitCanContainBoth)
{
    make_both();
    chmod(path().c_str(), 0666);
    chmod(second().c_str(), 0600);
    Db db = open_both();
    hide_handle(db);
    for (int turn = 0; turn < 2; turn++) {
        (void)logged();
        MUST(db, std::string("PRAGMA main.cache_size=5;") + CHANGE_BOTH + ";" +
                     fill("main.t", 100, 300));
        EXPECT_EQ(db.run("COMMIT"), SQLITE_IOERR) << db.error();
        EXPECT_TRUE(logged("one commit to all databases"));
        roll_back(db);
        EXPECT_EQ(both(db), "6 6");
        EXPECT_EQ(db.text("PRAGMA integrity_check"), "ok");
        MUST(db, "INSERT INTO main.t VALUES(50, 50); DELETE FROM main.t WHERE a=50");
        MUST(db, "INSERT INTO other.t VALUES(50, 50); DELETE FROM other.t WHERE a=50");
    }
    EXPECT_EQ(names(), "a.db b.db");
    db.close();
    EXPECT_EQ(stock_sum(path()), "6");
    EXPECT_EQ(stock_sum(second()), "6");
}

TEST_F(SqliteSeveral, TheFirstWriteToAFileOfOtherWritersFails)
{
    make_both();
    chmod(path().c_str(), 0666);
    chmod(second().c_str(), 0600);
    Db db = open_both();
    MUST(db, "BEGIN; INSERT INTO main.t VALUES(10, 'x')");
    (void)logged();
    EXPECT_EQ(db.run("INSERT INTO other.t VALUES(20, 'x')"), SQLITE_ERROR) << db.error();
    EXPECT_TRUE(logged("no commit can"));
    MUST(db, "COMMIT");
    EXPECT_EQ(both(db), "16 6");
}

class SqliteFolders : public SqliteSeveral
{
  protected:
    support::TempDir elsewhere;

    std::string far() const
    {
        return elsewhere / "b.db";
    }
    void make_both_apart() const
    {
        make_both();
        ASSERT_EQ(rename(second().c_str(), far().c_str()), 0);
    }
    Db open_apart(const std::string &parameters = "") const
    {
        Db db(path(), parameters);
        EXPECT_EQ(db.run("ATTACH '" + uri(far(), parameters) + "' AS other"), SQLITE_OK);
        return db;
    }
    static void set_modes(const Db &db, const std::string &journal, const std::string &locking)
    {
        for (const std::string name : {"main", "other"}) {
            MUST(db, "PRAGMA " + name + ".journal_mode=" + journal);
            MUST(db, "PRAGMA " + name + ".locking_mode=" + locking);
        }
    }
    /* The statement fails and says why. SQLITE_ERROR leaves the transaction open. */
    void refuses(const Db &db, const std::string &statement, int code = SQLITE_ERROR) const
    {
        const bool was_open = !sqlite3_get_autocommit(db.handle);
        (void)logged();
        EXPECT_EQ(db.run(statement), code) << statement << ": " << db.error();
        std::string words;
        for (const std::string &entry : logged())
            words += entry;
        for (const std::string &part :
             {path(), folder / ".ato", elsewhere / ".ato", std::string("reflection_dir")})
            EXPECT_NE(words.find(part), std::string::npos) << part << " is not in: " << words;
        EXPECT_EQ(!sqlite3_get_autocommit(db.handle), was_open && code == SQLITE_ERROR)
            << statement;
    }
};

TEST_F(SqliteFolders, TheFirstWriteToASecondFolderFailsAndNamesBoth)
{
    make_both_apart();
    for (const char *journal : {"delete", "truncate", "persist"})
        for (const char *locking : {"normal", "exclusive"})
            for (const char *begin : {"BEGIN", "BEGIN IMMEDIATE", "BEGIN EXCLUSIVE"}) {
                SCOPED_TRACE(std::string(journal) + " " + locking + " " + begin);
                Db db = open_apart();
                set_modes(db, journal, locking);
                for (int turn = 0; turn < 2; turn++) {
                    MUST(db, std::string(begin) + "; INSERT INTO main.t VALUES(10, 'x')");
                    refuses(db, "INSERT INTO other.t VALUES(20, 'x')");
                    refuses(db, "CREATE TABLE other.n(a)");
                    EXPECT_EQ(both(db), "16 6");
                    MUST(db, "INSERT INTO main.t VALUES(11, 'y'); COMMIT");
                    EXPECT_EQ(both(db), "27 6");
                    MUST(db, std::string(begin) + "; DELETE FROM other.t WHERE a=1");
                    refuses(db, "DELETE FROM main.t");
                    MUST(db, "ROLLBACK");
                    EXPECT_EQ(both(db), "27 6");
                    MUST(db, "DELETE FROM main.t WHERE a>=10");
                }
                EXPECT_EQ(db.close(), SQLITE_OK);
                EXPECT_EQ(stock_sum(path()) + " " + stock_sum(far()), "6 6");
            }
}

TEST_F(SqliteFolders, TheOneThatIsOnlyReadOrWasWrittenBeforeIsNotRefused)
{
    make_both_apart();
    for (const char *journal : {"delete", "truncate", "persist"})
        for (const char *locking : {"normal", "exclusive"})
            for (const char *begin : {"BEGIN", "BEGIN IMMEDIATE", "BEGIN EXCLUSIVE"}) {
                SCOPED_TRACE(std::string(journal) + " " + locking + " " + begin);
                Db db = open_apart();
                set_modes(db, journal, locking);
                for (const char *end : {"COMMIT", "ROLLBACK"})
                    for (const char *table : {"main.t", "other.t", "main.t"}) {
                        MUST(db, std::string(begin) + "; INSERT INTO " + table +
                                     " VALUES(10, 'x'); SELECT sum(a) FROM main.t;"
                                     "SELECT sum(a) FROM other.t;" +
                                     end);
                        MUST(db, std::string("DELETE FROM ") + table + " WHERE a=10");
                    }
            }
}

TEST_F(SqliteFolders, ARefusedStatementIsUndoneWithinItsSavepoint)
{
    make_both_apart();
    Db db = open_apart();
    MUST(db, "SAVEPOINT one; INSERT INTO main.t VALUES(10, 'x'); SAVEPOINT two");
    refuses(db, "INSERT INTO other.t VALUES(20, 'x')");
    MUST(db, "ROLLBACK TO two; INSERT INTO main.t VALUES(11, 'y'); RELEASE one");
    EXPECT_EQ(both(db), "27 6");
    /* SQLite commits pages that ROLLBACK TO has restored. */
    MUST(db, "BEGIN; SAVEPOINT one; DELETE FROM main.t; ROLLBACK TO one");
    refuses(db, "INSERT INTO other.t VALUES(20, 'x')");
    MUST(db, "COMMIT; INSERT INTO other.t VALUES(20, 'x')");
    EXPECT_EQ(both(db), "27 26");
}

/* Only a temporary trigger makes one statement write to two databases. SQLite does not undo each such statement by itself. */
TEST_F(SqliteFolders, WithTemporaryTriggersTheTransactionIsRolledBack)
{
    make_both_apart();
    Db db = open_apart();
    MUST(db, "CREATE TABLE main.plain(a); CREATE TABLE other.copy(a);"
             "CREATE TEMP TRIGGER copies AFTER INSERT ON main.t BEGIN"
             " INSERT INTO copy VALUES(new.a); END;"
             "CREATE TEMP TRIGGER copies_plain AFTER INSERT ON main.plain BEGIN"
             " INSERT INTO copy VALUES(new.a); END");
    for (const char *insert :
         {"INSERT INTO main.t VALUES(10, 'x')",
          "INSERT INTO main.t SELECT a+10, b||'x' FROM main.t", "INSERT INTO main.plain VALUES(10)",
          "INSERT INTO main.plain SELECT a FROM main.t"})
        for (const char *before : {"COMMIT", "UPDATE main.t SET a=a+10"}) {
            MUST(db, std::string("BEGIN;") + before);
            refuses(db, insert, SQLITE_IOERR);
            EXPECT_EQ(both(db), "6 6") << insert;
            EXPECT_EQ(db.number("SELECT count(*) FROM main.plain"), 0) << insert;
            EXPECT_EQ(db.number("SELECT count(*) FROM other.copy"), 0) << insert;
        }
    MUST(db, "INSERT INTO other.t VALUES(20, 'x')");
    EXPECT_EQ(both(db), "6 26");
}

TEST_F(SqliteFolders, AnalyzeAndReindexOfAllLeaveThemSound)
{
    make_both_apart();
    Db db = open_apart();
    for (const char *all : {"ANALYZE", "REINDEX"})
        for (const char *end : {"COMMIT", "ROLLBACK"}) {
            refuses(db, all);
            MUST(db, "BEGIN");
            refuses(db, all);
            MUST(db, end);
            for (const char *name : {"main", "other"}) {
                MUST(db, std::string("BEGIN;") + all + " " + name + ".t; ROLLBACK");
                EXPECT_EQ(db.text(std::string("PRAGMA ") + name + ".integrity_check"), "ok") << all;
            }
            EXPECT_EQ(both(db), "6 6");
        }
}

TEST_F(SqliteFolders, ANewDatabaseInASecondFolderIsRefusedToo)
{
    make_both_apart();
    Db db = open_apart();
    MUST(db, "ATTACH '" + uri(elsewhere / "new.db") + "' AS third");
    MUST(db, "BEGIN; INSERT INTO main.t VALUES(10, 'x')");
    refuses(db, "CREATE TABLE third.t(a)");
    MUST(db, "ROLLBACK; BEGIN; CREATE TABLE third.t(a); INSERT INTO other.t VALUES(20, 'x')");
    refuses(db, "INSERT INTO main.t VALUES(10, 'x')");
    MUST(db, "COMMIT");
    EXPECT_EQ(both(db), "6 26");
}

TEST_F(SqliteFolders, TwoConnectionsOfAThreadWriteToAFolderEach)
{
    make_both_apart();
    for (const char *journal : {"delete", "persist"}) {
        const Db one(path()), two(far());
        for (const char *end : {"COMMIT", "ROLLBACK"}) {
            MUST(one, std::string("PRAGMA journal_mode=") + journal +
                          "; BEGIN; INSERT INTO t VALUES(10, 'x')");
            MUST(two, std::string("PRAGMA journal_mode=") + journal +
                          "; BEGIN; INSERT INTO t VALUES(10, 'x')");
            MUST(one, end);
            MUST(two, end);
            MUST(one, "DELETE FROM t WHERE a=10");
            MUST(two, "DELETE FROM t WHERE a=10");
        }
    }
}

/* The connection that writes is known although others use the cache meanwhile. */
TEST_F(SqliteFolders, ConnectionsThatShareACacheWriteToAFolderEach)
{
    make_both_apart();
    Db reader(path());
    MUST(reader, "ATTACH '" + uri(far(), "cache=shared") + "' AS other; PRAGMA read_uncommitted=1");
    const Db writer(far(), "cache=shared");
    MUST(writer, "BEGIN; INSERT INTO t VALUES(20, 'x')");
    MUST(reader, "BEGIN; SELECT sum(a) FROM other.t; INSERT INTO main.t VALUES(10, 'x'); COMMIT");
    MUST(writer, "COMMIT");
    MUST(reader, "BEGIN; DELETE FROM other.t WHERE a=20");
    EXPECT_EQ(writer.number("SELECT count(*) FROM sqlite_schema"), 2);
    refuses(reader, "DELETE FROM main.t");
    MUST(reader, "ROLLBACK");
    EXPECT_EQ(both(reader), "16 26");
}

/* Only a third database makes SQLite commit it together with the others. */
TEST_F(SqliteFolders, ADatabaseThatWouldCommitByItselfMakesTheCommitOfThreeFail)
{
    make_both_apart();
    make("c.db");
    for (const char *alone : {"journal_mode=MEMORY", "journal_mode=OFF", "synchronous=OFF"}) {
        Db db = open_apart();
        MUST(db, "ATTACH '" + uri(path("c.db")) + "' AS third; PRAGMA other." + alone);
        MUST(db, std::string(CHANGE_BOTH) + "; INSERT INTO third.t VALUES(30, 'x')");
        refuses(db, "COMMIT", SQLITE_IOERR);
        EXPECT_EQ(both(db) + " " + db.text("SELECT sum(a) FROM third.t"), "6 6 6") << alone;
    }
}

TEST_F(SqliteFolders, AJournalThatGetsNoMemoryBeginsNoTransaction)
{
    make_both_apart();
    Db db = open_apart();
    set_modes(db, "truncate", "exclusive");
    no_memory = true;
    EXPECT_EQ(db.run("INSERT INTO main.t VALUES(10, 'x')"), SQLITE_NOMEM);
    no_memory = false;
    MUST(db, "BEGIN; INSERT INTO other.t VALUES(20, 'x'); COMMIT");
    EXPECT_EQ(both(db), "6 26");
}

TEST_F(SqliteFolders, DatabasesThatCommitWithoutLibatoAreNotRefused)
{
    make_both_apart();
    for (const char *parameters : {"journal=memory", "journal=file"})
        for (const char *wal : {"main", "other"}) {
            if (!strcmp(parameters, "journal=file"))
                wal = "temp"; /* none */
            Db db = open_apart(parameters);
            MUST(db, std::string("PRAGMA ") + wal + ".journal_mode=WAL; CREATE TEMP TABLE x(a)");
            for (const char *end : {"COMMIT", "ROLLBACK"}) {
                MUST(db, std::string("INSERT INTO x VALUES(1);") + CHANGE_BOTH +
                             "; INSERT INTO x VALUES(1);" + end);
                MUST(db, std::string("BEGIN; INSERT INTO other.t VALUES(30, 'y');"
                                     "INSERT INTO main.t VALUES(30, 'y'); ") +
                             end);
                EXPECT_EQ(both(db), !strcmp(end, "COMMIT") ? "46 56" : "6 6") << parameters << wal;
                MUST(db, "DELETE FROM main.t WHERE a>3");
                MUST(db, "DELETE FROM other.t WHERE a>3");
            }
            MUST(db, std::string("PRAGMA ") + wal + ".journal_mode=DELETE");
        }
}

/* ato_sqlite(7): SQLite commits one database after the other then. */
TEST_F(SqliteFolders, DatabasesThatSqliteCommitsOneByOneAreNotRefused)
{
    make_both_apart();
    for (const char *mode :
         {"main.journal_mode=MEMORY", "main.journal_mode=OFF", "other.journal_mode=MEMORY",
          "other.journal_mode=OFF", "main.synchronous=OFF", "other.synchronous=OFF"}) {
        Db db = open_apart();
        MUST(db, std::string("PRAGMA ") + mode);
        MUST(db, std::string(CHANGE_BOTH) + "; COMMIT");
        EXPECT_EQ(both(db), "16 26") << mode;
        MUST(db, "BEGIN; DELETE FROM other.t WHERE a>3; DELETE FROM main.t WHERE a>3; COMMIT");
    }
    for (const char *main : {":memory:", "", "file:/memory?vfs=memdb"}) {
        Db db = Db::stock(path());
        db.close();
        ASSERT_EQ(sqlite3_open_v2(main, &db.handle,
                                  SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_URI,
                                  nullptr),
                  SQLITE_OK);
        MUST(db, "ATTACH '" + uri(path()) + "' AS a; ATTACH '" + uri(far()) + "' AS b");
        const bool in_steps = db.run("BEGIN; INSERT INTO a.t VALUES(10, 'x');"
                                     "INSERT INTO b.t VALUES(10, 'x'); COMMIT") == SQLITE_OK;
        EXPECT_EQ(in_steps, *sqlite3_db_filename(db.handle, "main") == '\0') << main;
        roll_back(db);
        MUST(db, "DELETE FROM a.t WHERE a=10");
        MUST(db, "DELETE FROM b.t WHERE a=10");
    }
}

TEST_F(SqliteFolders, AnSqliteThatDoesNotTellItsConnectionIsRefusedAtCommit)
{
    make_both_apart();
    Db db = open_apart();
    hide_handle(db);
    for (int turn = 0; turn < 2; turn++) {
        MUST(db, CHANGE_BOTH);
        (void)logged();
        EXPECT_EQ(db.run("COMMIT"), SQLITE_IOERR) << db.error();
        EXPECT_TRUE(logged("reflection_dir"));
        roll_back(db);
        EXPECT_EQ(both(db), "6 6");
    }
}

TEST_F(SqliteFolders, OneReflectionFolderServesDatabasesOfTwoFolders)
{
    make_both_apart();
    const std::string one = "reflection_dir=" + (elsewhere / "reflections");
    Db db(path(), one);
    MUST(db, "ATTACH '" + uri(far(), one) + "' AS other");
    MUST(db, std::string(CHANGE_BOTH) + "; COMMIT");
    EXPECT_EQ(both(db), "16 26");
    MUST(db, "DELETE FROM main.t WHERE a>2; VACUUM main"); /* maps the file anew */
    MUST(db, std::string("BEGIN; UPDATE main.t SET b=1 WHERE a=1; UPDATE other.t SET b=1 WHERE a=1;"
                         "COMMIT"));
    EXPECT_FALSE(support::exists(folder / ".ato"));
    EXPECT_EQ(db.close(), SQLITE_OK);
    EXPECT_EQ(stock_sum(path()), "3");
    EXPECT_EQ(stock_sum(far()), "26");
}

TEST_F(SqliteSeveral, OfAKilledProcessAreInNeitherDatabase)
{
    make_both();
    ASSERT_EQ(other.open(path()), SQLITE_OK);
    ASSERT_EQ(other.run("ATTACH '" + uri(second()) + "' AS other; PRAGMA main.cache_size=5; " +
                        CHANGE_BOTH + ";" + fill("main.t", 100, 300)),
              SQLITE_OK);
    other.kill();
    Db db = open_both();
    EXPECT_EQ(both(db), "6 6");
    MUST(db, std::string(CHANGE_BOTH) + "; COMMIT");
    EXPECT_EQ(both(db), "16 26");
}

TEST_F(SqliteSeveral, WithTheirJournalsOnTheDiskCommitByThem)
{
    make_both();
    Db db = open_both("journal=file");
    MUST(db, std::string(CHANGE_BOTH));
    EXPECT_EQ(names(), "a.db a.db-journal b.db b.db-journal");
    MUST(db, "COMMIT");
    EXPECT_EQ(both(db), "16 26");
    EXPECT_EQ(names(), "a.db b.db");
}

TEST_F(SqliteSeveral, WithOneJournalOnTheDiskAreRefused)
{
    make_both();
    for (bool main_has : {false, true}) {
        Db db = main_has ? open_both("journal=file", "journal=memory")
                         : open_both("journal=memory", "journal=file");
        (void)logged();
        MUST(db, CHANGE_BOTH);
        EXPECT_EQ(db.run("COMMIT"), SQLITE_IOERR) << db.error();
        EXPECT_TRUE(logged("journal=file"));
        roll_back(db);
        EXPECT_EQ(both(db), "6 6");
        MUST(db, "INSERT INTO main.t VALUES(50, 50); DELETE FROM main.t WHERE a=50");
        MUST(db, "INSERT INTO other.t VALUES(50, 50); DELETE FROM other.t WHERE a=50");
        db.close();
        EXPECT_EQ(names(), "a.db b.db");
        EXPECT_EQ(stock_sum(path()), "6");
        EXPECT_EQ(stock_sum(second()), "6");
    }
}

/* Records the files that SQLite's own VFS removes. */
class Removals
{
  public:
    Removals()
    {
        names.clear();
        before = vfs()->xGetSystemCall(vfs(), "unlink");
        vfs()->xSetSystemCall(vfs(), "unlink", reinterpret_cast<sqlite3_syscall_ptr>(remove));
    }
    ~Removals()
    {
        vfs()->xSetSystemCall(vfs(), "unlink", before);
    }
    Removals(const Removals &) = delete;
    Removals &operator=(const Removals &) = delete;
    static int count(const std::string &part)
    {
        return static_cast<int>(
            std::count_if(names.begin(), names.end(), [&](const std::string &name) {
                return name.find(part) != std::string::npos;
            }));
    }

  private:
    static sqlite3_vfs *vfs()
    {
        return sqlite3_vfs_find("unix");
    }
    static int remove(const char *name)
    {
        names.emplace_back(name);
        return unlink(name);
    }
    static std::vector<std::string> names;
    sqlite3_syscall_ptr before;
};

std::vector<std::string> Removals::names;

/* The connections of a commit are found by the names of their files. An idle connection does not say where the journal
 * is. */
TEST_F(SqliteSeveral, BesideConnectionsThatDoNothing)
{
    make_both();
    for (const char *idle : {"journal=file", "journal=memory", "mode=ro"}) {
        const Db first(path(), idle), last(second(), idle);
        EXPECT_EQ(first.number("SELECT sum(a) FROM t"), 6);
        EXPECT_EQ(last.number("SELECT sum(a) FROM t"), 6);
        for (bool main_has : {false, true}) {
            Db db = main_has ? open_both("journal=file", "journal=memory")
                             : open_both("journal=memory", "journal=file");
            MUST(db, CHANGE_BOTH);
            EXPECT_EQ(db.run("COMMIT"), SQLITE_IOERR) << idle;
            roll_back(db);
            EXPECT_EQ(both(db), "6 6");
        }
        Db db = open_both("journal=file");
        const Removals removals;
        MUST(db, std::string(CHANGE_BOTH) + "; COMMIT");
        EXPECT_EQ(Removals::count("-mj"), 1) << idle;
        EXPECT_EQ(both(db), "16 26");
        MUST(db, "DELETE FROM main.t WHERE a=10; DELETE FROM other.t WHERE a=20");
    }
}

TEST_F(SqliteSeveral, WithADatabaseOfAnotherVfsAreRefused)
{
    make_both();
    Db db(path());
    MUST(db, "ATTACH 'file:" + second() + "?vfs=unix' AS other");
    (void)logged();
    MUST(db, CHANGE_BOTH);
    EXPECT_EQ(db.run("COMMIT"), SQLITE_IOERR) << db.error();
    EXPECT_TRUE(logged("journal"));
    roll_back(db);
    EXPECT_EQ(both(db), "6 6");
    db.close();
    EXPECT_EQ(stock_sum(path()), "6");
    EXPECT_EQ(stock_sum(second()), "6");
}

TEST_F(SqliteSeveral, WithTheMainDatabaseOfAnotherVfsAreRefused)
{
    make_both();
    Db db = Db::stock(path());
    MUST(db, "ATTACH '" + uri(second()) + "' AS other");
    for (const char *spill : {"", "PRAGMA other.cache_size=1; PRAGMA other.cache_spill=1; "}) {
        (void)logged();
        MUST(db, spill + std::string(CHANGE_BOTH));
        MUST(db, fill("other.t", 100, 200));
        EXPECT_EQ(db.run("COMMIT"), SQLITE_IOERR) << db.error();
        EXPECT_TRUE(logged("another VFS"));
        roll_back(db);
        EXPECT_EQ(both(db), "6 6");
    }
    MUST(db, "INSERT INTO other.t VALUES(50, 50)");
    EXPECT_EQ(both(db), "6 56");
    db.close();
    EXPECT_EQ(stock_sum(path()), "6");
    EXPECT_EQ(stock_sum(second()), "56");
}

TEST_F(SqliteSeveral, WithAMainDatabaseInWalModeItsParameterCounts)
{
    make_both();
    make("c.db");
    for (const char *of_main : {"journal=memory", "journal=file"})
        for (const char *of_others : {"journal=memory", "journal=file"}) {
            Db db(path(), of_main);
            MUST(db, "PRAGMA journal_mode=WAL; ATTACH '" + uri(second(), of_others) +
                         "' AS other;"
                         "ATTACH '" +
                         uri(path("c.db"), of_others) + "' AS third");
            MUST(db, std::string(CHANGE_BOTH) + "; INSERT INTO third.t VALUES(30, 'x')");
            const bool alike = !strcmp(of_main, of_others);
            EXPECT_EQ(db.run("COMMIT"), alike ? SQLITE_OK : SQLITE_IOERR) << of_main << of_others;
            roll_back(db);
            EXPECT_EQ(db.number("SELECT sum(a) FROM other.t"), alike ? 26 : 6);
            EXPECT_EQ(db.number("SELECT sum(a) FROM third.t"), alike ? 36 : 6);
            for (const char *name : {"main", "other", "third"})
                MUST(db, std::string("DELETE FROM ") + name + ".t WHERE a>3");
        }
}

/* A member that keeps its lock is one still in a child, which closes it. */
TEST_F(SqliteSeveral, AForkedChildClosesAfterAFailedCommit)
{
    make_both();
    chmod(path().c_str(), 0666);
    chmod(second().c_str(), 0600);
    Db db = open_both();
    hide_handle(db);
    MUST(db, "PRAGMA locking_mode=EXCLUSIVE");
    MUST(db, CHANGE_BOTH);
    EXPECT_EQ(db.run("COMMIT"), SQLITE_IOERR) << db.error();
    roll_back(db);
    EXPECT_EQ(support::in_child([&] {
                  (void)db.close();
                  return 0;
              }),
              0);
    EXPECT_EQ(both(db), "6 6");
}

/* It keeps its lock, so that SQLite would go on with the pages in its cache. */
TEST_F(SqliteSeveral, ARefusedDatabaseIsRolledBackInExclusiveModeToo)
{
    make_both();
    for (const bool stock : {true, false}) {
        Db db = stock ? Db::stock(path()) : Db(path(), "journal=file");
        MUST(db, "ATTACH '" + uri(second()) + "' AS other; PRAGMA other.locking_mode=EXCLUSIVE");
        for (int turn = 0; turn < 2; turn++) {
            MUST(db, CHANGE_BOTH);
            EXPECT_EQ(db.run("COMMIT"), SQLITE_IOERR) << db.error();
            roll_back(db);
            EXPECT_EQ(both(db), "6 6") << stock;
            MUST(db, "INSERT INTO other.t VALUES(50, 50)");
            EXPECT_EQ(both(db), "6 56") << stock;
            MUST(db, "DELETE FROM other.t WHERE a=50; INSERT INTO main.t VALUES(50, 50);"
                     "DELETE FROM main.t WHERE a=50");
        }
        MUST(db, "INSERT INTO other.t VALUES(50, 50)");
        db.close();
        EXPECT_EQ(stock_sum(path()), "6");
        EXPECT_EQ(stock_sum(second()), "56");
        MUST(Db::stock(second()), "DELETE FROM t WHERE a=50");
    }
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
