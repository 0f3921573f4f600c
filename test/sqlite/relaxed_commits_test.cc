/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * On a disk, with PRAGMA synchronous=NORMAL or OFF, COMMIT waits for no sync. Which commits, who sees them, and what makes them durable?
 * Syncs of this process are counted, SQLite's own too; the library's thread begins none for an hour.
 */
#include "lab.h"

#include <atomic>
#include <sys/syscall.h>
#include <unistd.h>

static std::atomic<int> syncs{0};

extern "C" int fdatasync(int fd)
{
    syncs++;
    return static_cast<int>(syscall(SYS_fdatasync, fd));
}

extern "C" int fsync(int fd)
{
    syncs++;
    return static_cast<int>(syscall(SYS_fsync, fd));
}

namespace sql
{

/* Set before the other process is there. */
struct OnADisk {
    OnADisk()
    {
        setenv("ATO_DURABILITY", "disk", 1);
        setenv("ATO_RELAXED_MS", "3600000", 1);
        setenv("ATO_LOG_BYTES", "8388608", 1); /* it takes no syncs to make it longer, or empty */
    }
    ~OnADisk()
    {
        unsetenv("ATO_DURABILITY");
        unsetenv("ATO_RELAXED_MS");
        unsetenv("ATO_LOG_BYTES");
    }
};

class SqliteRelaxedCommits : private OnADisk, public Lab
{
  protected:
    Db one, two;

