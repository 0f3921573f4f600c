/* SPDX-License-Identifier: BSD-3-Clause */
/* How long is the file, and do the locks on it stay, while it grows and shrinks? */
#include "lab.h"

#include "ato.h"
#include "support/child.h"
#include "support/limits.h"
#include "support/mapped.h"
#include "support/temp.h"

namespace sql
{

class SqliteGrowth : public Lab
{
};

TEST_F(SqliteGrowth, VacuumCutsTheFileWhenItIsClosed)
{
    make();
    Db db(path()), idle(path());
    MUST(db, fill("t", 10, 1000));
    EXPECT_EQ(idle.number("SELECT count(*) FROM t"), 994);
    EXPECT_GT(support::size_of(path()), 400000u);
    MUST(db, "DELETE FROM t WHERE a>5; VACUUM");
    EXPECT_EQ(idle.number("PRAGMA page_count"), 3);
    EXPECT_EQ(db.text("PRAGMA integrity_check"), "ok");
    idle.close();
    db.close();
    EXPECT_EQ(support::size_of(path()), 3u * 4096);
    EXPECT_EQ(stock_sum(path()), "6");
}

TEST_F(SqliteGrowth, AutoVacuumGivesPagesBack)
{
    for (const char *mode : {"full", "incremental"}) {
        const std::string name = std::string(mode) + ".db";
        make(name, std::string("PRAGMA auto_vacuum=") + mode);
        Db db(path(name), ""), second(path(name), "");
        for (int turn = 0; turn < 5; turn++) {
            MUST(db, "PRAGMA cache_size=5; BEGIN;" + fill("t", 10, 500) + "; COMMIT");
            MUST(second, "DELETE FROM t WHERE a>5; PRAGMA incremental_vacuum");
            EXPECT_LE(db.number("PRAGMA page_count"), 5) << name;
            EXPECT_EQ(db.text("PRAGMA integrity_check"), "ok");
        }
        db.close();
        second.close();
        EXPECT_EQ(stock_sum(path(name)), "6");
    }
}

TEST_F(SqliteGrowth, ShrinkAndGrowthInOneTransactionAreSeenByAllConnections)
{
    make("a.db", "PRAGMA auto_vacuum=full");
    Db db(path());
    ASSERT_EQ(other.open(path()), SQLITE_OK);
    MUST(db, "PRAGMA cache_size=5;" + fill("t", 10, 1000));
    EXPECT_EQ(other.text("SELECT count(*) FROM t"), "994");
    MUST(db, "BEGIN; DELETE FROM t WHERE a>5;" + fill("t", 10, 500) + "; COMMIT");
    EXPECT_EQ(other.text("SELECT count(*) FROM t"), "494");
    MUST(db, "BEGIN; DELETE FROM t WHERE a>5;" + fill("t", 10, 1500) + "; ROLLBACK");
    EXPECT_EQ(other.text("SELECT count(*) FROM t"), "494");
    EXPECT_EQ(other.run("DELETE FROM t WHERE a>5"), SQLITE_OK);
    EXPECT_EQ(db.number("SELECT count(*) FROM t"), 3);
    EXPECT_EQ(db.text("PRAGMA integrity_check"), "ok");
}

/* Before the end, another program would take what is behind it for pages. */
TEST_F(SqliteGrowth, ADatabaseThatIsHandedOverHasJustItsLength)
{
    setenv("ATO_DURABILITY", "disk", 1);
    make("b.db");
    const std::string both =
        "ATTACH '" + path("b.db") +
        "' AS b; BEGIN; UPDATE main.t SET b=1 WHERE a=1; UPDATE b.t SET b=1 WHERE a=1; COMMIT";
    for (const std::string &way : {std::string("PRAGMA journal_mode=wal"), both, std::string()}) {
        const std::string name = "db" + std::to_string(way.size());
        make(name);
        Db db(path(name));
        for (int i = 0; i < 40; i++)
            MUST(db, "INSERT INTO t(b) VALUES(randomblob(3000))");
        const auto size = static_cast<uint64_t>(db.number("PRAGMA page_count")) * 4096;
        EXPECT_GT(support::size_of(path(name)), size);
        if (way.empty()) {
            db.close();
        } else {
            MUST(db, way);
        }
        EXPECT_EQ(support::size_of(path(name)), size) << way;
        if (!way.empty())
            db.close();
        EXPECT_EQ(Db::stock(path(name)).text("PRAGMA integrity_check"), "ok");
        EXPECT_EQ(support::size_of(path(name)), size) << way;
    }
    unsetenv("ATO_DURABILITY");
}

TEST_F(SqliteGrowth, ChangesThePageSize)
{
    make();
    Db db(path());
    MUST(db, fill("t", 10, 300));
    for (int page : {512, 65536, 1024, 8192}) {
        MUST(db, "PRAGMA page_size=" + std::to_string(page) + "; VACUUM");
        EXPECT_EQ(db.number("PRAGMA page_size"), page);
        EXPECT_EQ(db.text("PRAGMA integrity_check"), "ok");
        EXPECT_EQ(db.number("SELECT count(b) FROM t"), 294);
    }
}

TEST_F(SqliteGrowth, GrowthByChunksKeepsTheContent)
{
    make();
    Db db(path());
    int chunk = 1 << 20;
    ASSERT_EQ(sqlite3_file_control(db.handle, "main", SQLITE_FCNTL_CHUNK_SIZE, &chunk), SQLITE_OK);
    MUST(db, "PRAGMA cache_size=5; BEGIN;" + fill("t", 10, 500) + "; COMMIT");
    EXPECT_EQ(support::size_of(path()), 1u << 20);
    MUST(db, "BEGIN;" + fill("t", 1000, 4000) + "; ROLLBACK");
    MUST(db, "DELETE FROM t WHERE a>5; VACUUM");
    EXPECT_EQ(db.text("PRAGMA integrity_check"), "ok");
    db.close();
    EXPECT_EQ(stock_sum(path()), "6");
}

TEST_F(SqliteGrowth, ATransactionOfHundredsOfMegabytesSucceeds)
{
    Db db(path());
    MUST(db, "PRAGMA page_size=65536; CREATE TABLE t(a INTEGER PRIMARY KEY, b); BEGIN;"
             "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<3000)"
             " INSERT INTO t SELECT i, zeroblob(100000) FROM n");
    MUST(db, "COMMIT");
    EXPECT_EQ(db.number("SELECT sum(length(b)) FROM t"), 300000000);
    MUST(db, "DELETE FROM t WHERE a>3; VACUUM");
    EXPECT_EQ(db.text("PRAGMA integrity_check"), "ok");
    db.close();
    EXPECT_EQ(stock_sum(path()), "6");
}

/* ---- locks ---- */

TEST_F(SqliteGrowth, LocksOutliveTheCloseOfAnotherConnection)
{
    make();
    Db db(path());
    ASSERT_EQ(other.open(path()), SQLITE_OK);
    MUST(db, "BEGIN IMMEDIATE");
    for (const char *parameters : {"", "mode=ro", "unmap=fast"}) {
        Db second(path(), parameters);
        EXPECT_EQ(second.number("SELECT sum(a) FROM t"), 6) << second.error();
        second.close();
        EXPECT_EQ(other.run("BEGIN IMMEDIATE"), SQLITE_BUSY);
    }
    MUST(db, "COMMIT");
    EXPECT_EQ(other.run("BEGIN IMMEDIATE; COMMIT"), SQLITE_OK);
}

TEST_F(SqliteGrowth, LocksOfAReadOnlyConnectionOutliveTheFirstWriter)
{
    make();
    Db reader(path(), "mode=ro", SQLITE_OPEN_READONLY);
    ASSERT_EQ(other.open_stock(path()), SQLITE_OK);
    MUST(reader, "BEGIN; SELECT * FROM t");
    for (int turn = 0; turn < 2; turn++) {
        Db writer(path());
        EXPECT_EQ(writer.number("SELECT sum(a) FROM t"), 6);
        EXPECT_EQ(other.run("BEGIN EXCLUSIVE"), SQLITE_BUSY);
        writer.close();
        EXPECT_EQ(other.run("BEGIN EXCLUSIVE"), SQLITE_BUSY);
    }
}

TEST_F(SqliteGrowth, LocksOutliveACutOfTheFile)
{
    make();
    Db db(path()), second(path());
    MUST(db, "PRAGMA locking_mode=exclusive;" + fill("t", 10, 1000));
    MUST(db, "DELETE FROM t WHERE a>5; VACUUM");
    ASSERT_EQ(other.open(path()), SQLITE_OK);
    EXPECT_EQ(other.run("BEGIN IMMEDIATE"), SQLITE_BUSY);
    EXPECT_EQ(other.run("SELECT * FROM t"), SQLITE_BUSY);
    MUST(db, "PRAGMA locking_mode=normal; SELECT * FROM t");
    MUST(second, "BEGIN; SELECT * FROM t");
    MUST(db, "SELECT * FROM t");
    EXPECT_EQ(other.run("PRAGMA journal_mode=wal"), SQLITE_BUSY);
    MUST(second, "COMMIT");
    EXPECT_EQ(other.run("BEGIN EXCLUSIVE; COMMIT"), SQLITE_OK) << other.error();
}

TEST_F(SqliteGrowth, LocksOutliveACutByAnotherProcess)
{
    make();
    Db db(path()), second(path());
    MUST(db, fill("t", 10, 1000));
    ASSERT_EQ(other.open(path()), SQLITE_OK);
    ASSERT_EQ(other.run("DELETE FROM t WHERE a>5; VACUUM"), SQLITE_OK) << other.error();
    MUST(db, "BEGIN; SELECT * FROM t");
    MUST(second, "SELECT * FROM t");
    EXPECT_EQ(other.run("PRAGMA journal_mode=wal"), SQLITE_BUSY);
    MUST(db, "COMMIT");
    EXPECT_EQ(other.run("BEGIN EXCLUSIVE; COMMIT"), SQLITE_OK) << other.error();
}

/* The dead transaction is of two files; this process has one of them locked. */
TEST_F(SqliteGrowth, LocksOutliveTheDeathOfAnotherProcess)
{
    Remote third;
    make();
    make("b.db");
    Db db(path());
    MUST(db, "PRAGMA cache_size=5; SELECT * FROM t");
    ASSERT_EQ(other.open(path()), SQLITE_OK);
    ASSERT_EQ(other.run("ATTACH '" + uri(path("b.db")) +
                        "' AS b; PRAGMA main.cache_size=5;"
                        "PRAGMA b.cache_size=5; INSERT INTO main.t VALUES(9, 9); BEGIN;" +
                        fill("main.t", 10, 300) + ";" + fill("b.t", 10, 300)),
              SQLITE_OK);
    other.kill();
    ASSERT_EQ(third.open(path()), SQLITE_OK);
    MUST(db, "BEGIN");
    EXPECT_EQ(db.number("SELECT sum(a) FROM t"), 15);
    EXPECT_EQ(third.run("PRAGMA journal_mode=wal"), SQLITE_BUSY);
    MUST(db, "ATTACH '" + uri(path("b.db")) + "' AS b");
    EXPECT_EQ(db.number("SELECT sum(a) FROM b.t"), 6);
    EXPECT_EQ(third.run("PRAGMA journal_mode=wal"), SQLITE_BUSY);
    MUST(db, fill("b.t", 10, 300));
    EXPECT_EQ(third.run("PRAGMA journal_mode=wal"), SQLITE_BUSY);
    MUST(db, fill("main.t", 10, 300));
    EXPECT_EQ(third.run("SELECT * FROM t"), SQLITE_BUSY);
    MUST(db, "COMMIT");
    EXPECT_EQ(db.text("PRAGMA integrity_check"), "ok");
}

/* A process sees that another one made the file longer than it has it mapped: it is an error, and opening it anew helps. */
TEST_F(SqliteGrowth, GrowthBeyondTheMaxSizeOfAnotherProcessIsAnErrorThere)
{
    for (const char *mode : {"delete", "wal"}) {
        const std::string file = path(mode + std::string(".db"));
        make(mode + std::string(".db"));
        ASSERT_EQ(other.open(file, "max_size=4194304"), SQLITE_OK) << other.error();
        ASSERT_EQ(other.run("CREATE TABLE u(b); INSERT INTO u VALUES (zeroblob(100000))"),
                  SQLITE_OK)
            << other.error();
        Db db(file);
        EXPECT_EQ(db.text(std::string("PRAGMA journal_mode=") + mode), mode);
        ASSERT_EQ(db.opened, SQLITE_OK);
        MUST(db, "INSERT INTO u VALUES (zeroblob(10000000)); PRAGMA wal_checkpoint(TRUNCATE)");
        EXPECT_EQ(other.run("SELECT sum(length(b)) FROM u"), SQLITE_IOERR) << other.error();
        EXPECT_EQ(other.close(), SQLITE_OK);
        ASSERT_EQ(other.open(file), SQLITE_OK) << other.error();
        EXPECT_EQ(other.text("SELECT sum(length(b)) FROM u"), "10100000") << other.error();
        EXPECT_EQ(other.run("INSERT INTO u VALUES (zeroblob(1000000))"), SQLITE_OK)
            << other.error();
        EXPECT_EQ(db.number("SELECT sum(length(b)) FROM u"), 11100000);
        EXPECT_EQ(db.text("PRAGMA integrity_check"), "ok");
        EXPECT_EQ(other.close(), SQLITE_OK);
    }
}

/* SQLite cuts the file after the commit. If its process dies between the two, and the file is made plain without SQLite, the
 * counter of the guard makes SQLite go by the length of the file. */
TEST_F(SqliteGrowth, ADatabaseThatGotShorterIsCutInItsCommit)
{
    make();
    ASSERT_EQ(support::in_child([&] {
                  start();
                  Db db(path());
                  sqlite3_file *file = nullptr;
                  db.run(fill("t", 10, 2000) + "; DELETE FROM t WHERE a > 3");
                  sqlite3_file_control(db.handle, "main", SQLITE_FCNTL_FILE_POINTER, &file);
                  auto *methods = const_cast<sqlite3_io_methods *>(file->pMethods);
                  static const sqlite3_io_methods ours = *methods;
                  methods->xTruncate = [](sqlite3_file *, sqlite3_int64) -> int {
                      _exit(support::CUT);
                      return 0;
                  };
                  methods->xFileControl = [](sqlite3_file *f, int what, void *arg) {
                      if (what == SQLITE_FCNTL_COMMIT_PHASETWO)
                          _exit(support::CUT);
                      return ours.xFileControl(f, what, arg);
                  };
                  return db.run("VACUUM");
              }),
              support::CUT);
    support::Fd fd(path());
    void *at = ato_mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    ASSERT_NE(at, MAP_FAILED) << ato_errormsg();
    ASSERT_EQ(ato_munmap(at, 4096, ATO_UNMAP_SPATIAL), 0) << ato_errormsg();
    const Db stock = Db::stock(path());
    EXPECT_EQ(stock.text("PRAGMA integrity_check"), "ok");
    EXPECT_EQ(stock.number("SELECT count(*) FROM t"), 3);
}

/* By default a database may grow to 64 GiB, for which there is no address space here. */
TEST_F(SqliteGrowth, WorksWithLittleAddressSpace)
{
    if (!support::limits_address_space())
        GTEST_SKIP() << "a sanitizer takes address space itself";
    make();
    EXPECT_EQ(support::in_child([&] {
                  start();
                  support::leave_address_space(3ull << 29);
                  Db db(path());
                  if (db.run("PRAGMA cache_size=50; BEGIN;" + fill("t", 10, 8000) + "; COMMIT") !=
                          SQLITE_OK ||
                      db.text("PRAGMA integrity_check") != "ok")
                      return 1;
                  return db.close() == SQLITE_OK ? 0 : 2;
              }),
              0);
    EXPECT_GT(support::size_of(path()), 2000000u);
    EXPECT_EQ(Db::stock(path()).number("SELECT count(*) FROM t"), 7994);
}

/* More than there would be address space for, if each took 64 GiB. */
TEST_F(SqliteGrowth, ManyDatabasesAreOpenAtOnce)
{
    constexpr rlim_t MANY = 700;
    struct rlimit files;
    if (support::sparse())
        GTEST_SKIP() << "a sparse reflection takes as much address space as it may ever need";
    getrlimit(RLIMIT_NOFILE, &files);
    if (files.rlim_max < MANY * 10)
        GTEST_SKIP() << "this process may have only " << files.rlim_max << " descriptors";
    EXPECT_EQ(
        support::in_child([&] {
            start();
            files.rlim_cur = files.rlim_max;
            setrlimit(RLIMIT_NOFILE, &files);
            std::vector<Db> all;
            for (rlim_t i = 0; i < MANY; i++) {
                all.emplace_back(path("many" + std::to_string(i)));
                if (all.back().run(
                        "PRAGMA page_size=1024; CREATE TABLE t(a); INSERT INTO t VALUES(1)") !=
                    SQLITE_OK)
                    return 1;
            }
            for (const Db &db : all)
                if (db.number("SELECT a FROM t") != 1)
                    return 2;
            return 0;
        }),
        0);
}

} // namespace sql
