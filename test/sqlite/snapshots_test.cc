/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Readers and writers do not wait for one another: does a connection see the database as it was when its transaction began, whatever
 * others commit meanwhile, and do they commit at once? lock_states_test.cc compares random calls with SQLite's WAL mode; here is what those do
 * not do: changes of the schema, VACUUM, other journal modes, several databases, backups, kills, memory that is used up.
 */
#include "lab.h"

#include "support/temp.h"

#include <atomic>
#include <cstdlib>
#include <string>
#include <sys/wait.h>
#include <thread>
#include <vector>

namespace sql
{

class SqliteSnapshots : public Lab
{
  protected:
    SqliteSnapshots()
    {
        make();
    }
    /* Opens two connections to the database, which is mapped from then on. */
    void SetUp() override
    {
        Lab::SetUp();
        writer = Db(path(), "lock_wait_ms=0");
        reader = Db(path(), "lock_wait_ms=0");
        MUST(writer, "INSERT INTO t VALUES(4, 'four')");
        MUST(reader, "BEGIN");
        ASSERT_EQ(reader.number("SELECT sum(a) FROM t"), 10);
    }
    /* The reader's transaction goes on as it began. */
    void expect_steady() const
    {
        EXPECT_EQ(reader.number("SELECT sum(a) FROM t"), 10);
        EXPECT_EQ(reader.number("SELECT count(*) FROM sqlite_schema WHERE type='table'"), 1);
        EXPECT_EQ(reader.text("PRAGMA integrity_check"), "ok");
    }

