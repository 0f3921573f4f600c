/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Do locks and transactions mean the same as with SQLite's own VFS in WAL mode? Two or three connections make random calls on a database
 * through the VFS `ato`, and as many connections make the same calls on another one through SQLite's own. Each call must have the
 * same result in both: its code, and the rows that it read.
 *
 * Nothing waits: a lock that is taken is SQLITE_BUSY in both.
 */
#include "lab.h"

#include "model/rig.h"

#include <algorithm>
#include <memory>

namespace sql
{

namespace
{

/* ---- a cursor that stays open ---- */

/* A statement that was not stepped to its end holds SHARED, also after COMMIT. SQL functions step it, so that it works in other
 * processes, too:
 *
 *   scan()       steps through the rows of t, one a call; returns the code and the row
 *   end_scan()   ends it; returns the code */

void end_scan(sqlite3_context *c, int, sqlite3_value **)
{
    auto **open = static_cast<sqlite3_stmt **>(sqlite3_user_data(c));
    sqlite3_result_int(c, sqlite3_finalize(*open));
    *open = nullptr;
}

void scan(sqlite3_context *c, int, sqlite3_value **)
{
    auto **open = static_cast<sqlite3_stmt **>(sqlite3_user_data(c));
    int r = *open ? SQLITE_OK
                  : sqlite3_prepare_v2(sqlite3_context_db_handle(c), "SELECT v FROM t", -1, open,
                                       nullptr);
    r = r == SQLITE_OK ? sqlite3_step(*open) : r;
    std::string said = std::to_string(r & 0xff);
    if (r == SQLITE_ROW) {
        said += ": " + std::to_string(sqlite3_column_int(*open, 0));
    } else {
        sqlite3_finalize(*open);
        *open = nullptr;
    }
    sqlite3_result_text(c, said.c_str(), -1, SQLITE_TRANSIENT);
}

void forget(void *open)
{
    delete static_cast<sqlite3_stmt **>(open);
}

int add_functions(sqlite3 *db, char **, const void *)
{
    auto *open = new sqlite3_stmt *(nullptr);
    sqlite3_create_function(db, "end_scan", 0, SQLITE_UTF8, open, end_scan, nullptr, nullptr);
    return sqlite3_create_function_v2(db, "scan", 0, SQLITE_UTF8, open, scan, nullptr, nullptr,
                                      forget);
}

/* ---- calls ---- */

struct Action {
    const char *call; /* ? is a new value */
    unsigned weight;
};

const char *const LOOK = "SELECT group_concat(v)||' '||(SELECT sum(v) FROM wide) FROM t";
const char *const CLOSE = "close";
const char *const KILL = "kill";
const char *const OPENED = "0, 0, 0"; /* what both return then */

const Action actions[] = {
    {"BEGIN", 14},
    {"BEGIN IMMEDIATE", 8},
    {"BEGIN EXCLUSIVE", 5},
    {LOOK, 22},
    {"SELECT scan()", 12},
    {"SELECT end_scan()", 12},
    {"UPDATE t SET v=? WHERE id=2", 20},
    /* More pages than the cache holds: it takes EXCLUSIVE before COMMIT, if it can. */
    {"UPDATE wide SET v=?", 8},
    {"COMMIT", 26},
    {"ROLLBACK", 10},
    {CLOSE, 2},
};

/* ---- connections ---- */

/* A connection in this process or in one of its own. */
class Connection
{
  public:
    Connection(const std::string &file, bool by_ato, bool is_apart)
        : path(file), ato(by_ato), apart(is_apart)
    {
    }
    /* Its process would not end by itself while processes that were forked later have its end of the socket, too. */
    ~Connection()
    {
        if (remote)
            remote->kill();
    }
    /* Returns OPENED if all went well. SQLite reads the schema before it sets the size of the cache: where that is SQLITE_BUSY,
     * the cache has its usual size. */
    std::string open()
    {
        if (apart && !remote)
            remote = std::make_unique<Remote>();
        /* A close that makes the file plain waits until nobody writes. */
        const std::string parameters = "lock_wait_ms=0&unmap=fast";
        int opened;
        if (remote) {
            opened = ato ? remote->open(path, parameters) : remote->open_stock(path);
        } else {
            db = ato ? Db(path, parameters) : Db::stock(path);
            opened = db.opened;
        }
        return std::to_string(opened) + ", " + call("PRAGMA busy_timeout=0") + ", " +
               call("PRAGMA cache_size=10");
    }
    /* Returns the rows, or the code. */
    std::string call(const std::string &statement)
    {
        if (statement == CLOSE || statement == KILL)
            return leave(statement == KILL);
        if (statement.rfind("SELECT", 0) != 0)
            return std::to_string((remote ? remote->run(statement) : db.run(statement)) & 0xff);
        const std::string said = remote ? remote->text(statement) : db.text(statement);
        if (said.rfind("error: ", 0) != 0)
            return said;
        const int code = std::atoi(said.substr(said.rfind('(') + 1).c_str());
        return "error " + std::to_string(code & 0xff);
    }

