/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * On a disk the next writer begins while the commit before it waits for its sync. Who sees what, meanwhile and if the sync fails?
 * Here no sync ends before the test says so.
 */
#include "lab.h"
#include "support/faults.h"

#include <atomic>
#include <memory>
#include <thread>

namespace sql
{

class SqliteEarlyCommits : public Lab
{
  protected:
    /* A statement in a thread. At its end syncs end. */
    class Task
    {
      public:
        Task(const Db &db, const std::string &statement, std::atomic<bool> &until_over)
            : holds(until_over), thread([this, &db, statement] {
                  result = db.run(statement);
                  is_over = true;
              })
        {
        }
        ~Task()
        {
            if (!thread.joinable())
                return;
            holds = false;
            thread.join();
        }
        int end()
        {
            thread.join();
            return result;
        }
        bool ends_soon() const
        {
            for (int ms = 0; ms < 5000 && !is_over; ms++)
                std::this_thread::sleep_for(std::chrono::milliseconds(1));
            return is_over;
        }
        std::atomic<bool> is_over{false};

      private:
        std::atomic<bool> &holds;
        int result = SQLITE_MISUSE;
        std::thread thread; /* last: it uses the others */
    };

    Db one, two, reader;
    std::atomic<bool> holds{false}, fails{false};
    std::atomic<int> held{0};

    void SetUp() override
    {
        Lab::SetUp();
        setenv("ATO_DURABILITY", "disk", 1);
        setenv("ATO_RELAXED_MS", "3600000", 1);
        make();
        for (Db *db : {&one, &two, &reader}) {
            *db = Db(path());
            sqlite3_busy_timeout(db->handle, 10000);
        }
        /* The first commit on a disk is SQLite's own; and all have written once, and wait for their turn from then on. */
        for (const Db *db : {&one, &two, &reader})
            MUST(*db, "UPDATE t SET b=0 WHERE a=1; UPDATE t SET b=0 WHERE a=1");
        faults = std::make_unique<support::FsFaults>();
        faults->before = [this](const support::FsCall &call) -> int {
            if (call.op != std::string("fdatasync"))
                return support::GO_ON;
            held++;
            while (holds)
                std::this_thread::sleep_for(std::chrono::milliseconds(1));
            held--;
            return fails ? EIO : support::GO_ON;
        };
    }
    void TearDown() override
    {
        holds = false;
        faults.reset();
        for (Db *db : {&one, &two, &reader})
            db->close();
        unsetenv("ATO_DURABILITY");
        unsetenv("ATO_RELAXED_MS");
    }
    void wait_for_a_sync() const
    {
        for (int ms = 0; ms < 5000 && !held; ms++)
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        EXPECT_TRUE(held);
    }
    /* `one` has committed `change`, and COMMIT waits for the sync, when `two` has begun to write. */
    std::unique_ptr<Task> commit_beside_a_writer(const std::string &change)
    {
        EXPECT_EQ(one.run("BEGIN IMMEDIATE; " + change), SQLITE_OK) << one.error();
        Task begin(two, "BEGIN IMMEDIATE", holds);
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        EXPECT_FALSE(begin.is_over);
        holds = true;
        auto commit = std::make_unique<Task>(one, "COMMIT", holds);
        EXPECT_TRUE(begin.ends_soon());
        EXPECT_EQ(begin.end(), SQLITE_OK) << two.error();
        EXPECT_FALSE(commit->is_over);
        return commit;
    }