    Db writer, reader;
};

class SqliteLittleMemory : public SqliteSnapshots
{
  protected:
    SqliteLittleMemory()
    {
        setenv("ATO_SNAPSHOT_BYTES", "262144", 1);
    }
    ~SqliteLittleMemory() override
    {
        unsetenv("ATO_SNAPSHOT_BYTES");
    }
};

TEST_F(SqliteSnapshots, StayAsTheyAreOverAnyNumberOfCommits)
{
    for (int i = 0; i < 200; i++)
        MUST(writer, "UPDATE t SET a = a + 10");
    expect_steady();
    MUST(reader, "COMMIT");
    EXPECT_EQ(reader.number("SELECT sum(a) FROM t"), 8010);
}

TEST_F(SqliteSnapshots, OfTransactionsThatWriteAreRefusedIfTheyAreOld)
{
    MUST(writer, "UPDATE t SET a = a + 10");
    sqlite3_extended_result_codes(reader.handle, 1);
    EXPECT_EQ(reader.run("UPDATE t SET a = a + 1"), SQLITE_BUSY_SNAPSHOT);
    expect_steady();
    MUST(reader, "COMMIT; UPDATE t SET b = a");
    EXPECT_EQ(writer.number("SELECT sum(b) FROM t"), 50);
}

TEST_F(SqliteSnapshots, StayAsTheyAreOverVacuumAndChangesOfTheSchema)
{
    MUST(writer, fill("t", 100, 400));
    MUST(writer, "CREATE TABLE u(x); INSERT INTO u VALUES(1); DELETE FROM t; VACUUM");
    expect_steady();
    MUST(writer, "DROP TABLE u; PRAGMA auto_vacuum = FULL; VACUUM;" + fill("t", 100, 400) +
                     "; DELETE FROM t WHERE a > 110");
    expect_steady();
    MUST(reader, "COMMIT");
    EXPECT_EQ(reader.number("SELECT count(*) FROM t"), 11);
    EXPECT_EQ(reader.text("PRAGMA integrity_check"), "ok");
}

TEST_F(SqliteSnapshots, KeepAWriteAheadLogAway)
{
    EXPECT_EQ(writer.run("PRAGMA journal_mode = wal"), SQLITE_BUSY);
    EXPECT_EQ(writer.text("PRAGMA journal_mode"), "delete");
    expect_steady();
    MUST(reader, "COMMIT");
    EXPECT_EQ(writer.text("PRAGMA journal_mode = wal"), "wal");
    MUST(reader, "BEGIN");
    ASSERT_EQ(reader.number("SELECT sum(a) FROM t"), 10);
    MUST(writer, "UPDATE t SET a = a + 10; PRAGMA wal_checkpoint");
    EXPECT_EQ(reader.number("SELECT sum(a) FROM t"), 10);
    MUST(reader, "COMMIT");
    EXPECT_EQ(reader.close(), SQLITE_OK);
    EXPECT_EQ(writer.text("PRAGMA journal_mode = delete"), "delete");
    reader = Db(path(), "lock_wait_ms=0");
    MUST(reader, "BEGIN");
    ASSERT_EQ(reader.number("SELECT sum(a) FROM t"), 50);
    MUST(writer, "UPDATE t SET a = a + 10");
    EXPECT_EQ(reader.number("SELECT sum(a) FROM t"), 50);
}

/* A transaction of several databases writes to the files themselves. */
TEST_F(SqliteSnapshots, AreWaitedForByTransactionsOfSeveralDatabases)
{
    make("b.db");
    MUST(writer, "ATTACH '" + uri(path("b.db"), "lock_wait_ms=0") + "' AS b");
    MUST(writer, "BEGIN; UPDATE t SET a = a + 10; UPDATE b.t SET a = a + 10");
    EXPECT_EQ(writer.run("COMMIT"), SQLITE_BUSY);
    expect_steady();
    MUST(reader, "COMMIT");
    MUST(writer, "COMMIT");
    EXPECT_EQ(reader.number("SELECT sum(a) FROM t"), 50);
}

TEST_F(SqliteSnapshots, AreWhatABackupCopies)
{
    const Db copy = Db::stock(path("copy.db"));
    sqlite3_backup *backup = sqlite3_backup_init(copy.handle, "main", reader.handle, "main");
    ASSERT_NE(backup, nullptr);
    EXPECT_EQ(sqlite3_backup_step(backup, 1), SQLITE_OK);
    MUST(writer, "UPDATE t SET a = a + 10;" + fill("t", 100, 200));
    EXPECT_EQ(sqlite3_backup_step(backup, -1), SQLITE_DONE);
    EXPECT_EQ(sqlite3_backup_finish(backup), SQLITE_OK);
    EXPECT_EQ(copy.number("SELECT sum(a) FROM t"), 10);
    expect_steady();
}

TEST_F(SqliteLittleMemory, SnapshotsOfAnotherProcessMayEndByAKill)
{
    ASSERT_EQ(other.open(path()), SQLITE_OK);
    ASSERT_EQ(other.run("BEGIN"), SQLITE_OK);
    ASSERT_EQ(other.text("SELECT sum(a) FROM t"), "10");
    MUST(writer, "UPDATE t SET a = a + 10");
    EXPECT_EQ(other.text("SELECT sum(a) FROM t"), "10");
    other.kill();
    /* Many times what is kept of old pages. */
    MUST(reader, "COMMIT");
    for (int i = 0; i < 20; i++)
        MUST(writer, "DELETE FROM t WHERE a >= 1000;" + fill("t", 1000, 1200));
    MUST(reader, "BEGIN");
    const std::string sum = reader.text("SELECT sum(a) FROM t");
    MUST(writer, "DELETE FROM t WHERE a >= 1000");
    EXPECT_EQ(reader.text("SELECT sum(a) FROM t"), sum);
}

TEST_F(SqliteLittleMemory, SnapshotsAreGivenUpWhenTheirMemoryIsUsedUp)
{
    MUST(writer, fill("t", 1000, 1400));
    MUST(reader, "COMMIT; PRAGMA cache_size = 1; BEGIN");
    ASSERT_EQ(reader.number("SELECT count(*) FROM t WHERE a < 1000"), 4);
    MUST(writer, "UPDATE t SET b = randomblob(400)");
    EXPECT_EQ(reader.run("SELECT b FROM t ORDER BY a"), SQLITE_BUSY);
    EXPECT_TRUE(logged("is given up"));
    MUST(reader, "ROLLBACK");
    EXPECT_EQ(reader.number("SELECT count(*) FROM t"), 405);
    EXPECT_EQ(reader.text("PRAGMA integrity_check"), "ok");
}

/* SQLite has no way to undo a half of a statement when a read fails. */
TEST_F(SqliteLittleMemory, SnapshotsGivenUpInAStatementThatWritesUndoTheTransaction)
{
    make("b.db");
    MUST(writer, fill("t", 1000, 1400));
    MUST(reader, "COMMIT; ATTACH '" + uri(path("b.db")) + "' AS b; PRAGMA cache_size = 1; BEGIN");
    ASSERT_EQ(reader.number("SELECT count(*) FROM t WHERE a < 1000"), 4);
    MUST(reader, "DELETE FROM b.t");
    MUST(writer, "UPDATE t SET b = randomblob(400) WHERE a > 1100");
    EXPECT_EQ(reader.run("INSERT INTO b.t SELECT * FROM t"), SQLITE_IOERR);
    EXPECT_NE(sqlite3_get_autocommit(reader.handle), 0);
    EXPECT_EQ(reader.number("SELECT count(*) FROM b.t"), 3);
}

/* SQLite counts only the first change of such a connection. */
TEST_F(SqliteSnapshots, NobodyElseReadsInExclusiveMode)
{
    MUST(reader, "COMMIT");
    MUST(writer, "PRAGMA locking_mode = exclusive; UPDATE t SET b = 1 WHERE a = 1");
    EXPECT_EQ(reader.run("SELECT * FROM t"), SQLITE_BUSY);
    MUST(writer, "UPDATE t SET b = 5 WHERE a = 1; PRAGMA locking_mode = normal; SELECT * FROM t");
    EXPECT_EQ(reader.number("SELECT b FROM t WHERE a = 1"), 5);
    /* The pragma without a name holds for attached databases, too. */
    make("b.db");
    Db other_reader(path("b.db"), "lock_wait_ms=0");
    MUST(other_reader, "UPDATE t SET b = 0 WHERE a = 1");
    MUST(writer, "ATTACH '" + uri(path("b.db"), "lock_wait_ms=0") +
                     "' AS b; PRAGMA locking_mode = exclusive; UPDATE b.t SET b = 1 WHERE a = 1");
    EXPECT_EQ(other_reader.run("SELECT * FROM t"), SQLITE_BUSY);
}

/* Its own commit is what it sees next, also while a statement of it goes on. */
TEST_F(SqliteSnapshots, MoveOnWithTheConnectionsOwnCommit)
{
    sqlite3_stmt *s = nullptr;
    MUST(reader, "COMMIT");
    ASSERT_EQ(sqlite3_prepare_v2(reader.handle, "SELECT a FROM t", -1, &s, nullptr), SQLITE_OK);
    ASSERT_EQ(sqlite3_step(s), SQLITE_ROW);
    MUST(reader, "INSERT INTO t VALUES(5, 'five')");
    EXPECT_EQ(reader.number("SELECT sum(a) FROM t"), 15);
    MUST(writer, "UPDATE t SET a = a + 10");
    EXPECT_EQ(reader.number("SELECT sum(a) FROM t"), 15);
    EXPECT_EQ(sqlite3_finalize(s), SQLITE_OK);
    EXPECT_EQ(reader.number("SELECT sum(a) FROM t"), 65);
}

/* Two threads move money between accounts, others sum all of them up in one transaction. */
TEST_F(SqliteSnapshots, OfManyThreadsSeeNoPartOfATransaction)
{
    MUST(reader, "COMMIT");
    MUST(writer, "CREATE TABLE bank(id INTEGER PRIMARY KEY, n)");
    MUST(writer, "WITH RECURSIVE i(id) AS (SELECT 1 UNION ALL SELECT id + 1 FROM i WHERE id < 500) "
                 "INSERT INTO bank SELECT id, 100 FROM i");
    std::atomic<bool> over{false};
    std::atomic<int> wrong{0}, sums{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < 2; i++)
        threads.emplace_back([&, i] {
            const Db own(path());
            own.run("PRAGMA busy_timeout = 20000");
            for (int n = 0; n < 300; n++) {
                const std::string from = std::to_string((n * 37 + i) % 500 + 1),
                                  to = std::to_string((n * 91 + 7) % 500 + 1);
                wrong += own.run("BEGIN IMMEDIATE; UPDATE bank SET n = n - 1 WHERE id = " + from +
                                 "; UPDATE bank SET n = n + 1 WHERE id = " + to + "; COMMIT") !=
                         SQLITE_OK;
            }
            over = true;
        });
    for (int i = 0; i < 2; i++)
        threads.emplace_back([&] {
            const Db own(path());
            do {
                own.run("BEGIN");
                for (int n = 0; n < 3; n++)
                    wrong += own.number("SELECT sum(n) FROM bank") != 50000;
                own.run("COMMIT");
                sums++;
            } while (!over);
        });
    for (std::thread &t : threads)
        t.join();
    EXPECT_EQ(wrong, 0);
    EXPECT_GT(sums, 0);
}

} // namespace sql
