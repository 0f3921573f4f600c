/* SPDX-License-Identifier: BSD-3-Clause */
/* Is a transaction over several databases atomic, whether it succeeds or fails? */
#include "several.h"
#include "support/child.h"

#include <algorithm>
#include <cstring>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>

namespace sql
{

TEST_F(SqliteSeveral, CommitAsOne)
{
    make_both();
    for (const char *parameters : {"", "share=stock"})
        for (const char *mode : {"delete", "truncate", "persist"}) {
            SCOPED_TRACE(std::string(parameters) + mode);
            Db db = open_both(parameters);
            MUST(db, std::string("PRAGMA main.journal_mode=") + mode +
                         "; PRAGMA other.journal_mode=" + mode);
            MUST(db, std::string(CHANGE_BOTH) + "; COMMIT");
            EXPECT_EQ(both(db), "16 26");
            EXPECT_EQ(names(), "a.db b.db");
            MUST(db, "BEGIN; DELETE FROM main.t WHERE a=10; DELETE FROM other.t WHERE a=20");
            MUST(db, "ROLLBACK");
            EXPECT_EQ(both(db), "16 26");
            MUST(db,
                 "BEGIN; DELETE FROM main.t WHERE a=10; DELETE FROM other.t WHERE a=20; COMMIT");
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
    MUST(db, "PRAGMA main.user_version=1; PRAGMA other.user_version=1"); /* maps them */
    MUST(db, "BEGIN; INSERT INTO main.t VALUES(10, 'x')");
    (void)logged();
    EXPECT_EQ(db.run("INSERT INTO other.t VALUES(20, 'x')"), SQLITE_ERROR) << db.error();
    EXPECT_TRUE(logged("no commit can"));
    MUST(db, "COMMIT");
    EXPECT_EQ(both(db), "16 6");
}

TEST_F(SqliteSeveral, OfAKilledProcessAreInNeitherDatabase)
{
    Remote third;
    make_both();
    for (const char *parameters : {"", "share=stock"}) {
        Remote &writer = *parameters ? third : other;
        ASSERT_EQ(writer.open(path(), parameters), SQLITE_OK);
        ASSERT_EQ(writer.run("ATTACH '" + uri(second(), parameters) +
                             "' AS other; PRAGMA main.cache_size=5; " + CHANGE_BOTH + ";" +
                             fill("main.t", 100, 300)),
                  SQLITE_OK);
        writer.kill();
        Db db = open_both(parameters);
        EXPECT_EQ(both(db), "6 6") << parameters;
        MUST(db, std::string(CHANGE_BOTH) + "; COMMIT");
        EXPECT_EQ(both(db), "16 26") << parameters;
        MUST(db, "DELETE FROM main.t WHERE a=10; DELETE FROM other.t WHERE a=20");
    }
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

/* Of the databases of a transaction one has its journal on the disk, and another has it in memory. The connections of a commit are
 * found by the names of their files: one that does nothing does not say where the journal is. */
TEST_F(SqliteSeveral, WithJournalsInDifferentPlacesAreRefused)
{
    make_both();
    for (const char *idle : {"journal=file", "share=stock", "mode=ro"}) {
        const Db first(path(), idle), last(second(), idle);
        for (bool main_has : {false, true}) {
            Db db = main_has ? open_both("journal=file", "share=stock")
                             : open_both("share=stock", "journal=file");
            EXPECT_EQ(first.number("SELECT sum(a) FROM t"), 6);
            EXPECT_EQ(last.number("SELECT sum(a) FROM t"), 6);
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
