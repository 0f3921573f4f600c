/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How do connections wait for a lock? Writers wait in a queue, in which each gets its turn, also when others in it are killed. A
 * connection waits as long as lock_wait_ms or its busy_timeout allows, and not at all where waiting could not end.
 *
 * No assertion is about speed. Times that a test waits for something are long enough for a machine with much else to do.
 */
#include "lab.h"

#include "support/child.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <memory>
#include <sys/mman.h>
#include <thread>

namespace sql
{

using std::chrono::milliseconds;
using std::chrono::seconds;
using clock = std::chrono::steady_clock;

/* ---- writers ---- */

enum { WRITERS = 4, MOST = 16 };

/* What the processes of a test know of one another. */
struct Tally {
    std::atomic<long> begun[MOST], acknowledged[MOST]; /* transactions of each writer */
    std::atomic<long> reads;
    std::atomic<bool> stop;
    std::atomic<int> failures;
    char error[200]; /* of the first failure */

    void fail(const Db &db)
    {
        if (failures++ == 0)
            std::snprintf(error, sizeof(error), "%s", db.error().c_str());
    }
};

/* Adds one to the row of all writers and to that of this one, until it is stopped. */
static void write_until_stopped(const Db &db, int writer, Tally &tally)
{
    const std::string transaction = "BEGIN IMMEDIATE;"
                                    "UPDATE counter SET n=n+1 WHERE id=0;"
                                    "UPDATE counter SET n=n+1 WHERE id=" +
                                    std::to_string(writer) + "; COMMIT";
    while (!tally.stop) {
        tally.begun[writer]++;
        if (db.run(transaction) == SQLITE_OK) {
            tally.acknowledged[writer]++;
        } else {
            tally.fail(db);
            (void)db.run("ROLLBACK");
        }
    }
}

class SqliteQueue : public Lab
{
  protected:
    using Peers = std::vector<std::unique_ptr<support::Peer>>;

    void SetUp() override
    {
        Lab::SetUp();
        tally = static_cast<Tally *>(mmap(nullptr, sizeof(Tally), PROT_READ | PROT_WRITE,
                                          MAP_SHARED | MAP_ANONYMOUS, -1, 0));
        ASSERT_NE(tally, MAP_FAILED);
        make();
        const Db db = Db::stock(path());
        MUST(db, "CREATE TABLE counter(id INTEGER PRIMARY KEY, n);"
                 "WITH RECURSIVE i(id) AS (SELECT 0 UNION ALL SELECT id+1 FROM i WHERE id<15)"
                 " INSERT INTO counter SELECT id, 0 FROM i");
    }
    void TearDown() override
    {
        munmap(tally, sizeof(Tally));
    }
    /* A process that opens the database, says so, and when told to go on, works. Each of them begins to use SQLite after the
     * fork: this process has no database open. */
    std::unique_ptr<support::Peer> peer(const std::string &parameters, const std::string &first,
                                        const std::function<void(const Db &)> &work)
    {
        const std::string file = path();
        return std::make_unique<support::Peer>([=](const std::function<void()> &report) {
            const Db db(file, parameters);
            if (db.opened != SQLITE_OK || db.run(first) != SQLITE_OK)
                return 1;
            report();
            work(db);
            return 0;
        });
    }
    std::unique_ptr<support::Peer> writer(int i)
    {
        return peer("", "PRAGMA busy_timeout=5000",
                    [=](const Db &db) { write_until_stopped(db, i, *tally); });
    }
    static void start(const Peers &peers)
    {
        for (const auto &p : peers)
            EXPECT_TRUE(p->is_ready());
        for (const auto &p : peers)
            p->go_on();
    }
    void stop(const Peers &peers)
    {
        tally->stop = true;
        for (const auto &p : peers)
            EXPECT_EQ(p->end(), 0);
    }
    long slowest(int first, int end) const
    {
        return *std::min_element(tally->acknowledged + first, tally->acknowledged + end);
    }
    long fastest(int first, int end) const
    {
        return *std::max_element(tally->acknowledged + first, tally->acknowledged + end);
    }
    /* Each acknowledged transaction is there, and none partly. One that a kill interrupted may be there. */
    void expect_all_there()
    {
        EXPECT_EQ(tally->failures, 0) << tally->error;
        ASSERT_EQ(other.open(path()), SQLITE_OK) << other.error();
        EXPECT_EQ(other.text("PRAGMA integrity_check"), "ok");
        EXPECT_EQ(other.text("SELECT (SELECT sum(n) FROM counter WHERE id>0) -"
                             " (SELECT n FROM counter WHERE id=0)"),
                  "0");
        for (int i = 1; i < MOST; i++) {
            const long found = std::atol(
                other.text("SELECT n FROM counter WHERE id=" + std::to_string(i)).c_str());
            EXPECT_GE(found, tally->acknowledged[i]) << "writer " << i;
            EXPECT_LE(found, tally->begun[i]) << "writer " << i;
        }
    }

