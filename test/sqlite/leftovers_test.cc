/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * If another process left a rollback journal on the disk: it is played back before any connection reads, or it cannot
 * undo a later commit.
 */
#include "lab.h"

#include "support/child.h"

#include <fstream>
#include <sys/stat.h>

namespace sql
{

using support::CUT;

class SqliteLeftovers : public Lab
{
  protected:
    /* Writes a journal of an empty database: SQLite plays it back as soon as the database is not empty. */
    void plant(const std::string &name, mode_t mode) const
    {
        static const char header[512] = "\xd9\xd5\x05\xf9\x20\xa1\x63\xd7\0\0\0\0\0\0\0\x01"
                                        "\0\0\0\0\0\0\x02\0\0\0\x10";
        std::ofstream(path(name), std::ios::binary).write(header, sizeof(header));
        ASSERT_EQ(chmod(path(name).c_str(), mode), 0);
    }
    /* A process changes rows, and dies at the system call `name` for which `at` returns true. */
    template <typename Open>
    void die(Open open, const std::string &change, const char *name,
             bool (*at)(int, const void *, size_t)) const
    {
        static bool (*dies)(int, const void *, size_t);
        dies = at;
        ASSERT_EQ(support::in_child([&] {
                      start();
                      sqlite3_vfs *vfs = sqlite3_vfs_find("unix");
                      const Db db = open();
                      const bool writes = std::string(name) == "pwrite64";
                      const auto call =
                          writes ? reinterpret_cast<sqlite3_syscall_ptr>(
                                       +[](int fd, const void *from, size_t n, off_t offset) {
                                           const ssize_t done = pwrite(fd, from, n, offset);
                                           if (dies(fd, from, n))
                                               _exit(CUT);
                                           return done;
                                       })
                                 : reinterpret_cast<sqlite3_syscall_ptr>(+[](const char *) {
                                       _exit(CUT);
                                       return 0;
                                   });
                      return vfs->xSetSystemCall(vfs, name, call) == SQLITE_OK ? db.run(change) : 1;
                  }),
                  CUT);
    }
};

/* The record that counts the pages of the journal: from here on the journal is hot. */
static bool counts_pages(int, const void *from, size_t n)
{
    static const char magic[8] = "\xd9\xd5\x05\xf9\x20\xa1\x63";
    return n == 12 && memcmp(from, magic, 7) == 0;
}

/* The ways in which SQLite leaves its own journals. */
class SqliteLeftoversInMode : public SqliteLeftovers,
                              public testing::WithParamInterface<const char *>
{
};

INSTANTIATE_TEST_SUITE_P(JournalModes, SqliteLeftoversInMode,
                         testing::Values("delete", "truncate", "persist"),
                         [](const auto &parameter) { return std::string(parameter.param); });

/* A connection reads: nothing of the transaction is in the database. */
TEST_P(SqliteLeftoversInMode, JournalOfAProcessThatDiedBesideAReaderIsNotPlayedBack)
{
    make();
    ASSERT_EQ(other.open_stock(path()), SQLITE_OK);
    ASSERT_EQ(other.run("PRAGMA synchronous=OFF"), SQLITE_OK);
    Db db(path());
    MUST(db, std::string("PRAGMA journal_mode=") + GetParam());
    MUST(db, "BEGIN; SELECT * FROM t");
    ASSERT_EQ(other.run("BEGIN IMMEDIATE; UPDATE t SET b=a"), SQLITE_OK) << other.error();
    other.kill();
    ASSERT_EQ(names(), "a.db a.db-journal");
    MUST(db, "INSERT INTO t VALUES(4, 'four')");
    EXPECT_EQ(names(), "a.db"); /* a process that is killed from here on leaves none */
    MUST(db, "COMMIT");
    EXPECT_EQ(db.number("SELECT sum(a) FROM t"), 10);
    EXPECT_EQ(db.close(), SQLITE_OK);
    EXPECT_EQ(stock_sum(path()), "10");
}

class SqliteHotJournals : public SqliteLeftovers
{
  protected:
    /* Leaves the journal of a process that wrote some of its pages to the database. */
    void leave_journal() const
    {
        die(
            [&] {
                Db db = Db::stock(path());
                (void)db.run("UPDATE t SET b=a");
                return db;
            },
            "UPDATE t SET b=a+20", "pwrite64",
            [](int fd, const void *from, size_t n) {
                static bool counted;
                counted |= counts_pages(fd, from, n);
                return counted && n == 4096;
            });
    }
    /* Plays it back through SQLite's own VFS, which then writes. */
    void expect_nothing_of_it() const
    {
        {
            const Db db = Db::stock(path());
            EXPECT_EQ(db.text("SELECT sum(b) FROM t"), "6");
            MUST(db, fill("t", 10, 50) + "; UPDATE t SET b=a+30 WHERE a<10");
        }
        EXPECT_EQ(Db(path()).text("SELECT sum(b) FROM t WHERE a<10"), "96");
        EXPECT_EQ(stock_sum(path()), "1236");
    }
};

/* SQLite's own VFS plays a journal back before it reads the header: a masked database must not have one. */
TEST_F(SqliteHotJournals, AreNeverBesidePagesInAReflection)
{
    make();
    leave_journal();
    ASSERT_EQ(other.open(path()), SQLITE_OK);
    ASSERT_EQ(other.run("UPDATE t SET b=a+30"), SQLITE_OK) << other.error();
    EXPECT_EQ(names(), "a.db");
    other.kill();
    EXPECT_EQ(Db::stock(path()).run("SELECT * FROM t"), SQLITE_NOTADB);
    EXPECT_EQ(Db(path()).number("SELECT sum(b) FROM t"), 96);
}

/* The journal stays until the bytes that it restores are durable. */
TEST_F(SqliteHotJournals, RestoreTheSameBytesTwice)
{
    make();
    leave_journal();
    die([&] { return Db(path()); }, "UPDATE t SET b=a+30", "unlink", nullptr);
    expect_nothing_of_it();
}

/* The same if SQLite keeps a journal open that it played back, and writes the next transaction to it. */
TEST_F(SqliteHotJournals, RestoreTheSameBytesIfTheyAreReused)
{
    make();
    die(
        [&] {
            Db db(path());
            (void)db.run("PRAGMA journal_mode=truncate; SELECT * FROM t");
            leave_journal();
            (void)db.run("BEGIN IMMEDIATE; UPDATE t SET b=a+30");
            return db;
        },
        "COMMIT", "ftruncate", nullptr);
    expect_nothing_of_it();
}

TEST_F(SqliteHotJournals, AreReusedByACommitToSeveralDatabases)
{
    make();
    MUST(Db(path("b.db")), "CREATE TABLE u(a); INSERT INTO u VALUES(1)");
    {
        const Db db(path());
        MUST(db, "PRAGMA journal_mode=truncate; SELECT * FROM t");
        leave_journal();
        MUST(db, "ATTACH '" + path("b.db") + "' AS b; BEGIN IMMEDIATE; UPDATE t SET b=a+30");
        MUST(db, "UPDATE u SET a=2; COMMIT");
        EXPECT_EQ(db.number("SELECT sum(b) FROM t"), 96);
        EXPECT_EQ(db.number("SELECT a FROM u"), 2);
    }
    EXPECT_EQ(stock_sum(path()), "6");
}

TEST_F(SqliteLeftovers, JournalThatCannotBeDeletedIsAnErrorBeforeTheCommit)
{
    if (geteuid() != 0)
        GTEST_SKIP() << "needs root, for a file of another user";
    ASSERT_EQ(chmod(folder.path().c_str(), S_ISVTX | 0777), 0);
    for (const mode_t mode : {0666, 0644, 0600}) {
        const std::string name = std::to_string(mode) + ".db";
        plant(name + "-journal", mode);
        {
            const Nobody nobody;
            (void)logged();
            const Db db(path(name));
            EXPECT_EQ(db.run("CREATE TABLE t(a)"), SQLITE_CANTOPEN) << mode;
            EXPECT_TRUE(logged(name + "-journal")) << mode;
        }
        ASSERT_EQ(unlink(path(name + "-journal").c_str()), 0);
        const Nobody nobody;
        const Db db(path(name));
        EXPECT_EQ(db.number("SELECT count(*) FROM sqlite_master"), 0) << mode;
        MUST(db, "CREATE TABLE t(a); INSERT INTO t VALUES(1)");
        EXPECT_EQ(db.number("SELECT sum(a) FROM t"), 1) << mode;
    }
}

/* The journal has been played back, and its head is zero: as SQLite leaves it in mode PERSIST. */
TEST_F(SqliteLeftovers, UnusedJournalThatCannotBeDeletedIsAnErrorToo)
{
    if (geteuid() != 0)
        GTEST_SKIP() << "needs root, for a file of another user";
    make();
    ASSERT_TRUE(give_to_nobody());
    std::ofstream(path("a.db-journal"), std::ios::binary).write("\0\0\0\0", 4);
    ASSERT_EQ(chown(folder.path().c_str(), 0, 0), 0);
    ASSERT_EQ(chmod(folder.path().c_str(), S_ISVTX | 0777), 0);
    {
        const Nobody nobody;
        const Db db(path());
        EXPECT_EQ(db.run("INSERT INTO t VALUES(4, 'four')"), SQLITE_CANTOPEN);
        EXPECT_TRUE(logged("a.db-journal"));
        EXPECT_EQ(db.number("SELECT sum(a) FROM t"), 6);
    }
    ASSERT_EQ(unlink(path("a.db-journal").c_str()), 0);
    const Nobody nobody;
    MUST(Db(path()), "INSERT INTO t VALUES(4, 'four')");
    EXPECT_EQ(stock_sum(path()), "10");
}

/* The journal of another process on the disk: it would be played back again, over later commits. */
TEST_F(SqliteLeftovers, HotJournalThatCannotBeDeletedIsAnError)
{
    make();
    ASSERT_TRUE(give_to_nobody());
    {
        const Nobody nobody;
        const Db db(path());
        MUST(db, "INSERT INTO t VALUES(4, 'four')"); /* makes the folder .ato */
    }
    ASSERT_EQ(other.open_stock(path()), SQLITE_OK);
    ASSERT_EQ(other.run("PRAGMA cache_size=1; BEGIN; " + fill("t", 10, 300)), SQLITE_OK);
    other.kill();
    ASSERT_EQ(names(), "a.db a.db-journal");
    const Nobody nobody;
    const Db db(path());
    EXPECT_EQ(chmod(folder.path().c_str(), 0500), 0);
    for (const char *statement : {"SELECT * FROM t", "INSERT INTO t VALUES(5, 'five')"}) {
        EXPECT_EQ(db.run(statement), SQLITE_IOERR) << statement;
        EXPECT_EQ(sqlite3_extended_errcode(db.handle), SQLITE_IOERR_DELETE) << statement;
    }
    EXPECT_EQ(chmod(folder.path().c_str(), 0700), 0);
    EXPECT_EQ(db.number("SELECT sum(a) FROM t"), 10);
}

/* A connection that shares the database in memory plays it back by SQLite's own locks, and writes from its next transaction on. */
TEST_F(SqliteLeftovers, AHotJournalIsPlayedBackBeforeTheDatabaseIsShared)
{
    make();
    ASSERT_EQ(other.open_stock(path()), SQLITE_OK);
    ASSERT_EQ(other.run("PRAGMA cache_size=1; BEGIN; " + fill("t", 10, 300)), SQLITE_OK);
    other.kill();
    const Db db(path());
    EXPECT_EQ(db.number("SELECT sum(a) FROM t"), 6);
    EXPECT_EQ(names(), "a.db");
    MUST(db, "INSERT INTO t VALUES(4, 'four')");
    EXPECT_EQ(Db::stock(path()).run("SELECT * FROM t"), SQLITE_BUSY);
}

} // namespace sql
