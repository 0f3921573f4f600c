/* SPDX-License-Identifier: BSD-3-Clause */
/* How does a database behave that is opened through the VFS, and what is the state of its file after the close? */
#include "lab.h"

#include "ato_sqlite.h"

#include <cerrno>
#include <filesystem>
#include <thread>

namespace sql
{

class SqliteVfs : public Lab
{
};

TEST_F(SqliteVfs, IsNotTheDefault)
{
    start();
    ASSERT_NE(sqlite3_vfs_find("ato"), nullptr);
    EXPECT_STREQ(sqlite3_vfs_find(nullptr)->zName, "unix");
    Db db(path());
    char *name = nullptr;
    ASSERT_EQ(sqlite3_file_control(db.handle, "main", SQLITE_FCNTL_VFSNAME, &name), SQLITE_OK);
    EXPECT_STREQ(name, "ato/unix");
    sqlite3_free(name);
}

TEST_F(SqliteVfs, IsTheDefaultOnRequest)
{
    start();
    EXPECT_EQ(ato_vfs_register(1), SQLITE_OK);
    EXPECT_STREQ(sqlite3_vfs_find(nullptr)->zName, "ato");
    EXPECT_EQ(ato_vfs_register(0), SQLITE_OK);
    EXPECT_STREQ(sqlite3_vfs_find(nullptr)->zName, "unix");
    /* If a program contains the VFS twice, it works for the other copy, too. */
    sqlite3_vfs *own = sqlite3_vfs_find("ato"), other = *own;
    sqlite3_vfs_unregister(own);
    sqlite3_vfs_register(&other, 0);
    EXPECT_EQ(ato_vfs_register(1), SQLITE_OK);
    EXPECT_EQ(sqlite3_vfs_find(nullptr), &other);
    EXPECT_EQ(ato_vfs_register(0), SQLITE_OK);
    EXPECT_STREQ(sqlite3_vfs_find(nullptr)->zName, "unix");
    sqlite3_vfs_unregister(&other);
    EXPECT_EQ(ato_vfs_register(0), SQLITE_OK);
    EXPECT_EQ(sqlite3_vfs_find("ato"), own);
}

TEST_F(SqliteVfs, DatabaseThatIsOpenedForReadingOnlyGetsNoReflection)
{
    make();
    std::filesystem::remove_all(folder / ".ato");
    {
        Db db(path(), "mode=ro");
        EXPECT_EQ(db.number("SELECT sum(a) FROM t"), 6);
        EXPECT_FALSE(std::filesystem::exists(folder / ".ato"));
        EXPECT_EQ(Db::stock(path()).run("INSERT INTO t VALUES(4, 4)"), SQLITE_OK);
        EXPECT_EQ(db.number("SELECT sum(a) FROM t"), 10);
        const Db writer(path());
        MUST(writer, "INSERT INTO t VALUES(5, 5)");
        EXPECT_EQ(db.number("SELECT sum(a) FROM t"), 15);
        EXPECT_EQ(db.run("INSERT INTO t VALUES(6, 6)"), SQLITE_READONLY);
    }
    EXPECT_EQ(stock_sum(path()), "15");
}

TEST_F(SqliteVfs, LastCloseLeavesAPlainFile)
{
    Db first(path()), second(path());
    MUST(first, "CREATE TABLE t(a, b); INSERT INTO t VALUES(5, 'x')");
    EXPECT_EQ(second.text("SELECT a FROM t"), "5");
    EXPECT_EQ(first.close(), SQLITE_OK);
    MUST(second, "INSERT INTO t VALUES(6, 'y')");
    EXPECT_GT(left(), 0u);
    EXPECT_EQ(second.close(), SQLITE_OK);
    EXPECT_EQ(left(), 0u);
    EXPECT_EQ(names(), "a.db");
    EXPECT_EQ(stock_sum(path()), "11");
}

TEST_F(SqliteVfs, FastUnmapKeepsTheReflectionForTheNextOpen)
{
    for (bool by_pragma : {false, true}) {
        make("a.db", "PRAGMA user_version=1; DROP TABLE IF EXISTS t");
        Db db(path(), by_pragma ? "" : "unmap=fast");
        if (by_pragma) {
            EXPECT_EQ(db.text("PRAGMA ato_unmap"), "plain");
            EXPECT_EQ(db.text("PRAGMA ato_unmap=fast"), "fast");
        }
        EXPECT_EQ(db.text("PRAGMA ato_unmap"), "fast");
        MUST(db, "INSERT INTO t VALUES(10, 'ten')");
        db.close();
        EXPECT_GT(left(), 0u);
        db = Db(path());
        EXPECT_EQ(db.number("SELECT sum(a) FROM t"), 16);
        EXPECT_EQ(db.text("PRAGMA integrity_check"), "ok");
        db.close();
        EXPECT_EQ(left(), 0u);
        EXPECT_EQ(stock_sum(path()), "16");
    }
}

TEST_F(SqliteVfs, StatIsJsonAndItsCountersRise)
{
    Db db(path());
    MUST(db, "CREATE TABLE t(a)");
    const std::string stat = db.text("PRAGMA ato_stat");
    EXPECT_EQ(db.text("SELECT json_valid('" + stat + "')"), "1") << stat;
    auto count = [&](const std::string &what) {
        return db.number("SELECT json_extract('" + db.text("PRAGMA ato_stat") + "', '$." + what +
                         "')");
    };
    const int64_t before = count("bytes_to_media");
    MUST(db, "INSERT INTO t VALUES(1)");
    EXPECT_GT(before, 0);
    EXPECT_GT(count("bytes_to_media"), before);
    EXPECT_EQ(count("size"), 2 * 4096);
    EXPECT_EQ(db.text("SELECT json_extract('" + stat + "', '$.read_policy')"), "gather");
    /* Of an attached database, by its name. */
    MUST(db, "ATTACH '" + uri(path("b.db")) + "' AS other; CREATE TABLE other.u(a, b UNIQUE)");
    const std::string of_other = db.text("PRAGMA other.ato_stat");
    EXPECT_EQ(db.number("SELECT json_extract('" + of_other + "', '$.size')"), 3 * 4096);
}

TEST_F(SqliteVfs, PragmaWithAnotherWordIsAnError)
{
    make();
    Db db(path());
    EXPECT_EQ(db.run("PRAGMA ato_unmap=slow"), SQLITE_ERROR);
    EXPECT_NE(db.error().find("plain or fast"), std::string::npos) << db.error();
    EXPECT_NE(db.error().find("slow of " + path()), std::string::npos) << db.error();
    EXPECT_TRUE(logged(path()));
}

TEST_F(SqliteVfs, ReadPolicyIsTakenFromTheEnvironment)
{
    make();
    for (const char *policy : {"", "lazy", "eager"}) {
        setenv("ATO_READ_POLICY", policy, 1);
        Db db(path()), second(path());
        MUST(db, "INSERT INTO t(b) VALUES('" + std::string(policy) + "')");
        EXPECT_EQ(second.text("SELECT b FROM t ORDER BY a DESC"), policy);
        EXPECT_EQ(db.number("SELECT json_extract('" + db.text("PRAGMA ato_stat") +
                            "', '$.read_policy') = '" + (*policy ? policy : "gather") + "'"),
                  1);
    }
    unsetenv("ATO_READ_POLICY");
}

TEST_F(SqliteVfs, BackupCopiesInAndOut)
{
    make("stock.db", "PRAGMA page_size=1024");
    auto copy = [](const Db &from, const Db &to) {
        sqlite3_backup *b = sqlite3_backup_init(to.handle, "main", from.handle, "main");
        int r;
        while ((r = sqlite3_backup_step(b, 3)) == SQLITE_OK)
            ;
        return r == SQLITE_DONE ? sqlite3_backup_finish(b) : r;
    };
    Db from = Db::stock(path("stock.db")), through(path()), to = Db::stock(path("out.db"));
    MUST(from, fill("t", 10, 200));
    const std::string sum = from.text("SELECT sum(a)||count(b) FROM t");
    EXPECT_EQ(copy(from, through), SQLITE_OK);
    EXPECT_EQ(through.text("SELECT sum(a)||count(b) FROM t"), sum);
    EXPECT_EQ(through.text("PRAGMA integrity_check"), "ok");
    EXPECT_EQ(copy(through, to), SQLITE_OK);
    EXPECT_EQ(to.text("SELECT sum(a)||count(b) FROM t"), sum);
    EXPECT_EQ(to.text("PRAGMA integrity_check"), "ok");
}

TEST_F(SqliteVfs, TemporaryTablesAreLeftToSqlite)
{
    for (const char *store : {"default", "file", "memory"}) {
        Db db(path());
        MUST(db, std::string("PRAGMA temp_store=") + store +
                     "; PRAGMA temp.cache_size=5; CREATE TEMP TABLE x(a, b);" + fill("x", 1, 500));
        EXPECT_EQ(db.number("SELECT count(DISTINCT b) FROM x"), 500);
        EXPECT_EQ(db.number("SELECT sum(a) FROM (SELECT a FROM x ORDER BY b)"), 125250);
        EXPECT_EQ(names(), "a.db");
    }
    Db nameless("");
    MUST(nameless, "PRAGMA cache_size=5; CREATE TABLE x(a, b);" + fill("x", 1, 500));
    EXPECT_EQ(nameless.text("PRAGMA integrity_check"), "ok");
}

TEST_F(SqliteVfs, WithoutLocksSQLitesOwnVfsWrites)
{
    make();
    Db db(path(), "nolock=1");
    MUST(db, "PRAGMA cache_size=5; BEGIN; " + fill("t", 10, 300) + "; COMMIT");
    EXPECT_EQ(db.text("SELECT count(*) FROM t"), "294");
    MUST(db, "BEGIN; " + fill("t", 1000, 1300) + "; ROLLBACK");
    EXPECT_EQ(db.text("SELECT count(*) FROM t"), "294");
    MUST(db, "DELETE FROM t WHERE a>3; VACUUM");
    EXPECT_EQ(db.text("PRAGMA integrity_check"), "ok");
    EXPECT_EQ(db.close(), SQLITE_OK);
    EXPECT_EQ(stock_sum(path()), "6");
}

TEST_F(SqliteVfs, ConnectionWorksInAnotherThread)
{
    make();
    Db db(path());
    MUST(db, "PRAGMA cache_size=5; BEGIN; " + fill("t", 10, 100));
    int in_thread = -1;
    std::thread([&] {
        in_thread = db.run(fill("t", 200, 300) + "; SAVEPOINT s;" + fill("t", 400, 500));
    }).join();
    ASSERT_EQ(in_thread, SQLITE_OK);
    MUST(db, "ROLLBACK TO s; UPDATE t SET b=a WHERE a<50");
    std::thread([&] { in_thread = db.run("COMMIT"); }).join();
    ASSERT_EQ(in_thread, SQLITE_OK);
    EXPECT_EQ(db.text("SELECT count(*) FROM t"), "195");
    std::thread([&] { in_thread = db.run("BEGIN; " + fill("t", 1000, 1300)); }).join();
    MUST(db, "ROLLBACK");
    EXPECT_EQ(db.text("SELECT count(*) FROM t"), "195");
    EXPECT_EQ(db.text("PRAGMA integrity_check"), "ok");
    std::thread([&] { in_thread = db.close(); }).join();
    EXPECT_EQ(in_thread, SQLITE_OK);
    EXPECT_EQ(left(), 0u);
}

TEST_F(SqliteVfs, ThirtyThreadsOpenWriteAndClose)
{
    make();
    std::vector<std::thread> all;
    std::vector<std::string> wrong(30);
    for (unsigned n = 0; n < wrong.size(); n++)
        all.emplace_back([&, n] {
            auto check = [&](const Db &db, int r) {
                if (r != SQLITE_OK && wrong[n].empty())
                    wrong[n] = db.error();
            };
            for (unsigned i = 0; i < 8; i++) {
                Db db(path());
                check(db, db.opened);
                sqlite3_busy_timeout(db.handle, 60000);
                check(db, db.run("BEGIN IMMEDIATE; INSERT INTO t(b) VALUES('" + std::to_string(n) +
                                 "-" + std::to_string(i) + "'); COMMIT"));
                check(db, db.run("SELECT count(b) FROM t"));
                if (i % 4 == n % 4)
                    check(db, db.run("BEGIN IMMEDIATE; DELETE FROM t WHERE b='gone'; ROLLBACK"));
            }
        });
    for (std::thread &t : all)
        t.join();
    for (const std::string &w : wrong)
        EXPECT_EQ(w, "");
    EXPECT_EQ(left(), 0u);
    const Db db = Db::stock(path());
    EXPECT_EQ(db.number("SELECT count(DISTINCT b) FROM t"), 3 + 30 * 8);
    EXPECT_EQ(db.text("PRAGMA integrity_check"), "ok");
}

/* ---- read-only ---- */

TEST_F(SqliteVfs, ReadOnlyConnectionSeesWhatAnotherWrites)
{
    make();
    Db reader(path(), "mode=ro", SQLITE_OPEN_READONLY), writer(path());
    EXPECT_EQ(reader.number("SELECT sum(a) FROM t"), 6);
    EXPECT_EQ(reader.run("INSERT INTO t VALUES(9, 9)"), SQLITE_READONLY);
    MUST(writer, fill("t", 10, 300));
    EXPECT_EQ(reader.number("SELECT count(*) FROM t"), 294);
    writer.close();
    EXPECT_EQ(reader.number("SELECT count(*) FROM t"), 294);
    EXPECT_EQ(reader.text("PRAGMA integrity_check"), "ok");
}

TEST_F(SqliteVfs, ReadOnlyOpenAfterAKillReadsOrReturnsReadonly)
{
    make();
    ASSERT_EQ(other.open(path()), SQLITE_OK);
    ASSERT_EQ(other.run("INSERT INTO t VALUES(10, 10); PRAGMA cache_size=5; BEGIN; " +
                        fill("t", 20, 300)),
              SQLITE_OK);
    other.kill();
    Db reader(path(), "mode=ro", SQLITE_OPEN_READONLY);
    if (reader.opened == SQLITE_OK)
        EXPECT_EQ(reader.number("SELECT sum(a) FROM t"), 16) << reader.error();
    else
        EXPECT_EQ(reader.opened & 0xff, SQLITE_READONLY) << reader.error();
    reader.close();
    Db db(path());
    EXPECT_EQ(db.number("SELECT sum(a) FROM t"), 16);
}

/* Writes without a lock, as a checkpoint does. The VFS below may read errno after its own errors. */
TEST_F(SqliteVfs, CallsThatSucceedLeaveErrno)
{
    Db db(path());
    MUST(db, "CREATE TABLE t(a, b); " + fill("t", 10, 2000));
    sqlite3_file *file = nullptr;
    ASSERT_EQ(sqlite3_file_control(db.handle, "main", SQLITE_FCNTL_FILE_POINTER, &file), SQLITE_OK);
    sqlite3_int64 size = 0;
    const std::string page(4096, 'x');
    errno = EXFULL;
    EXPECT_EQ(file->pMethods->xFileSize(file, &size), SQLITE_OK);
    for (int i = 0; i < 3; i++) {
        EXPECT_EQ(file->pMethods->xWrite(file, page.data(), 4096, size + i * 4096), SQLITE_OK);
        EXPECT_EQ(errno, EXFULL);
    }
    EXPECT_EQ(file->pMethods->xTruncate(file, size), SQLITE_OK);
    EXPECT_EQ(errno, EXFULL);
}

/* As libproj does, to add to some methods. */
TEST_F(SqliteVfs, AVfsAboveMayReplaceTheMethodsByACopy)
{
    static sqlite3_vfs above;
    static sqlite3_io_methods copy;
    above = *sqlite3_vfs_find("ato");
    above.zName = "above";
    above.xOpen = [](sqlite3_vfs *, const char *name, sqlite3_file *file, int flags, int *opened) {
        sqlite3_vfs *ato = sqlite3_vfs_find("ato");
        const int r = ato->xOpen(ato, name, file, flags, opened);
        if (r == SQLITE_OK && flags & SQLITE_OPEN_MAIN_DB) {
            copy = *file->pMethods;
            file->pMethods = &copy;
        }
        return r;
    };
    ASSERT_EQ(sqlite3_vfs_register(&above, 0), SQLITE_OK);
    {
        Db db(path(), "vfs=above");
        MUST(db, "CREATE TABLE t(a, b); " + fill("t", 10, 300) + "; UPDATE t SET b=a");
        EXPECT_EQ(db.number("SELECT sum(b) FROM t"), 45105);
        EXPECT_EQ(db.close(), SQLITE_OK);
    }
    EXPECT_EQ(stock_sum(path()), "45105");
    ASSERT_EQ(sqlite3_vfs_unregister(&above), SQLITE_OK);
}

TEST_F(SqliteVfs, VacuumIntoWorks)
{
    make();
    Db db(path());
    MUST(db, fill("t", 10, 300) + "; VACUUM INTO '" + uri(path("b.db")) +
                 "'; VACUUM INTO 'file:" + path("c.db") + "?vfs=unix'");
    for (const char *name : {"b.db", "c.db"}) {
        const Db copy = Db::stock(path(name));
        EXPECT_EQ(copy.number("SELECT count(*) FROM t"), 294) << name;
        EXPECT_EQ(copy.text("PRAGMA integrity_check"), "ok") << name;
    }
}

} // namespace sql