    void SetUp() override
    {
        Lab::SetUp();
        make();
        one = open();
        two = open();
        use(one);
    }
    void TearDown() override
    {
        for (const Db *db : {&one, &two})
            if (db->handle) {
                EXPECT_EQ(db->text("PRAGMA integrity_check"), "ok");
            }
        one.close();
        two.close();
        other.close();
        EXPECT_EQ(stock_sum(path()).rfind("error", 0), std::string::npos);
    }
    Db open(const std::string &name = "a.db") const
    {
        Db db(path(name));
        sqlite3_busy_timeout(db.handle, 10000);
        return db;
    }
    /* The first commit on a disk is SQLite's own, and the next one maps the file. */
    static void use(const Db &db, const std::string &schema = "main")
    {
        for (int i = 0; i < 2; i++)
            MUST(db, "UPDATE " + schema + ".t SET b=0 WHERE a=1");
    }
    /* How often the statements sync. */
    static int syncs_of(const Db &db, const std::string &statements)
    {
        const int before = syncs;
        EXPECT_EQ(db.run(statements), SQLITE_OK) << statements << ": " << db.error();
        return syncs - before;
    }
    /* Is all that anybody has committed durable? A writer that reads it makes it so. */
    static bool is_durable(const std::string &file)
    {
        const Db db(file);
        return syncs_of(db, "BEGIN IMMEDIATE; SELECT count(*) FROM t; ROLLBACK") == 0;
    }
    bool is_durable() const
    {
        return is_durable(path());
    }
    static std::string set(int b)
    {
        return "UPDATE t SET b=" + std::to_string(b) + " WHERE a=1";
    }
    static constexpr const char *GET = "SELECT b FROM t WHERE a=1";
};

TEST_F(SqliteRelaxedCommits, MakeNoSyncAndAreSeenByAll)
{
    ASSERT_EQ(other.open(path()), SQLITE_OK);
    int b = 0;
    for (const std::string word : {"normal", "full", "OFF", "extra", "'Normal'", "2", "1", "3", "0",
                                   "FULL", "on", "full", "yes", "true", "2", "no", "false"}) {
        SCOPED_TRACE(word);
        MUST(one, "PRAGMA synchronous=" + word);
        const bool relaxed = one.number("PRAGMA synchronous") < 2;
        EXPECT_EQ(syncs_of(one, set(++b)) == 0, relaxed);
        EXPECT_EQ(two.number(GET), b);
        EXPECT_EQ(other.text(GET), std::to_string(b));
        EXPECT_EQ(is_durable(), !relaxed);
    }
    EXPECT_EQ(one.number("PRAGMA synchronous"), 0);
}

/* SQLite says so, and nothing changes here. */
TEST_F(SqliteRelaxedCommits, AreNotChosenWithinATransaction)
{
    for (const bool relaxed : {false, true}) {
        const std::string is = relaxed ? "normal" : "full", wanted = relaxed ? "full" : "normal";
        MUST(one, "PRAGMA synchronous=" + is + "; BEGIN; " + set(relaxed + 5));
        EXPECT_EQ(one.run("PRAGMA synchronous=" + wanted), SQLITE_ERROR);
        EXPECT_EQ(syncs_of(one, "COMMIT") == 0, relaxed);
        EXPECT_EQ(syncs_of(one, set(relaxed + 7)) == 0, relaxed);
    }
}

TEST_F(SqliteRelaxedCommits, AreOfADatabaseAndNotOfAConnection)
{
    const std::string second = "b.db", attach = "ATTACH '" + uri(path(second)) + "' AS other";
    make(second);
    MUST(one, attach);
    use(one, "other");
    MUST(one, "PRAGMA other.synchronous=normal");
    EXPECT_EQ(syncs_of(one, "UPDATE other.t SET b=3 WHERE a=1"), 0);
    EXPECT_GT(syncs_of(one, "UPDATE main.t SET b=3 WHERE a=1"), 0);
    MUST(one, "PRAGMA other.synchronous=full; PRAGMA synchronous=normal");
    EXPECT_EQ(syncs_of(one, "UPDATE main.t SET b=4 WHERE a=1"), 0);
    EXPECT_GT(syncs_of(one, "UPDATE other.t SET b=4 WHERE a=1"), 0);
    MUST(one, "PRAGMA other.synchronous=normal");
    for (const std::string mode : {"delete", "memory"}) { /* with a super-journal, and without */
        MUST(one, "PRAGMA main.journal_mode=" + mode + "; PRAGMA other.journal_mode=" + mode);
        use(one);
        use(one, "other");
        EXPECT_GT(syncs_of(one, "BEGIN; UPDATE main.t SET b=5 WHERE a=1;"
                                "UPDATE other.t SET b=5 WHERE a=1; COMMIT"),
                  0);
        EXPECT_TRUE(is_durable());
        EXPECT_TRUE(is_durable(path(second)));
        EXPECT_EQ(two.number(GET), 5);
    }
    EXPECT_EQ(syncs_of(one, "UPDATE other.t SET b=6 WHERE a=1"), 0);
    EXPECT_FALSE(is_durable(path(second)));
    MUST(one, "DETACH other");
    EXPECT_EQ(stock_sum(path(second)), "6");
}

/* And so are all before it. */
TEST_F(SqliteRelaxedCommits, AreDurableWithACommitThatIsNot)
{
    MUST(one, "PRAGMA synchronous=off");
    for (int b = 1; b < 4; b++)
        EXPECT_EQ(syncs_of(one, set(b)), 0);
    EXPECT_GT(syncs_of(two, "UPDATE t SET b=b||'x' WHERE a=2"), 0);
    EXPECT_TRUE(is_durable());
    EXPECT_EQ(syncs_of(one, set(5)), 0);
    EXPECT_EQ(two.number(GET), 5);
    /* A writer that changes nothing, but has read it. */
    EXPECT_EQ(syncs_of(one, "BEGIN IMMEDIATE; SELECT b FROM t; COMMIT"), 0);
    EXPECT_EQ(syncs_of(two, "BEGIN IMMEDIATE; SELECT b FROM t; COMMIT"), 1);
    EXPECT_TRUE(is_durable());
}

TEST_F(SqliteRelaxedCommits, AreNotTheFirstOneAndNoneThatMakesTheFileShorter)
{
    for (const char *word : {"normal", "off"}) {
        one.close();
        two.close();
        one = open();
        MUST(one, std::string("PRAGMA synchronous=") + word);
        EXPECT_GT(syncs_of(one, set(1)), 0);
        use(one);
        EXPECT_EQ(syncs_of(one, set(3)), 0);
        EXPECT_EQ(syncs_of(one, fill("t", 100, 400)), 1) << "of the file, which gets longer";
        EXPECT_FALSE(is_durable());
        EXPECT_EQ(syncs_of(one, "DELETE FROM t WHERE a>100"), 0);
        EXPECT_GT(syncs_of(one, "VACUUM"), 0);
        EXPECT_TRUE(is_durable());
        EXPECT_EQ(one.number("SELECT sum(a) FROM t"), 106);
        MUST(one, "DELETE FROM t WHERE a=100");
        two = open();
    }
}

TEST_F(SqliteRelaxedCommits, AreNotThoseOfAJournalModeThatChanges)
{
    MUST(one, "PRAGMA synchronous=normal");
    EXPECT_EQ(syncs_of(one, set(1)), 0);
    two.close();
    EXPECT_GT(syncs_of(one, "PRAGMA journal_mode=wal"), 0);
    EXPECT_TRUE(is_durable());
    MUST(one, "PRAGMA synchronous=full");
    EXPECT_GT(syncs_of(one, set(2)), 0);
    MUST(one, "PRAGMA synchronous=normal");
    EXPECT_EQ(syncs_of(one, set(3)), 0) << "as with SQLite's own VFS";
    EXPECT_GT(syncs_of(one, "PRAGMA journal_mode=delete"), 0);
    EXPECT_TRUE(is_durable());
    EXPECT_EQ(syncs_of(one, set(4)), 0);
    EXPECT_FALSE(is_durable());
    for (const char *mode : {"delete", "truncate", "persist", "memory", "off"}) {
        MUST(one, std::string("PRAGMA journal_mode=") + mode);
        use(one);
        EXPECT_EQ(syncs_of(one, set(5)), 0) << mode;
        EXPECT_EQ(one.number(GET), 5);
    }
}

TEST_F(SqliteRelaxedCommits, NeedNoLockToBeGivenBack)
{
    two.close();
    ASSERT_EQ(other.open(path()), SQLITE_OK);
    MUST(one, "PRAGMA synchronous=normal; PRAGMA locking_mode=exclusive");
    for (int b = 1; b < 4; b++)
        EXPECT_EQ(syncs_of(one, set(b)), 0);
    MUST(one, "PRAGMA synchronous=full");
    EXPECT_GT(syncs_of(one, set(4)), 0);
    MUST(one, "PRAGMA synchronous=normal");
    EXPECT_EQ(syncs_of(one, set(5)), 0);
    EXPECT_EQ(syncs_of(one, std::string("PRAGMA locking_mode=normal; ") + GET), 0);
    EXPECT_EQ(other.text(GET), "5");
}

/* More than SQLite's cache holds. */
TEST_F(SqliteRelaxedCommits, AreWholeWhateverATransactionDoes)
{
    MUST(one, "CREATE TABLE u(a INTEGER PRIMARY KEY, b);" + fill("u", 1, 300));
    MUST(one, "PRAGMA synchronous=normal; PRAGMA cache_size=5");
    const std::string all = "SELECT group_concat(hex(b)) FROM u",
                      change = "UPDATE u SET b=randomblob(500)", before = two.text(all);
    EXPECT_EQ(syncs_of(one, "BEGIN; " + change + "; ROLLBACK"), 0);
    EXPECT_EQ(syncs_of(one, "BEGIN; SAVEPOINT s; " + change +
                                "; ROLLBACK TO s; DELETE FROM t WHERE a=3;"
                                "SAVEPOINT u; DELETE FROM t WHERE a=2; RELEASE u; COMMIT"),
              0);
    EXPECT_TRUE(two.text(all) == before);
    EXPECT_EQ(two.number("SELECT count(*) FROM t"), 1);
    EXPECT_FALSE(is_durable());
    EXPECT_EQ(syncs_of(one, change), 0);
    EXPECT_TRUE(one.text(all) != before && one.text(all) == two.text(all));
    EXPECT_EQ(two.text("PRAGMA integrity_check"), "ok");
    EXPECT_EQ(one.run("INSERT INTO t VALUES(1, 1)"), SQLITE_CONSTRAINT);
    EXPECT_EQ(syncs_of(one, "DELETE FROM u"), 0);
    EXPECT_EQ(two.number("SELECT count(*) FROM u"), 0);
}

TEST_F(SqliteRelaxedCommits, AreDurableWhenTheLastConnectionIsClosed)
{
    ASSERT_EQ(other.open(path()), SQLITE_OK);
    ASSERT_EQ(other.text(GET), "0");
    MUST(one, "PRAGMA synchronous=normal");
    EXPECT_EQ(syncs_of(one, set(7)), 0);
    int before = syncs;
    one.close();
    EXPECT_EQ(syncs, before) << "another one is open";
    two.close();
    EXPECT_GT(syncs, before);
    EXPECT_EQ(other.text(GET), "7");
    one = open();
    EXPECT_TRUE(is_durable());
    EXPECT_EQ(one.number(GET), 7);
    use(one);
    EXPECT_GT(syncs_of(one, set(8)), 0) << "the new connection is not relaxed";
}

TEST_F(SqliteRelaxedCommits, SurviveAKill)
{
    ASSERT_EQ(other.open(path()), SQLITE_OK);
    ASSERT_EQ(other.run("PRAGMA synchronous=off; " + set(7) + ";" + set(8) + ";" + set(9) +
                        "; BEGIN; " + set(10)),
              SQLITE_OK);
    EXPECT_EQ(two.number(GET), 9);
    other.kill();
    EXPECT_EQ(two.number(GET), 9);
    MUST(one, "UPDATE t SET b=b+1 WHERE a=1");
    EXPECT_EQ(two.number(GET), 10);
}

} // namespace sql
