/* SPDX-License-Identifier: BSD-3-Clause */
/* What do other connections read during a transaction, and what is left of a transaction that is not committed? */
#include "lab.h"
#include "support/child.h"

#include <algorithm>
#include <filesystem>

namespace sql
{

class SqliteTransactions : public Lab
{
};

static constexpr char SMALL_CACHE[] = "PRAGMA cache_size=5;";

TEST_F(SqliteTransactions, NeedNoJournalInTheFolder)
{
    make();
    Db db(path());
    for (const char *mode : {"delete", "truncate", "persist", "memory", "off"}) {
        MUST(db, std::string(SMALL_CACHE) + "PRAGMA journal_mode=" + mode + "; BEGIN; " +
                     fill("t", 10, 300) + "; SAVEPOINT s; UPDATE t SET b=a");
        EXPECT_EQ(names(), "a.db") << mode;
        MUST(db, "COMMIT; DELETE FROM t WHERE a>3");
        EXPECT_EQ(names(), "a.db") << mode;
    }
}

/* SQLite writes whole pages, here three of them. */
TEST_F(SqliteTransactions, StoreOnlyTheSlicesThatDiffer)
{
    make();
    const Db db(path());
    const auto stored = [&] {
        return db.number("SELECT json_extract('" + db.text("PRAGMA ato_stat") +
                         "', '$.bytes_to_media')");
    };
    MUST(db, "UPDATE t SET b='uno' WHERE a=1");
    const int64_t before = stored();
    MUST(db, "UPDATE t SET b='eno' WHERE a=1");
    EXPECT_GT(stored(), before);
    EXPECT_LT(stored(), before + 4096);
}

TEST_F(SqliteTransactions, AreNotSeenByOthersBeforeCommit)
{
    make();
    Db db(path()), second(path());
    /* From its first write on the process keeps its locks although read_file() closes the file. */
    MUST(db, std::string(SMALL_CACHE) + "UPDATE t SET a=a");
    MUST(second, "SELECT * FROM t");
    ASSERT_EQ(other.open(path()), SQLITE_OK);
    const support::Bytes before = support::read_file(path());
    MUST(db, "BEGIN; UPDATE t SET b=a; " + fill("t", 10, 300));
    support::Bytes now = support::read_file(path());
    ASSERT_GE(now.size(), before.size());
    std::copy_n(before.begin() + 18, 10, now.begin() + 18); /* the bytes of the mask */
    const auto end = now.begin() + static_cast<ptrdiff_t>(before.size());
    EXPECT_TRUE(std::equal(before.begin(), before.end(), now.begin()));
    EXPECT_EQ(std::count(end, now.end(), 0), now.end() - end);
    /* A spill takes SQLite's exclusive lock, which keeps no reader out. */
    EXPECT_EQ(db.number("SELECT count(*) FROM t WHERE b=a"), 3);
    EXPECT_EQ(second.number("SELECT count(*) FROM t"), 3);
    EXPECT_EQ(other.text("SELECT count(*) FROM t"), "3");
    MUST(db, "COMMIT");
    EXPECT_EQ(second.number("SELECT count(*) FROM t"), 294);
    EXPECT_EQ(other.text("SELECT count(*) FROM t"), "294");
}

TEST_F(SqliteTransactions, AreUndoneByRollback)
{
    const auto content = [&] { return support::read_file(path()); };
    make();
    const support::Bytes before = content();
    for (const char *mode : {"delete", "truncate", "persist", "memory", "off"})
        for (const char *cache : {"5", "5; PRAGMA synchronous=OFF", "5000"}) {
            Db db(path());
            MUST(db, std::string("PRAGMA journal_mode=") + mode + "; PRAGMA cache_size=" + cache);
            MUST(db, "BEGIN; UPDATE t SET b=a; " + fill("t", 10, 300));
            EXPECT_EQ(db.number("SELECT count(*) FROM t"), 294);
            MUST(db, "ROLLBACK");
            EXPECT_EQ(db.text("SELECT group_concat(b) FROM t"), "one,two,three") << mode << cache;
            db.close();
            EXPECT_TRUE(before == content()) << mode << cache;
        }
}

/* As a VFS above does that holds writes back until xSync, and has written something wrong before: SQLite's own crash tests. */
TEST_F(SqliteTransactions, AreNotCommittedBeforeAllIsWritten)
{
    make();
    const Db db(path());
    MUST(db, fill("t", 10, 300));
    const std::string before = db.text("SELECT group_concat(b) FROM t");
    sqlite3_file *file = nullptr;
    sqlite3_file_control(db.handle, "main", SQLITE_FCNTL_FILE_POINTER, &file);
    const sqlite3_io_methods *m = file->pMethods;
    std::string page(4096, 0);
    const std::string wrong(4096, 'x');
    for (const int level : {SQLITE_LOCK_SHARED, SQLITE_LOCK_RESERVED, SQLITE_LOCK_EXCLUSIVE})
        ASSERT_EQ(m->xLock(file, level), SQLITE_OK);
    ASSERT_EQ(m->xRead(file, page.data(), 4096, 4096), SQLITE_OK);
    ASSERT_EQ(m->xWrite(file, wrong.data(), 4096, 4096), SQLITE_OK);
    ASSERT_EQ(m->xFileControl(file, SQLITE_FCNTL_SYNC, nullptr), SQLITE_OK);
    ASSERT_EQ(m->xWrite(file, page.data(), 4096, 4096), SQLITE_OK);
    ASSERT_EQ(m->xUnlock(file, SQLITE_LOCK_NONE), SQLITE_OK);
    const Db second(path());
    EXPECT_EQ(second.text("PRAGMA integrity_check"), "ok");
    EXPECT_EQ(second.text("SELECT group_concat(b) FROM t"), before);
}

TEST_F(SqliteTransactions, OfAKilledProcessAreRolledBack)
{
    make();
    ASSERT_EQ(other.open(path()), SQLITE_OK);
    ASSERT_EQ(other.run(std::string(SMALL_CACHE) +
                        "INSERT INTO t VALUES(4, 'four'); BEGIN; UPDATE t SET b=a; " +
                        fill("t", 10, 300)),
              SQLITE_OK);
    other.kill();
    Db db(path());
    EXPECT_EQ(db.text("SELECT group_concat(b) FROM t"), "one,two,three,four");
    EXPECT_EQ(db.text("PRAGMA integrity_check"), "ok");
    MUST(db, fill("t", 10, 300));
    db.close();
    EXPECT_EQ(left(), 0u);
    const Db stock = Db::stock(path());
    EXPECT_EQ(stock.number("SELECT count(*) FROM t"), 295);
}

TEST_F(SqliteTransactions, RollBackToTheirSavepoints)
{
    make();
    for (const char *cache : {"5", "5000"}) {
        Db db(path());
        MUST(db, std::string("PRAGMA cache_size=") + cache + "; BEGIN; UPDATE t SET b=b||'!'");
        MUST(db, "SAVEPOINT s1; " + fill("t", 10, 300) + "; SAVEPOINT s2; UPDATE t SET b=a");
        MUST(db, "ROLLBACK TO s2; RELEASE s2; SAVEPOINT s3; DELETE FROM t");
        EXPECT_EQ(db.number("SELECT count(*) FROM t"), 0);
        MUST(db, "ROLLBACK TO s3; ROLLBACK TO s3");
        EXPECT_EQ(db.number("SELECT count(*) FROM t"), 294);
        MUST(db, "ROLLBACK TO s1; INSERT INTO t VALUES(4, 'four'); RELEASE s1; COMMIT");
        EXPECT_EQ(db.text("SELECT group_concat(b) FROM t"), "one!,two!,three!,four");
        EXPECT_EQ(db.text("PRAGMA integrity_check"), "ok");
        MUST(db, "DELETE FROM t WHERE a=4; UPDATE t SET b=replace(b, '!', '')");
    }
}

TEST_F(SqliteTransactions, UndoAStatementThatFails)
{
    make();
    Db db(path());
    MUST(db, std::string(SMALL_CACHE) + fill("t", 10, 300));
    MUST(db, "BEGIN; UPDATE t SET b='same' WHERE a=300");
    EXPECT_EQ(db.run("UPDATE t SET b=CASE WHEN a=290 THEN 'same' ELSE zeroblob(400)||a END"),
              SQLITE_CONSTRAINT);
    MUST(db, "COMMIT");
    EXPECT_EQ(db.number("SELECT count(*) FROM t WHERE length(b)=500"), 290);
    EXPECT_EQ(db.text("SELECT b FROM t WHERE a=300"), "same");
    EXPECT_EQ(db.text("PRAGMA integrity_check"), "ok");
}

TEST_F(SqliteTransactions, AreRolledBackInExclusiveLockingMode)
{
    make();
    Db db(path());
    MUST(db, std::string(SMALL_CACHE) +
                 "PRAGMA locking_mode=exclusive; INSERT INTO t VALUES(4, 'four')");
    for (const char *mode : {"delete", "truncate", "persist", "memory; PRAGMA synchronous=OFF"}) {
        MUST(db, std::string("PRAGMA journal_mode=") + mode);
        MUST(db, "BEGIN; UPDATE t SET b=a; " + fill("t", 10, 300) + "; ROLLBACK");
        EXPECT_EQ(db.text("SELECT group_concat(b) FROM t"), "one,two,three,four") << mode;
        MUST(db, "BEGIN; " + fill("t", 10, 300) + "; COMMIT; DELETE FROM t WHERE a>4");
        EXPECT_EQ(db.text("PRAGMA integrity_check"), "ok") << mode;
    }
    ASSERT_EQ(other.open(path()), SQLITE_OK);
    EXPECT_EQ(other.run("SELECT * FROM t"), SQLITE_BUSY);
}

TEST_F(SqliteTransactions, OfANewFileAreRolledBackAfterTheyWroteToIt)
{
    for (const char *locking : {"normal", "exclusive"}) {
        Db db(path(locking));
        MUST(db, std::string(SMALL_CACHE) + "PRAGMA locking_mode=" + locking);
        MUST(db, "BEGIN; CREATE TABLE t(a, b); " + fill("t", 1, 300) + "; ROLLBACK");
        EXPECT_TRUE(logged().empty()) << locking;
        MUST(db, "CREATE TABLE t(a); INSERT INTO t VALUES(7)");
        db.close();
        EXPECT_EQ(stock_sum(path(locking)), "7");
    }
}

TEST_F(SqliteTransactions, OpenAtTheCloseAreRolledBack)
{
    make();
    {
        Db db(path());
        MUST(db, std::string(SMALL_CACHE) + "BEGIN; UPDATE t SET b=a; " + fill("t", 10, 300));
    }
    EXPECT_EQ(left(), 0u);
    EXPECT_EQ(stock_sum(path()), "6");
}

/* A database and its journal, copied in the middle of a transaction of SQLite's own VFS. */
TEST_F(SqliteTransactions, OfSqlitesVfsAreRolledBackByTheirHotJournal)
{
    make("b.db");
    {
        Db stock = Db::stock(path("b.db"));
        MUST(stock, std::string(SMALL_CACHE) + fill("t", 10, 300));
        MUST(stock, "BEGIN; UPDATE t SET b=a");
        std::filesystem::copy(path("b.db"), path());
        std::filesystem::copy(path("b.db-journal"), path("a.db-journal"));
    }
    Db db(path());
    EXPECT_EQ(db.text("SELECT group_concat(b) FROM t WHERE a<10"), "one,two,three");
    EXPECT_EQ(db.number("SELECT count(*) FROM t"), 294);
    EXPECT_EQ(db.text("PRAGMA integrity_check"), "ok");
    EXPECT_EQ(names(), "a.db b.db");
    MUST(db, "UPDATE t SET b=a");
    db.close();
    EXPECT_EQ(stock_sum(path()), std::to_string(45151 - 45 + 6 - 1));
}

/* ---- every mode ---- */

struct Mode {
    const char *journal, *locking;
};

class SqliteModes : public Lab, public testing::WithParamInterface<Mode>
{
};

TEST_P(SqliteModes, WriteRollBackAndVacuumAtAnyPageSize)
{
    const Mode &m = GetParam();
    for (int page = 512; page <= 65536; page *= 2)
        for (const char *synchronous : {"off", "normal", "full", "extra"}) {
            SCOPED_TRACE(std::to_string(page) + " " + synchronous);
            const std::string file = path(std::to_string(page) + synchronous);
            Db db(file);
            MUST(db, "PRAGMA page_size=" + std::to_string(page) + "; PRAGMA synchronous=" +
                         synchronous + "; PRAGMA locking_mode=" + m.locking +
                         "; PRAGMA journal_mode=" + m.journal);
            MUST(db, "PRAGMA cache_size=5; CREATE TABLE t(a INTEGER PRIMARY KEY, b); BEGIN; " +
                         fill("t", 1, 60) + "; COMMIT");
            EXPECT_EQ(db.number("PRAGMA page_size"), page);
            if (m.journal != std::string("off")) {
                MUST(db, "BEGIN; " + fill("t", 100, 150) + "; ROLLBACK");
            }
            MUST(db, "UPDATE t SET b=a WHERE a%2; DELETE FROM t WHERE a>50; VACUUM");
            EXPECT_EQ(db.text("PRAGMA integrity_check"), "ok");
            EXPECT_EQ(db.number("SELECT sum(a) FROM t"), 1275);
            EXPECT_EQ(db.close(), SQLITE_OK);
            EXPECT_EQ(stock_sum(file), "1275");
        }
    EXPECT_EQ(left(), 0u);
}

INSTANTIATE_TEST_SUITE_P(All, SqliteModes,
                         testing::Values(Mode{"delete", "normal"}, Mode{"truncate", "normal"},
                                         Mode{"persist", "normal"}, Mode{"memory", "normal"},
                                         Mode{"off", "normal"}, Mode{"wal", "normal"},
                                         Mode{"delete", "exclusive"}, Mode{"truncate", "exclusive"},
                                         Mode{"persist", "exclusive"}, Mode{"memory", "exclusive"},
                                         Mode{"off", "exclusive"}, Mode{"wal", "exclusive"}),
                         [](const auto &info) {
                             return std::string(info.param.journal) + "_" + info.param.locking;
                         });

} // namespace sql