    Tally *tally = nullptr;
};

/* ---- turns ---- */

class SqliteTurns : public SqliteQueue
{
  protected:
    /* Lets the writers work until one of them has made many transactions. */
    void watch() const
    {
        const auto least = clock::now() + milliseconds(500), most = clock::now() + seconds(20);
        while (clock::now() < least || (fastest(1, 1 + WRITERS) < 200 && clock::now() < most))
            std::this_thread::sleep_for(milliseconds(10));
    }
    void judge()
    {
        expect_all_there();
        EXPECT_GE(static_cast<double>(slowest(1, 1 + WRITERS)),
                  0.3 * static_cast<double>(fastest(1, 1 + WRITERS)))
            << "transactions of the slowest and of the fastest writer: " << slowest(1, 1 + WRITERS)
            << ", " << fastest(1, 1 + WRITERS);
        EXPECT_GT(fastest(1, 1 + WRITERS), 0);
    }
};

TEST_F(SqliteTurns, EachProcessGetsItsTurn)
{
    Peers peers;
    for (int i = 1; i <= WRITERS; i++)
        peers.push_back(writer(i));
    start(peers);
    watch();
    stop(peers);
    judge();
}

TEST_F(SqliteTurns, EachThreadGetsItsTurn)
{
    const std::string file = path();
    Peers peers;
    peers.push_back(peer("", "PRAGMA busy_timeout=5000", [=](const Db &first) {
        std::vector<std::thread> threads;
        for (int i = 2; i <= WRITERS; i++)
            threads.emplace_back([=] {
                const Db db(file);
                sqlite3_busy_timeout(db.handle, 5000);
                write_until_stopped(db, i, *tally);
            });
        write_until_stopped(first, 1, *tally);
        for (std::thread &t : threads)
            t.join();
    }));
    start(peers);
    watch();
    stop(peers);
    judge();
}

/* ---- deaths ---- */

/* While the writers work, one that waits and one that has the lock are killed, again and again. The others go on, and none of them
 * gets SQLITE_BUSY. */
TEST_F(SqliteQueue, TheDeadLeaveTheQueueAndTheirLocks)
{
    Peers writers;
    for (int i = 1; i <= WRITERS; i++)
        writers.push_back(writer(i));
    start(writers);
    for (int round = 0; round < 6 && !HasFailure(); round++) {
        const int waiting = 1 + WRITERS + round;
        Peers dying;
        dying.push_back(writer(waiting));
        dying.push_back(peer("",
                             std::string("PRAGMA busy_timeout=30000; BEGIN ") +
                                 (round % 2 ? "EXCLUSIVE" : "IMMEDIATE") +
                                 "; UPDATE counter SET n=n+1000000",
                             [](const Db &) {}));
        EXPECT_TRUE(dying[0]->is_ready());
        EXPECT_TRUE(dying[1]->is_ready()) << "it did not get the lock";
        dying[0]->go_on();
        std::this_thread::sleep_for(milliseconds(30)); /* now all writers wait */
        dying[0]->die();
        std::this_thread::sleep_for(milliseconds(10));
        long before[1 + WRITERS];
        for (int i = 1; i <= WRITERS; i++)
            before[i] = tally->acknowledged[i];
        dying[1]->die();
        const auto most = clock::now() + seconds(10);
        for (int i = 1; i <= WRITERS; i++) {
            while (tally->acknowledged[i] == before[i] && clock::now() < most)
                std::this_thread::sleep_for(milliseconds(1));
            EXPECT_GT(tally->acknowledged[i], before[i]) << "writer " << i << " does not go on";
        }
    }
    stop(writers);
    for (int i = 1; i <= WRITERS; i++)
        EXPECT_EQ(tally->begun[i], tally->acknowledged[i]) << "writer " << i;
    expect_all_there();
}

/* A process that waits is stopped, as by a debugger, when its turn comes. It has no lock: the others go on. */
TEST_F(SqliteQueue, TheStoppedHoldNobodyUp)
{
    Peers waiting;
    waiting.push_back(peer("", "PRAGMA busy_timeout=60000", [=](const Db &db) {
        if (db.run("UPDATE counter SET n=n+1 WHERE id<2") != SQLITE_OK)
            tally->fail(db);
    }));
    EXPECT_TRUE(waiting[0]->is_ready());
    {
        Db holder(path()), writer(path(), "lock_wait_ms=5000");
        MUST(holder, "BEGIN IMMEDIATE");
        waiting[0]->go_on();
        std::this_thread::sleep_for(milliseconds(100)); /* now it is its turn */
        waiting[0]->stop();
        MUST(holder, "COMMIT");
        EXPECT_EQ(writer.run("BEGIN IMMEDIATE; COMMIT"), SQLITE_OK) << writer.error();
        EXPECT_EQ(writer.run("BEGIN; SELECT * FROM counter;"
                             "UPDATE counter SET n=n WHERE id=2; COMMIT"),
                  SQLITE_OK)
            << writer.error();
        waiting[0]->resume();
        stop(waiting);
    }
    tally->begun[1] = tally->acknowledged[1] = 1;
    expect_all_there();
}

/* ---- readers that want to write ---- */

/* Waits much longer than any test lasts, unless it is SQLITE_BUSY at once. */
static const char *const PATIENT = "PRAGMA busy_timeout=60000";

template <class C> static void expect_busy_at_once(C &c, const std::string &statement)
{
    const auto start = clock::now();
    EXPECT_EQ(c.run(statement), SQLITE_BUSY) << c.error();
    EXPECT_LT(clock::now() - start, seconds(20)) << "the busy handler was called";
}

/* SQLite calls no busy handler for a connection that has SHARED and wants RESERVED: the one that has RESERVED may wait for it. */
template <class C> static void upgrade_two(C &a, C &b)
{
    for (C *c : {&a, &b}) {
        MUST(*c, PATIENT);
        MUST(*c, "BEGIN; SELECT * FROM t");
    }
    MUST(a, "UPDATE t SET b='A' WHERE a=1");
    expect_busy_at_once(b, "UPDATE t SET b='B' WHERE a=2");
    EXPECT_EQ(b.text("SELECT b FROM t WHERE a=1"), "one");
    MUST(b, "COMMIT");
    MUST(a, "COMMIT");
    MUST(b, "BEGIN IMMEDIATE; UPDATE t SET b='B' WHERE a=2; COMMIT");
    EXPECT_EQ(a.text("SELECT group_concat(b) FROM t"), "A,B,three");
}

/* The same while the first one waits in COMMIT for the second one to end its read. */
template <class C> static void upgrade_while_the_other_one_commits(C &a, C &b)
{
    for (C *c : {&a, &b}) {
        MUST(*c, PATIENT);
        MUST(*c, "BEGIN; SELECT * FROM t");
    }
    MUST(a, "UPDATE t SET b='A' WHERE a=1");
    std::thread commit([&] { EXPECT_EQ(a.run("COMMIT"), SQLITE_OK) << a.error(); });
    std::this_thread::sleep_for(milliseconds(50));
    expect_busy_at_once(b, "UPDATE t SET b='B' WHERE a=2");
    EXPECT_EQ(b.text("SELECT b FROM t WHERE a=1"), "one");
    EXPECT_EQ(b.run("COMMIT"), SQLITE_OK) << b.error();
    commit.join();
    EXPECT_EQ(b.text("SELECT group_concat(b) FROM t"), "A,two,three");
}

TEST_F(SqliteQueue, OfTwoReadersThatWriteOneIsBusyAtOnce)
{
    Remote second;
    ASSERT_EQ(other.open(path()), SQLITE_OK) << other.error();
    ASSERT_EQ(second.open(path()), SQLITE_OK) << second.error();
    upgrade_two(other, second);
}

TEST_F(SqliteQueue, OfTwoReadersThatWriteOneIsBusyAtOnceInOneProcess)
{
    Db a(path()), b(path());
    upgrade_two(a, b);
}

TEST_F(SqliteQueue, AReaderThatAWriterWaitsForIsBusyAtOnceWhenItWrites)
{
    Remote second;
    ASSERT_EQ(other.open(path()), SQLITE_OK) << other.error();
    ASSERT_EQ(second.open(path()), SQLITE_OK) << second.error();
    upgrade_while_the_other_one_commits(other, second);
}

TEST_F(SqliteQueue, AReaderThatAWriterWaitsForIsBusyAtOnceWhenItWritesInOneProcess)
{
    Db a(path()), b(path());
    upgrade_while_the_other_one_commits(a, b);
}

/* ---- lock_wait_ms ---- */

TEST_F(SqliteQueue, LockWaitIsAParameterAndAPragma)
{
    Db db(path());
    EXPECT_EQ(db.text("PRAGMA ato_lock_wait_ms"), "5");
    EXPECT_EQ(db.text("PRAGMA ato_lock_wait_ms=70"), "70");
    EXPECT_EQ(db.text("PRAGMA ato_lock_wait_ms"), "70");
    /* It is the connection's own. */
    EXPECT_EQ(Db(path()).text("PRAGMA ato_lock_wait_ms"), "5");
    for (const char *good : {"0", "9", "3600000"})
        EXPECT_EQ(Db(path(), std::string("lock_wait_ms=") + good).text("PRAGMA ato_lock_wait_ms"),
                  good);
    EXPECT_FALSE(logged("lock_wait_ms is not known"));
}

TEST_F(SqliteQueue, LockWaitIsFromNothingToAnHour)
{
    Db db(path(), "lock_wait_ms=7");
    for (const std::string bad : {"-1", "x", "5x", "", "3600001", "1000000000000"}) {
        (void)logged();
        EXPECT_EQ(Db(path(), "lock_wait_ms=" + bad).opened, SQLITE_CANTOPEN) << bad;
        EXPECT_TRUE(logged("0 to 3600000")) << bad;
        EXPECT_EQ(db.run("PRAGMA ato_lock_wait_ms='" + bad + "'"), SQLITE_ERROR) << bad;
        EXPECT_NE(db.error().find("0 to 3600000"), std::string::npos) << bad << ": " << db.error();
    }
    EXPECT_EQ(db.text("PRAGMA ato_lock_wait_ms"), "7");
}

TEST_F(SqliteQueue, WithoutLockWaitATakenLockIsBusy)
{
    ASSERT_EQ(other.open(path()), SQLITE_OK) << other.error();
    ASSERT_EQ(other.run("BEGIN IMMEDIATE"), SQLITE_OK) << other.error();
    Db none(path(), "lock_wait_ms=0"), usual(path()), neighbour(path(), "lock_wait_ms=0");
    EXPECT_EQ(none.run("BEGIN IMMEDIATE"), SQLITE_BUSY);
    EXPECT_EQ(usual.run("BEGIN IMMEDIATE"), SQLITE_BUSY);
    EXPECT_EQ(other.run("COMMIT"), SQLITE_OK);
    MUST(usual, "BEGIN IMMEDIATE");
    EXPECT_EQ(none.run("BEGIN IMMEDIATE"), SQLITE_BUSY);
    EXPECT_EQ(neighbour.run("BEGIN IMMEDIATE"), SQLITE_BUSY);
    MUST(usual, "COMMIT");
    MUST(none, "BEGIN IMMEDIATE; COMMIT");
}

TEST_F(SqliteQueue, WithLockWaitAWriterWaitsForAnother)
{
    for (const bool by_pragma : {false, true}) {
        ASSERT_EQ(other.open(path()), SQLITE_OK) << other.error();
        Db db(path(), by_pragma ? "" : "lock_wait_ms=60000");
        if (by_pragma) {
            EXPECT_EQ(db.text("PRAGMA ato_lock_wait_ms=60000"), "60000");
        }
        ASSERT_EQ(other.run("BEGIN IMMEDIATE; UPDATE t SET b=b||'+' WHERE a=1"), SQLITE_OK);
        std::thread commit([&] {
            std::this_thread::sleep_for(milliseconds(100));
            EXPECT_EQ(other.run("COMMIT"), SQLITE_OK) << other.error();
        });
        EXPECT_EQ(db.run("BEGIN IMMEDIATE"), SQLITE_OK) << db.error();
        commit.join();
        EXPECT_EQ(db.text("SELECT b FROM t WHERE a=1"), by_pragma ? "one++" : "one+");
        (void)db.run("COMMIT");
    }
}

/* ---- readers and a writer ---- */

TEST_F(SqliteQueue, AReaderAndAWriterWaitForEachOther)
{
    Peers peers;
    peers.push_back(peer("lock_wait_ms=60000", "SELECT 1",
                         [=](const Db &db) { write_until_stopped(db, 1, *tally); }));
    for (int i = 0; i < 2; i++)
        peers.push_back(peer("lock_wait_ms=60000", "SELECT 1", [=](const Db &db) {
            while (!tally->stop)
                if (db.number("SELECT (SELECT n FROM counter WHERE id=0) -"
                              " (SELECT n FROM counter WHERE id=1)") == 0)
                    tally->reads++;
                else
                    tally->fail(db);
        }));
    start(peers);
    const auto least = clock::now() + milliseconds(300), most = clock::now() + seconds(20);
    while (clock::now() < least ||
           ((tally->acknowledged[1] < 100 || tally->reads < 100) && clock::now() < most))
        std::this_thread::sleep_for(milliseconds(10));
    stop(peers);
    EXPECT_GE(tally->acknowledged[1], 100);
    EXPECT_GE(tally->reads, 100);
    expect_all_there();
}

TEST_F(SqliteQueue, ACommitIsBusyUntilTheReaderEnds)
{
    ASSERT_EQ(other.open(path()), SQLITE_OK) << other.error();
    ASSERT_EQ(other.run("BEGIN; SELECT * FROM t"), SQLITE_OK) << other.error();
    Db db(path()), late(path());
    MUST(db, "BEGIN; UPDATE t SET b='new' WHERE a=1");
    EXPECT_EQ(db.run("COMMIT"), SQLITE_BUSY);
    EXPECT_EQ(other.text("SELECT b FROM t WHERE a=1"), "one");
    /* The writer still wants its turn: no other reader begins. */
    EXPECT_EQ(late.run("SELECT * FROM t"), SQLITE_BUSY);
    EXPECT_EQ(db.run("COMMIT"), SQLITE_BUSY);
    ASSERT_EQ(other.run("COMMIT"), SQLITE_OK) << other.error();
    MUST(db, "COMMIT");
    for (const std::string &seen :
         {late.text("SELECT b FROM t WHERE a=1"), other.text("SELECT b FROM t WHERE a=1")})
        EXPECT_EQ(seen, "new");
}

/* ---- other databases ---- */

/* Counts the calls of its busy handler, which gives up some time. */
class Waiter : public Db
{
  public:
    explicit Waiter(const std::string &path) : Db(path)
    {
        sqlite3_busy_handler(
            handle, [](void *n, int) { return int(++*static_cast<int *>(n) < 1000); }, &calls);
    }
    int calls = 0;
};

/* A statement that writes to another database, and reads one that a connection writes to: it waits for nobody, and keeps nobody
 * waiting. SQLite would not either. */
TEST_F(SqliteQueue, AStatementThatWritesElsewhereOnlyReads)
{
    const std::string second = folder / "second.db";
    MUST(Db(second), "CREATE TABLE u(v)");
    const std::pair<std::string, std::string> cases[] = {
        {path(), "CREATE TEMP TABLE u(v)"},
        {path(), "ATTACH 'file:" + second + "?vfs=ato' AS b"},
        {second, "ATTACH 'file:" + path() + "?vfs=ato' AS b"},
    };
    const std::string reads = "INSERT INTO u SELECT b FROM t WHERE a=1";
    const std::string writes = "UPDATE t SET b='own' WHERE a=3"; /* and may do so again */
    for (const auto &[main, begin] : cases) {
        SCOPED_TRACE(begin);
        Waiter a(main);
        Db b(path(), "lock_wait_ms=0");
        MUST(a, begin);
        MUST(a, writes);
        MUST(b, "BEGIN IMMEDIATE");
        MUST(a, "BEGIN; " + reads);
        EXPECT_EQ(a.calls, 0);
        MUST(b, "ROLLBACK");
        MUST(a, "COMMIT; " + writes);
        MUST(a, "BEGIN; " + reads);
        EXPECT_EQ(b.run("BEGIN IMMEDIATE"), SQLITE_OK) << b.error();
        MUST(a, "COMMIT");
    }
}

/* ---- a write-ahead log ---- */

/* In WAL mode each connection has SHARED while it is open, and asks for EXCLUSIVE when it is closed: it is the last one if it gets
 * that. SQLite calls no busy handler there. */
TEST_F(SqliteQueue, OfTwoConnectionsInWalModeOneClosesAtOnce)
{
    Waiter first(path()), second(path());
    for (const Db *db : {&first, &second})
        MUST(*db, "PRAGMA journal_mode=WAL; UPDATE t SET b=b||'+' WHERE a=1");
    EXPECT_EQ(first.close(), SQLITE_OK);
    EXPECT_EQ(second.text("SELECT b FROM t WHERE a=1"), "one++");
    EXPECT_EQ(second.close(), SQLITE_OK);
    EXPECT_EQ(first.calls + second.calls, 0);
}

} // namespace sql
