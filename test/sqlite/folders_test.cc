/* SPDX-License-Identifier: BSD-3-Clause */
/* Databases whose reflections lie in two folders: the first write to the second one fails, and which are not refused? */
#include "several.h"

#include <cstring>

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
    /* Both are mapped then, by a first write, unless there are parameters. */
    Db open_apart(const std::string &parameters = "") const
    {
        Db db(path(), parameters);
        EXPECT_EQ(db.run("ATTACH '" + uri(far(), parameters) + "' AS other"), SQLITE_OK);
        if (parameters.empty()) {
            EXPECT_EQ(db.run("PRAGMA main.user_version=1; PRAGMA other.user_version=1"), SQLITE_OK);
        }
        return db;
    }
    static void set_modes(const Db &db, const std::string &journal, const std::string &locking)
    {
        for (const std::string name : {"main", "other"}) {
            MUST(db, "PRAGMA " + name + ".journal_mode=" + journal);
            MUST(db, "PRAGMA " + name + ".locking_mode=" + locking);
        }
    }
    /* Opens both in each way to journal, to lock and to begin a transaction. */
    template <typename Test> void in_all_modes(const Test &test) const
    {
        for (const char *journal : {"delete", "truncate", "persist"})
            for (const char *locking : {"normal", "exclusive"})
                for (const char *begin : {"BEGIN", "BEGIN IMMEDIATE", "BEGIN EXCLUSIVE"}) {
                    SCOPED_TRACE(std::string(journal) + " " + locking + " " + begin);
                    Db db = open_apart();
                    set_modes(db, journal, locking);
                    test(db, begin);
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
    in_all_modes([&](Db &db, const std::string &begin) {
        for (int turn = 0; turn < 2; turn++) {
            MUST(db, begin + "; INSERT INTO main.t VALUES(10, 'x')");
            refuses(db, "INSERT INTO other.t VALUES(20, 'x')");
            refuses(db, "CREATE TABLE other.n(a)");
            EXPECT_EQ(both(db), "16 6");
            MUST(db, "INSERT INTO main.t VALUES(11, 'y'); COMMIT");
            EXPECT_EQ(both(db), "27 6");
            MUST(db, begin + "; DELETE FROM other.t WHERE a=1");
            refuses(db, "DELETE FROM main.t");
            MUST(db, "ROLLBACK");
            EXPECT_EQ(both(db), "27 6");
            MUST(db, "DELETE FROM main.t WHERE a>=10");
        }
        EXPECT_EQ(db.close(), SQLITE_OK);
        EXPECT_EQ(stock_sum(path()) + " " + stock_sum(far()), "6 6");
    });
}

TEST_F(SqliteFolders, TheOneThatIsOnlyReadOrWasWrittenBeforeIsNotRefused)
{
    make_both_apart();
    in_all_modes([&](Db &db, const std::string &begin) {
        for (const char *end : {"COMMIT", "ROLLBACK"})
            for (const char *table : {"main.t", "other.t", "main.t"}) {
                MUST(db, begin + "; INSERT INTO " + table +
                             " VALUES(10, 'x'); SELECT sum(a) FROM main.t;"
                             "SELECT sum(a) FROM other.t;" +
                             end);
                MUST(db, std::string("DELETE FROM ") + table + " WHERE a=10");
            }
    });
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
    MUST(db, "BEGIN; INSERT INTO main.t VALUES(10, 'x'); CREATE TABLE third.t(a)");
    refuses(db, "COMMIT", SQLITE_IOERR);
    MUST(db, "CREATE TABLE third.z(a); BEGIN; CREATE TABLE third.t(a);"
             "INSERT INTO other.t VALUES(20, 'x')");
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

/* They are mapped when their pages are written, in the COMMIT or before it; without share=stock in the first one. */
TEST_F(SqliteFolders, DatabasesThatAreNotMappedAreRefusedAtCommit)
{
    make_both_apart();
    for (const char *parameters : {"", "share=stock"}) {
        Db db(path(), parameters);
        MUST(db, "ATTACH '" + uri(far(), parameters) + "' AS other");
        MUST(db, CHANGE_BOTH);
        refuses(db, "COMMIT", SQLITE_IOERR);
        EXPECT_EQ(both(db), "6 6") << parameters;
    }
    Db db = open_apart("share=stock");
    for (const char *cache : {"5000", "5"}) {
        MUST(db,
             std::string("PRAGMA main.cache_size=") + cache + "; PRAGMA other.cache_size=" + cache);
        for (const char *main_first : {"main", "other"}) {
            const std::string first = main_first, last = first == "main" ? "other" : "main";
            MUST(db, "BEGIN; " + fill(first + ".t", 10, 100) + "; " + fill(last + ".t", 10, 100));
            refuses(db, "COMMIT", SQLITE_IOERR);
            roll_back(db);
            EXPECT_EQ(both(db), "6 6");
            EXPECT_EQ(db.text("PRAGMA integrity_check"), "ok");
            EXPECT_EQ(stock_sum(path()) + " " + stock_sum(far()), "6 6");
        }
        MUST(db, "INSERT INTO main.t VALUES(4, 4); INSERT INTO other.t VALUES(4, 4);"
                 "DELETE FROM main.t WHERE a=4; DELETE FROM other.t WHERE a=4");
    }
}

TEST_F(SqliteFolders, OneReflectionFolderServesDatabasesOfTwoFolders)
{
    make_both_apart();
    for (const char *how : {"", "share=stock&"}) { /* maps the files once; for each transaction */
        const std::string one = how + ("reflection_dir=" + (elsewhere / "reflections"));
        Db db(path(), one);
        MUST(db, "ATTACH '" + uri(far(), one) + "' AS other");
        MUST(db, std::string(CHANGE_BOTH) + "; COMMIT");
        EXPECT_EQ(both(db), "16 26");
        MUST(db, "DELETE FROM main.t WHERE a>3; VACUUM main");
        MUST(db,
             "BEGIN; UPDATE main.t SET b=b||1 WHERE a=1; DELETE FROM other.t WHERE a>3; COMMIT");
        EXPECT_FALSE(support::exists(folder / ".ato"));
        EXPECT_EQ(db.close(), SQLITE_OK);
        EXPECT_EQ(stock_sum(path()), "6");
        EXPECT_EQ(stock_sum(far()), "6");
    }
}

} // namespace sql