  private:
    std::unique_ptr<support::FsFaults> faults;
};

TEST_F(SqliteEarlyCommits, AreSeenByTheNextWriterAndByReadersWhenTheyAreDurable)
{
    const auto commit = commit_beside_a_writer("UPDATE t SET b=7 WHERE a=1");
    EXPECT_EQ(two.number("SELECT b FROM t WHERE a=1"), 7);
    EXPECT_EQ(reader.number("SELECT b FROM t WHERE a=1"), 0);
    MUST(two, "UPDATE t SET b=b+1 WHERE a=1");
    Task second(two, "COMMIT", holds);
    wait_for_a_sync();
    EXPECT_EQ(reader.number("SELECT b FROM t WHERE a=1"), 0);
    EXPECT_FALSE(second.is_over);
    EXPECT_FALSE(commit->is_over);
    holds = false;
    EXPECT_EQ(commit->end(), SQLITE_OK) << one.error();
    EXPECT_EQ(second.end(), SQLITE_OK) << two.error();
    EXPECT_EQ(reader.number("SELECT b FROM t WHERE a=1"), 8);
    EXPECT_EQ(one.number("SELECT b FROM t WHERE a=1"), 8);
}

TEST_F(SqliteEarlyCommits, MayBeRolledBackByTheNextWriterAsFarAsItsOwn)
{
    const auto commit = commit_beside_a_writer("UPDATE t SET b=7 WHERE a=1");
    MUST(two, "UPDATE t SET b=b+1 WHERE a=1");
    Task rollback(two, "ROLLBACK", holds);
    wait_for_a_sync();
    EXPECT_FALSE(rollback.is_over); /* it has read what is not durable */
    holds = false;
    EXPECT_EQ(commit->end(), SQLITE_OK) << one.error();
    EXPECT_EQ(rollback.end(), SQLITE_OK) << two.error();
    EXPECT_EQ(reader.number("SELECT b FROM t WHERE a=1"), 7);
    MUST(two, "UPDATE t SET b=b+1 WHERE a=1");
    EXPECT_EQ(reader.number("SELECT b FROM t WHERE a=1"), 8);
}

/* It waits for nobody's sync, and shows what it has read, also if it has written nothing. */
TEST_F(SqliteEarlyCommits, AreShownByARelaxedWriterThatComesNext)
{
    MUST(two, "PRAGMA synchronous=normal");
    for (const bool writes : {false, true}) {
        const auto commit = commit_beside_a_writer(writes ? "UPDATE t SET b=8 WHERE a=1"
                                                          : "UPDATE t SET b=7 WHERE a=1");
        EXPECT_EQ(two.number("SELECT b FROM t WHERE a=1"), writes ? 8 : 7);
        EXPECT_EQ(reader.number("SELECT b FROM t WHERE a=1"), writes ? 7 : 0);
        Task end(two, writes ? "UPDATE t SET b=b+10 WHERE a=1; COMMIT" : "ROLLBACK", holds);
        EXPECT_TRUE(end.ends_soon() || (holds = false));
        EXPECT_EQ(end.end(), SQLITE_OK) << two.error();
        EXPECT_EQ(reader.number("SELECT b FROM t WHERE a=1"), writes ? 18 : 7);
        EXPECT_FALSE(commit->is_over);
        holds = false;
        EXPECT_EQ(commit->end(), SQLITE_OK) << one.error();
    }
}

/* It reads what it has committed itself, and nothing of others that came later. */
TEST_F(SqliteEarlyCommits, AreSeenByACursorOfTheSameConnection)
{
    sqlite3_stmt *cursor = nullptr;
    MUST(one, fill("t", 100, 400));
    ASSERT_EQ(sqlite3_prepare_v2(one.handle, "SELECT a, b FROM t ORDER BY a", -1, &cursor, nullptr),
              SQLITE_OK);
    ASSERT_EQ(sqlite3_step(cursor), SQLITE_ROW);
    const auto commit = commit_beside_a_writer("UPDATE t SET b='mine'||a WHERE a=390 OR a=391");
    MUST(two, "UPDATE t SET b='other'||a WHERE a>391");
    holds = false;
    EXPECT_EQ(commit->end(), SQLITE_OK) << one.error();
    MUST(two, "COMMIT");
    int mine = 0, other = 0, rows = 1;
    while (sqlite3_step(cursor) == SQLITE_ROW) {
        const auto *b = reinterpret_cast<const char *>(sqlite3_column_text(cursor, 1));
        mine += b && std::string(b).rfind("mine", 0) == 0;
        other += b && std::string(b).rfind("other", 0) == 0;
        rows++;
    }
    sqlite3_finalize(cursor);
    EXPECT_EQ(rows, 304);
    EXPECT_EQ(mine, 2);
    EXPECT_EQ(other, 0);
    EXPECT_EQ(one.number("SELECT count(*) FROM t WHERE b>='other' AND b<'otherz'"), 9);
}

/* Nobody is told that they are done, and nobody sees them, here or later. */
TEST_F(SqliteEarlyCommits, FailTogether)
{
    auto commit = commit_beside_a_writer("UPDATE t SET b=7 WHERE a=1");
    MUST(two, "UPDATE t SET b=8 WHERE a=2");
    Task second(two, "COMMIT", holds);
    wait_for_a_sync();
    EXPECT_EQ(reader.number("SELECT b FROM t WHERE a=1"), 0);
    fails = true;
    holds = false;
    EXPECT_EQ(commit->end(), SQLITE_IOERR);
    EXPECT_EQ(second.end(), SQLITE_IOERR);
    EXPECT_EQ(reader.text("SELECT b FROM t WHERE a=1").rfind("error", 0), 0u);
}

} // namespace sql
