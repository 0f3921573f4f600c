/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Each call below libato fails while SQLite commits, at each of its places: once, at its first turn by each error and at its second by
 * one, and with all later calls of its kind; or every second of these, if half of all work is to be done. The statement either has its effect, or SQLite rolls it back and the database is exactly
 * as it was: for this connection, and for SQLite's own VFS after the close.
 *
 * The databases have more pages than fit in a lane of the manifest, so that some of these commits need a journal.
 */
#include "lab.h"

#include "model/rig.h"
#include "support/child.h"
#include "support/injector.h"
#include "support/mapped.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <sys/mman.h>

namespace sql
{

namespace injector = support::injector;

struct Statement {
    const char *name;
    const char *kind;   /* PRAGMAs of a new database */
    const char *before; /* run without faults, by the connection that is tested */
    const char *run;
    bool is_first =
        false; /* the first one that writes: it makes the reflection, and begins to share in memory */
};

void PrintTo(const Statement &s, std::ostream *out)
{
    *out << s.name;
}

static const Statement statements[] = {
    {"Vacuum", "", "DELETE FROM t WHERE a<=200", "VACUUM"},
    {"VacuumIntoLargerPages", "", "PRAGMA page_size=8192", "VACUUM"},
    {"AutoVacuum", "PRAGMA auto_vacuum=full", "",
     "BEGIN; UPDATE t SET b=a; DELETE FROM t WHERE a>900; COMMIT"},
    {"IncrementalVacuum", "PRAGMA auto_vacuum=incremental", "DELETE FROM t WHERE a>900",
     "BEGIN; UPDATE t SET b=a; PRAGMA incremental_vacuum; COMMIT"},
    {"Spill", "", "PRAGMA cache_size=5",
     "BEGIN; UPDATE t SET b=a; INSERT INTO t SELECT a+9000,b,c FROM t WHERE a<400; COMMIT"},
    {"SpillAndRollback", "", "PRAGMA cache_size=5",
     "BEGIN; UPDATE t SET b=a; INSERT INTO t SELECT a+9000,b,c FROM t WHERE a<400; ROLLBACK"},
    {"ShorterThenLonger", "PRAGMA auto_vacuum=full", "PRAGMA cache_size=5",
     "BEGIN; DELETE FROM t WHERE a>200; INSERT INTO t SELECT a+9000,a,zeroblob(4000) FROM t; "
     "COMMIT"},
    {"SynchronousOff", "PRAGMA auto_vacuum=full", "PRAGMA cache_size=5; PRAGMA synchronous=OFF",
     "BEGIN; UPDATE t SET b=a; DELETE FROM t WHERE a>900; COMMIT"},
    {"OneRow", "", "", "UPDATE t SET b=a WHERE a=7"},
    {"First", "", "", "UPDATE t SET b=a WHERE a=7", true},
    {"FirstThatSpills", "PRAGMA auto_vacuum=full", "PRAGMA cache_size=5",
     "BEGIN; DELETE FROM t WHERE a>200; INSERT INTO t SELECT a+9000,a,zeroblob(4000) FROM t; "
     "COMMIT",
     true},
    {"TwoDatabases", "PRAGMA auto_vacuum=full", "ATTACH 'file:b.db?vfs=ato' AS two",
     "BEGIN; DELETE FROM t WHERE a>500; DELETE FROM two.t WHERE a>500; COMMIT"},
    /* What has spilled goes below the VFS, and makes the file longer. */
    {"TwoDatabasesThatSpill", "", "ATTACH 'file:b.db?vfs=ato' AS two; PRAGMA cache_size=5",
     "BEGIN; INSERT INTO t SELECT a+9000,b,c FROM t WHERE a<=100; UPDATE two.t SET b=a WHERE a=7; "
     "COMMIT"},
    /* The database is in memory, and gets longer. */
    {"Checkpoint", "",
     "UPDATE t SET b=-b WHERE a=7; PRAGMA journal_mode=wal; PRAGMA wal_autocheckpoint=0;"
     "INSERT INTO t SELECT a+9000,b,c FROM t WHERE a<=100",
     "PRAGMA wal_checkpoint"},
};

/* What a world tells. */
struct Told {
    size_t ncalls;
    injector::Call calls[4000];
    bool failed;
    char effect[200]; /* the content after the statement; stays */
    char wrong[2000];
};

class Commit : public testing::TestWithParam<Statement>
{
  protected:
    support::TempDir templates; /* the databases as SQLite's own VFS makes them */
    Told *told = nullptr;
    unsigned worlds = 0;

