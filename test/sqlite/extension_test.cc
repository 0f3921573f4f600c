/* SPDX-License-Identifier: BSD-3-Clause */
/* Does the extension, loaded into a program without libato, register the VFS? */
#include "support/temp.h"

#include <gtest/gtest.h>
#include <sqlite3.h>

static int run(sqlite3 *db, const std::string &statements)
{
    return sqlite3_exec(db, statements.c_str(), nullptr, nullptr, nullptr);
}

TEST(SqliteExtension, RegistersTheVfsAndLeavesTheDefaultAlone)
{
    const support::TempDir folder;
    const std::string path = folder / "a.db";
    sqlite3 *db = nullptr;
    char *why = nullptr;
    ASSERT_EQ(sqlite3_open(":memory:", &db), SQLITE_OK);
    EXPECT_EQ(sqlite3_vfs_find("ato"), nullptr);
    const int version = sqlite3_vfs_find("unix")->iVersion;
    sqlite3_vfs_find("unix")->iVersion = 4; /* as if it had more functions than libato knows */
    sqlite3_enable_load_extension(db, 1);
    ASSERT_EQ(sqlite3_load_extension(db, EXTENSION, nullptr, &why), SQLITE_OK) << why;
    sqlite3_close(db); /* the extension stays loaded */
    EXPECT_EQ(sqlite3_vfs_find("ato")->iVersion, 3);
    sqlite3_vfs_find("unix")->iVersion = version;
    EXPECT_STREQ(sqlite3_vfs_find(nullptr)->zName, "unix");
    ASSERT_EQ(sqlite3_open_v2(("file:" + path + "?vfs=ato").c_str(), &db,
                              SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_URI,
                              nullptr),
              SQLITE_OK);
    EXPECT_EQ(run(db,
                  "PRAGMA cache_size=5; CREATE TABLE t(a); INSERT INTO t VALUES(1); BEGIN;"
                  "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<1000)"
                  " INSERT INTO t SELECT zeroblob(100) FROM n; ROLLBACK; INSERT INTO t VALUES(2)"),
              SQLITE_OK)
        << sqlite3_errmsg(db);
    EXPECT_TRUE(support::exists(folder / ".ato"));
    /* Loads it a second time. */
    sqlite3_enable_load_extension(db, 1);
    EXPECT_EQ(sqlite3_load_extension(db, EXTENSION, nullptr, &why), SQLITE_OK) << why;
    EXPECT_STREQ(sqlite3_vfs_find(nullptr)->zName, "unix");
    /* Loads it where it is the default. */
    sqlite3_vfs_register(sqlite3_vfs_find("ato"), 1);
    EXPECT_EQ(sqlite3_load_extension(db, EXTENSION, nullptr, &why), SQLITE_OK) << why;
    EXPECT_STREQ(sqlite3_vfs_find(nullptr)->zName, "ato");
    sqlite3_vfs_register(sqlite3_vfs_find("unix"), 1);
    EXPECT_EQ(sqlite3_close(db), SQLITE_OK);
    EXPECT_EQ(support::names_in(folder / ".ato").size(), 0u);

    ASSERT_EQ(sqlite3_open(path.c_str(), &db), SQLITE_OK);
    sqlite3_stmt *s = nullptr;
    ASSERT_EQ(sqlite3_prepare_v2(db, "SELECT count(*), sum(a) FROM t", -1, &s, nullptr), SQLITE_OK);
    EXPECT_EQ(sqlite3_step(s), SQLITE_ROW);
    EXPECT_EQ(sqlite3_column_int(s, 0), 2);
    EXPECT_EQ(sqlite3_column_int(s, 1), 3);
    sqlite3_finalize(s);
    sqlite3_close(db);
}
