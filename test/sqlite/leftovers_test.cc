/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What if a rollback journal lies on the disk, that others left? It is played back before anybody reads; or nothing that
 * is committed afterwards may be lost to it.
 */
#include "lab.h"

#include <fstream>
#include <sys/stat.h>

namespace sql
{

class SqliteLeftovers : public Lab
{
  protected:
    /* Of a database that was empty, and of somebody else: SQLite plays it back as soon as the database is not. */
    void plant(const std::string &name, mode_t mode) const
    {
        static const char header[512] = "\xd9\xd5\x05\xf9\x20\xa1\x63\xd7\0\0\0\0\0\0\0\x01"
                                        "\0\0\0\0\0\0\x02\0\0\0\x10";
        std::ofstream(path(name), std::ios::binary).write(header, sizeof(header));
        ASSERT_EQ(chmod(path(name).c_str(), mode), 0);
    }
};

/* How SQLite leaves its own journals. */
class SqliteLeftoversInMode : public SqliteLeftovers,
                              public testing::WithParamInterface<const char *>
{
};

INSTANTIATE_TEST_SUITE_P(JournalModes, SqliteLeftoversInMode,
                         testing::Values("delete", "truncate", "persist"),
                         [](const auto &parameter) { return std::string(parameter.param); });

/* Nothing of what that one began is in the database, for somebody reads. */
TEST_P(SqliteLeftoversInMode, JournalOfOneThatDiedBesideAReaderIsNotPlayedBack)
{
    make();
    ASSERT_EQ(other.open(path(), "journal=file"), SQLITE_OK);
    ASSERT_EQ(other.run("PRAGMA synchronous=OFF"), SQLITE_OK);
    Db db(path());
    MUST(db, std::string("PRAGMA journal_mode=") + GetParam());
    MUST(db, "BEGIN; SELECT * FROM t");
    ASSERT_EQ(other.run("BEGIN IMMEDIATE; UPDATE t SET b=a"), SQLITE_OK) << other.error();
    other.kill();
    ASSERT_EQ(names(), "a.db a.db-journal");
    MUST(db, "INSERT INTO t VALUES(4, 'four')");
    EXPECT_EQ(names(), "a.db"); /* who is killed from here on leaves none */
    MUST(db, "COMMIT");
    EXPECT_EQ(db.number("SELECT sum(a) FROM t"), 10);
    EXPECT_EQ(db.close(), SQLITE_OK);
    EXPECT_EQ(stock_sum(path()), "10");
}

TEST_F(SqliteLeftovers, JournalThatCannotBeDeletedIsAnErrorBeforeTheCommit)
{
    if (geteuid() != 0)
        GTEST_SKIP() << "needs root, for a file of somebody else";
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

/* It has been played back, and has no first byte: as SQLite leaves it in the mode PERSIST. */
TEST_F(SqliteLeftovers, JournalThatIsOfNoUseAndCannotBeDeletedIsNoError)
{
    if (geteuid() != 0)
        GTEST_SKIP() << "needs root, for a file of somebody else";
    make();
    ASSERT_TRUE(give_to_nobody());
    std::ofstream(path("a.db-journal"), std::ios::binary).write("\0\0\0\0", 4);
    ASSERT_EQ(chown(folder.path().c_str(), 0, 0), 0);
    ASSERT_EQ(chmod(folder.path().c_str(), S_ISVTX | 0777), 0);
    const Nobody nobody;
    Db db(path());
    MUST(db, "INSERT INTO t VALUES(4, 'four')");
    EXPECT_EQ(db.number("SELECT sum(a) FROM t"), 10);
    EXPECT_EQ(db.close(), SQLITE_OK);
    EXPECT_EQ(stock_sum(path()), "10");
}

/* One that lies on the disk, of another: it would be rolled back once more, over what is committed by then. */
TEST_F(SqliteLeftovers, HotJournalThatCannotBeDeletedIsAnError)
{
    make();
    ASSERT_TRUE(give_to_nobody());
    {
        const Nobody nobody;
        const Db db(path());
        MUST(db, "INSERT INTO t VALUES(4, 'four')"); /* with a folder .ato */
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

/* Who has written before, with a journal in memory: without locks SQLite does not say when that is over. */
class SqliteLeftoversOfOther : public SqliteLeftovers,
                               public testing::WithParamInterface<const char *>
{
};

INSTANTIATE_TEST_SUITE_P(Locks, SqliteLeftoversOfOther, testing::Values("0", "1"),
                         [](const auto &parameter) {
                             return parameter.param == std::string("0") ? std::string("taken")
                                                                        : std::string("none");
                         });

TEST_P(SqliteLeftoversOfOther, HotJournalThatCannotBeDeletedIsAnErrorToOneThatWrote)
{
    const std::string locks = std::string("nolock=") + GetParam();
    make();
    ASSERT_TRUE(give_to_nobody());
    const Nobody nobody;
    const Db db(path(), locks);
    MUST(db, "INSERT INTO t VALUES(4, 'four')");
    ASSERT_EQ(other.open(path(), "journal=file&" + locks), SQLITE_OK);
    ASSERT_EQ(other.run("PRAGMA cache_size=1; BEGIN; " + fill("t", 10, 300)), SQLITE_OK);
    other.kill();
    ASSERT_EQ(names(), "a.db a.db-journal");
    EXPECT_EQ(chmod(folder.path().c_str(), 0500), 0);
    for (const char *statement : {"SELECT * FROM t", "INSERT INTO t VALUES(5, 'five')"})
        EXPECT_EQ(db.run(statement), SQLITE_IOERR) << statement;
    EXPECT_EQ(chmod(folder.path().c_str(), 0700), 0);
    EXPECT_EQ(db.number("SELECT sum(a) FROM t"), 10);
    EXPECT_EQ(db.text("PRAGMA integrity_check"), "ok");
}

} // namespace sql