  private:
    /* Closes it, or kills its process; then opens it again. */
    std::string leave(bool killed)
    {
        if (killed) {
            remote->kill();
            remote.reset();
        } else {
            (void)call("SELECT end_scan()");
            const int r = remote ? remote->close() : db.close();
            if (r != SQLITE_OK)
                return "cannot close: " + std::to_string(r);
        }
        return open();
    }

    std::string path;
    bool ato, apart;
    Db db;
    std::unique_ptr<Remote> remote;
};

} // namespace

class SqliteLockStates : public testing::Test
{
  protected:
    void SetUp() override
    {
        start();
        ASSERT_EQ(sqlite3_auto_extension(reinterpret_cast<void (*)()>(add_functions)), SQLITE_OK);
    }
    void TearDown() override
    {
        sqlite3_reset_auto_extension();
    }
    void make(const std::string &path) const
    {
        const Db db = Db::stock(path);
        MUST(db, "CREATE TABLE t(id INTEGER PRIMARY KEY, v);"
                 "INSERT INTO t VALUES(1, 0), (2, 0), (3, 0), (4, 0);"
                 "CREATE TABLE wide(v, body);"
                 "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<60)"
                 " INSERT INTO wide SELECT 0, zeroblob(1500) FROM n");
    }
    /* Opens `count` connections to each of two new databases, and makes the same calls in both. */
    void compare(unsigned count, bool apart, bool kills, unsigned calls)
    {
        const support::TempDir folder;
        std::vector<std::unique_ptr<Connection>> ato, stock;
        for (const char *name : {"ato.db", "stock.db"})
            ASSERT_NO_FATAL_FAILURE(make(folder / name));
        MUST(Db::stock(folder / "stock.db"), "PRAGMA journal_mode=wal");
        for (unsigned i = 0; i < count; i++) {
            ato.push_back(std::make_unique<Connection>(folder / "ato.db", true, apart));
            stock.push_back(std::make_unique<Connection>(folder / "stock.db", false, apart));
        }
        for (unsigned i = 0; i < count; i++) {
            ASSERT_EQ(ato[i]->open(), OPENED);
            ASSERT_EQ(stock[i]->open(), OPENED);
        }
        /* The first transaction that writes maps the database, and waits for those who read the file itself. */
        for (const auto &which : {&ato, &stock})
            ASSERT_EQ((*which)[0]->call("UPDATE t SET v=1 WHERE id=2"), "0");
        std::string history;
        auto both = [&](unsigned i, const std::string &statement, std::string *result = nullptr) {
            const std::string is = ato[i]->call(statement);
            const std::string wanted = stock[i]->call(statement);
            history += std::to_string(i) + ": " + statement + ": " + is + "\n";
            busy += wanted == "5" || wanted == "error 5";
            commits += statement == "COMMIT" && wanted == "0";
            if (result)
                *result = wanted;
            ASSERT_EQ(is, wanted) << "connection " << i << ", " << statement
                                  << "\nthe calls before:\n"
                                  << history.substr(history.size() -
                                                    std::min<size_t>(history.size(), 4000));
        };
        unsigned last = 0; /* the connection that made the last call */
        bool changed = false;
        for (unsigned n = 1; n <= calls; n++) {
            /* One that has just changed something may hold any lock, and SQLite's own VFS a journal. */
            const bool dies = kills && random.chance(changed ? 20 : 2);
            if (!changed || !dies)
                last = static_cast<unsigned>(random.below(count));
            std::string statement = dies ? KILL : random.weighted(actions).call;
            if (statement.find('?') != std::string::npos)
                statement.replace(statement.find('?'), 1, std::to_string(n));
            std::string result;
            ASSERT_NO_FATAL_FAILURE(both(last, statement, &result));
            changed = statement.rfind("UPDATE", 0) == 0 && result == "0";
        }
        for (unsigned i = 0; i < count; i++)
            ASSERT_NO_FATAL_FAILURE(both(i, CLOSE));
        for (const char *statement : {LOOK, "SELECT integrity_check FROM pragma_integrity_check"})
            for (unsigned i = 0; i < count; i++)
                ASSERT_NO_FATAL_FAILURE(both(i, statement));
    }
    void compare_often(bool apart, bool kills, unsigned times, unsigned calls)
    {
        SCOPED_TRACE(rig::replay());
        for (unsigned i = 0; i < rig::rounds(times) && !HasFailure(); i++)
            compare(2 + i % 2, apart, kills, calls);
        EXPECT_GT(busy, 0u);
        EXPECT_GT(commits, 0u);
        std::printf("%u times SQLITE_BUSY, %u commits\n", busy, commits);
    }

    rig::Random random{rig::seed()};
    unsigned busy = 0, commits = 0;
};

TEST_F(SqliteLockStates, AreThoseOfSqliteInOneProcess)
{
    compare_often(false, false, 30, 600);
}

TEST_F(SqliteLockStates, AreThoseOfSqliteInSeveralProcesses)
{
    compare_often(true, false, 8, 500);
}

/* A process is killed with some lock, in a transaction or not. With SQLite's own VFS it may leave a journal that the next one
 * plays back. */
TEST_F(SqliteLockStates, AreThoseOfSqliteAfterKills)
{
    compare_often(true, true, 8, 400);
}

} // namespace sql