    void SetUp() override
    {
        told = static_cast<Told *>(
            mmap(nullptr, sizeof(Told), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
        /* In a child: this process has no database open when it forks. */
        ASSERT_EQ(
            support::in_child([&] {
                for (const char *name : {"a.db", "b.db"}) {
                    const Db db = Db::stock(templates / name);
                    if (db.run(std::string(GetParam().kind) +
                               "; CREATE TABLE t(a INTEGER PRIMARY KEY, b, c);"
                               "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n "
                               "WHERE i<1000) INSERT INTO t SELECT i, -i, zeroblob(1500) FROM n"))
                        return 1;
                }
                return 0;
            }),
            0);
    }
    void TearDown() override
    {
        munmap(told, sizeof(Told));
    }

    static std::string content(const Db &db)
    {
        const std::string all =
            "(SELECT count(*)||' '||sum(a)||' '||sum(b)||' '||sum(length(c)) FROM ";
        const bool two =
            db.text("SELECT count(*) FROM pragma_database_list WHERE name='two'") == "1";
        return db.text("SELECT " + all + "t)" + (two ? "||', '||" + all + "two.t)" : ""));
    }

    /* Returns what is wrong. */
    static std::string look(const Db &db, const std::string &as, const std::string &or_as = "")
    {
        const std::string sound = db.text("PRAGMA integrity_check"), is = content(db);
        if (sound != "ok")
            return sound;
        return is == as || is == or_as ? "" : is + " instead of " + as;
    }

    /* Returns whether it is the look at the length of the log that follows the sync of a commit. */
    static bool looks_at_log(const injector::Fault &fault)
    {
        const char *domain = getenv("ATO_DURABILITY");
        return domain && !strcmp(domain, "disk") && !strcmp(fault.call.name, "statx");
    }

    /* In a process of its own. */
    std::string play(const injector::Fault *fault)
    {
        const Statement &s = GetParam();
        Db db("a.db");
        if (db.run(std::string(s.before) + (s.is_first ? "" : "; PRAGMA user_version=1")))
            return "cannot begin: " + db.error();
        const std::string before = content(db);
        injector::begin(fault);
        const int r = db.run(s.run);
        const std::string error = db.error();
        if (r != SQLITE_OK && !sqlite3_get_autocommit(db.handle))
            (void)db.run("ROLLBACK");
        const injector::Heard heard = injector::end();
        told->failed = heard.failed;
        for (const injector::Call &call : heard.calls)
            if (told->ncalls < sizeof(told->calls) / sizeof(*told->calls))
                told->calls[told->ncalls++] = call;
        std::string after = content(db);
        /* The medium failed: libato cannot tell what it has, until the file is mapped anew; which the end of the transaction may have
         * done. */
        const bool doubt = after.find("error: ") == 0,
                   sync = fault && (strstr(fault->call.name, "sync") || looks_at_log(*fault));
        /* It is committed, but a lock could not be given back: SQLite's own VFS tells the same. */
        const bool unlock = error.find(std::to_string(SQLITE_IOERR_RDLOCK)) != std::string::npos ||
                            error.find(std::to_string(SQLITE_IOERR_UNLOCK)) != std::string::npos;
        std::string wrong =
            doubt || r == SQLITE_OK ? "" : look(db, before, sync || unlock ? told->effect : before);
        if (wrong.empty() && !doubt && r != SQLITE_OK && db.run(s.run) == SQLITE_OK)
            after = content(db);
        if (wrong.empty() && db.close() != SQLITE_OK)
            wrong = "cannot be closed";
        if (wrong.empty() && !doubt && !fault)
            strncpy(told->effect, after.c_str(), sizeof(told->effect) - 1);
        if (wrong.empty())
            wrong = after_close(doubt ? before : after, doubt ? told->effect : after);
        return wrong.empty() ? "" : "'" + error + "': " + wrong;
    }

    /* By SQLite's own VFS. */
    static std::string after_close(const std::string &as, const std::string &or_as)
    {
        for (const char *name : {"a.db", "b.db"})
            if (Db::stock(name).text("SELECT a FROM t") == "error: file is not a database (26)")
                (void)Db(name).text(
                    "SELECT a FROM t"); /* it could not be made plain: as after a kill */
        const Db stock = Db::stock("a.db");
        if (as.find(',') != std::string::npos)
            (void)stock.run("ATTACH 'b.db' AS two");
        const std::string wrong = look(stock, as, or_as);
        return wrong.empty() ? "" : "stock: " + wrong;
    }

    void one(const injector::Fault *fault, const std::string &what)
    {
        const support::TempDir folder;
        for (const char *name : {"a.db", "b.db"})
            support::write_file(folder / name, support::read_file(templates / name));
        told->ncalls = 0;
        told->failed = false;
        told->wrong[0] = '\0';
        worlds++;
        const int status = support::in_child([&] {
            alarm(60);
            if (chdir(folder.path().c_str()) != 0)
                return 1;
            const std::string wrong = play(fault);
            strncpy(told->wrong, wrong.c_str(), sizeof(told->wrong) - 1);
            return 0;
        });
        EXPECT_EQ(status, 0) << what;
        EXPECT_STREQ(told->wrong, "") << what;
    }

    void fail(const injector::Fault &fault)
    {
        const injector::Call &call = fault.call;
        one(&fault, std::string(call.name) + ", turn " + std::to_string(call.turn) + ", " +
                        strerrorname_np(fault.error) +
                        (fault.reach == injector::KIND ? ", and all after it; " : "; ") +
                        rig::replay());
        /* The file is looked at every 10 ms. */
        EXPECT_TRUE(told->failed || strstr(call.name, "stat")) << call.name;
    }
};

TEST_P(Commit, HasItsEffectOrNoneIfACallFails)
{
    one(nullptr, "no fault");
    const std::vector<injector::Call> calls(told->calls, told->calls + told->ncalls);
    ASSERT_FALSE(calls.empty());
    /* SQLite's cache is smaller than some of these transactions: they make the file longer in few steps, each of which costs syncs. */
    EXPECT_LE(std::count_if(calls.begin(), calls.end(),
                            [](const auto &call) { return !strcmp(call.name, "fsync"); }),
              24);
    std::vector<injector::Fault> faults;
    for (const injector::Call &call : calls)
        for (const int *error = call.errors; *error && call.turn < 2; error++) {
            const bool first = error == call.errors;
            if (first || call.turn == 0)
                faults.push_back({call, *error, injector::ONCE});
            if (first && call.turn == 0)
                faults.push_back({call, *error, injector::KIND});
        }
    for (size_t i = rig::first_step(rig::stride()); i < faults.size(); i += rig::stride())
        fail(faults[i]);
    std::cout << worlds << " worlds\n";
}

INSTANTIATE_TEST_SUITE_P(, Commit, testing::ValuesIn(statements),
                         [](const auto &of) { return std::string(of.param.name); });

/* A first page that is no header ends the guard. If it cannot be staged the database stays masked, and gets the guard back: after a kill
 * the file is made plain by that alone. */
TEST_F(Lab, AFirstPageThatCannotBeStagedLeavesTheGuard)
{
    const std::string noise(4096, '\7');
    auto *told = static_cast<Told *>(
        mmap(nullptr, sizeof(Told), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    ASSERT_NE(told, MAP_FAILED);
    const auto kill_within = [&](const std::function<void(const Db &)> &what) {
        ASSERT_EQ(support::in_child([&] {
                      what(Db(path()));
                      return support::CUT;
                  }),
                  support::CUT);
    };
    const auto write = [&](const Db &db, const injector::Fault *fault) {
        sqlite3_file *file = nullptr;
        sqlite3_file_control(db.handle, "main", SQLITE_FCNTL_FILE_POINTER, &file);
        const sqlite3_io_methods *m = file->pMethods;
        for (const int level : {SQLITE_LOCK_SHARED, SQLITE_LOCK_RESERVED, SQLITE_LOCK_EXCLUSIVE})
            (void)m->xLock(file, level);
        injector::begin(fault);
        (void)m->xWrite(file, noise.data(), 4096, 0);
        const injector::Heard heard = injector::end();
        (void)m->xUnlock(file, SQLITE_LOCK_NONE);
        if (fault)
            _exit(support::CUT);
        told->ncalls = heard.calls.size();
        std::copy(heard.calls.begin(), heard.calls.end(), told->calls);
    };
    make();
    kill_within([&](const Db &db) {
        db.run("UPDATE t SET b=a");
        _exit(support::CUT);
    });
    kill_within([&](const Db &db) { write(db, nullptr); });
    ASSERT_GT(told->ncalls, 0u);
    for (size_t i = 0; i < told->ncalls; i++) {
        const injector::Fault fault = {told->calls[i], *told->calls[i].errors, injector::ONCE};
        SCOPED_TRACE(fault.call.name);
        kill_within([&](const Db &db) {
            db.run("UPDATE t SET b=a+1");
            _exit(support::CUT);
        });
        kill_within([&](const Db &db) { write(db, &fault); });
        {
            support::Mapped by_libato(path());
            ASSERT_TRUE(by_libato) << by_libato.sentence;
            ASSERT_EQ(by_libato.unmap(ATO_UNMAP_SPATIAL), 0) << by_libato.sentence;
        }
        EXPECT_EQ(stock_sum(path()), "6");
    }
    munmap(told, sizeof(Told));
}

} // namespace sql
