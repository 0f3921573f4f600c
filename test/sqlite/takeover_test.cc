/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A process is killed in COMMIT while other processes have the database open: these get its locks at once. The
 * transaction is complete for their first transaction, or never.
 */
#include "lab.h"
#include "support/child.h"
#include "support/faults.h"

extern "C" {
#include "reflection/media/seam.h"
}

#include <fcntl.h>
#include <memory>
#include <set>
#include <sys/wait.h>
#include <unistd.h>

namespace sql
{

using support::CUT;

class SqliteTakeover : public Lab
{
  protected:
    /* In the last statement, calls `deed` at the n-th point of a commit, counted from 0. */
    template <typename Deed>
    pid_t run_until(const std::string &change, const std::string &last, int n, Deed deed)
    {
        static int left;
        static Deed *then;
        const pid_t pid = fork();
        if (pid == 0) {
            left = n;
            then = &deed;
            Db db(path());
            if (db.number("SELECT count(*) FROM t") < 0 ||
                db.run("PRAGMA cache_size=5; " + change) != SQLITE_OK)
                _exit(1);
            seam_hook = [](enum seam_point here, const void *) {
                const bool in_commit = here == SEAM_DURABLE || here == SEAM_FLIP ||
                                       here == SEAM_FLIPPING || here == SEAM_FLIPPED;
                if (in_commit && left-- == 0)
                    (*then)();
            };
            _exit(db.run(last) == SQLITE_OK ? 0 : 2);
        }
        return pid;
    }
    template <typename Deed> pid_t commit_until(const std::string &change, int n, Deed deed)
    {
        return run_until("BEGIN IMMEDIATE;" + change, "COMMIT", n, deed);
    }
    int die_in_commit(const std::string &change, int n)
    {
        int status = 0;
        waitpid(commit_until(change, n, [] { _exit(CUT); }), &status, 0);
        return WEXITSTATUS(status);
    }
    /* Dies before the n-th store, flush or fence of a change. */
    int die_before(const std::string &change, int n) const
    {
        return support::in_child([&] {
            const Db db(path());
            if (db.run("SELECT count(*) FROM t") != SQLITE_OK)
                return 1;
            support::PersistFaults faults;
            faults.before = [&](const support::PersistCall &call) {
                return call.index >= n ? support::DIE : support::GO_ON;
            };
            return db.run(change) == SQLITE_OK ? 0 : 2;
        });
    }
    /* Before the n-th such call of a last close. */
    int die_in_close(bool by_file, int n) const
    {
        return support::in_child([&] {
            Db db(path());
            if (db.run("INSERT INTO t VALUES(4, 4)") != SQLITE_OK)
                return 1;
            std::unique_ptr<support::FsFaults> calls;
            std::unique_ptr<support::PersistFaults> stores;
            if (by_file) {
                calls = std::make_unique<support::FsFaults>();
                calls->cut_at(n);
            } else {
                stores = std::make_unique<support::PersistFaults>();
                stores->cut_at(n);
            }
            return db.close() == SQLITE_OK ? 0 : 2;
        });
    }
    /* With a header that is masked already: the next commit has no step but its own. */
    void open_masked()
    {
        ASSERT_EQ(other.open(path()), SQLITE_OK);
        ASSERT_EQ(other.run("PRAGMA user_version=1"), SQLITE_OK);
    }
    /* Opens the database in a process that has not had it open: this releases the pages of dead processes. */
    void another_opens()
    {
        const Db db(path());
        EXPECT_GE(db.number("SELECT count(*) FROM t"), 0) << db.error();
    }
    void SetUp() override
    {
        Lab::SetUp();
        setenv("ATO_RTM", "0", 1); /* so that a commit has several steps */
    }
    void TearDown() override
    {
        unsetenv("ATO_RTM");
    }
};

static const char *const LONGER = "INSERT INTO t SELECT a+1000, randomblob(700) FROM t";
static const char *const SHORTER = "DELETE FROM t WHERE a>3";

TEST_F(SqliteTakeover, InterruptedCommitIsSeenByTheNextWriterOrNever)
{
    for (const std::string change : {LONGER, SHORTER})
        for (int n = 0, died = CUT; died == CUT; n += n < 6 ? 1 : 7) {
            SCOPED_TRACE(change + ", point " + std::to_string(n));
            support::write_file(path(), {});
            make("a.db", "PRAGMA auto_vacuum=full");
            {
                const Db db = Db::stock(path());
                MUST(db, fill("t", 10, 50));
            }
            ASSERT_EQ(other.open(path()), SQLITE_OK);
            ASSERT_EQ(other.text("SELECT count(*) FROM t"), "44");
            died = die_in_commit(change, n);
            ASSERT_TRUE(died == CUT || died == 0) << died;
            EXPECT_EQ(other.run("BEGIN IMMEDIATE"), SQLITE_OK) << other.error();
            const std::string first = other.text("SELECT count(*) FROM t");
            EXPECT_EQ(other.run("INSERT INTO t VALUES(500, 'new')"), SQLITE_OK) << other.error();
            another_opens();
            EXPECT_EQ(other.text("SELECT count(*)-1 FROM t NOT INDEXED"), first);
            EXPECT_EQ(other.run("COMMIT"), SQLITE_OK) << other.error();
            EXPECT_EQ(other.close(), SQLITE_OK);
            const Db db = Db::stock(path());
            EXPECT_EQ(db.text("PRAGMA integrity_check"), "ok");
            EXPECT_EQ(db.text("SELECT count(*)-1 FROM t"), first);
            EXPECT_EQ(db.text("SELECT b FROM t WHERE a=500"), "new");
        }
}

/* The process dies before each store, flush and fence of its first commit, and of masking and unmasking. Stock SQLite is refused, or its writes are not undone. The file is longer than the database: the database's length must not be taken
 * from the file. */
TEST_F(SqliteTakeover, OthersMayWriteAfterAFirstCommitOrAreRefused)
{
    int refused = 0, written = 0;
    for (int n = 0, died = CUT; died == CUT; n++) {
        SCOPED_TRACE(n);
        support::write_file(path(), {});
        make();
        MUST(Db::stock(path()), fill("t", 10, 300) + "; DELETE FROM t WHERE a BETWEEN 10 AND 200");
        std::filesystem::resize_file(path(), std::filesystem::file_size(path()) + 3 * 4096);
        died = die_before("UPDATE t SET b=a+10 WHERE a=1", n);
        const Db stock = Db::stock(path());
        if (stock.run(fill("t", 1000, 1100)) == SQLITE_NOTADB) {
            refused++;
        } else {
            written++;
            EXPECT_EQ(stock.number("SELECT count(*) FROM t WHERE a>=1000"), 101);
        }
        const std::string all = Db(path()).text("SELECT sum(a) FROM t");
        EXPECT_EQ(stock.text("SELECT sum(a) FROM t"), all);
        EXPECT_EQ(stock.text("PRAGMA integrity_check"), "ok");
        EXPECT_EQ(Db::stock(path()).text("SELECT sum(a) FROM t"), all);
        ASSERT_TRUE(died == CUT || died == 0) << died;
        ASSERT_FALSE(HasFailure());
    }
    EXPECT_GT(refused, 0);
    EXPECT_GT(written, 0);
}

/* The change counter must not go back to the value that the idle reader has cached. */
TEST_F(SqliteTakeover, AnIdleReaderDoesNotTrustItsCacheAfterAKill)
{
    for (int n = 0, died = CUT; died == CUT; n++) {
        SCOPED_TRACE(n);
        support::write_file(path(), {});
        make();
        MUST(Db::stock(path()), fill("t", 10, 300));
        const Db idle = Db::stock(path());
        EXPECT_EQ(idle.number("SELECT sum(length(b)) FROM t WHERE a<10"), 11);
        died = die_before("UPDATE t SET b='22' WHERE a=1", n);
        Db db(path());
        MUST(db, "UPDATE t SET b='7777777' WHERE a=3");
        const std::string now = db.text("SELECT sum(length(b)) FROM t WHERE a<10");
        EXPECT_EQ(idle.run("SELECT sum(length(b)) FROM t WHERE a<10"), SQLITE_BUSY);
        EXPECT_EQ(db.close(), SQLITE_OK);
        EXPECT_EQ(idle.text("SELECT sum(length(b)) FROM t WHERE a<10"), now);
        ASSERT_TRUE(died == CUT || died == 0) << died;
        ASSERT_FALSE(HasFailure());
    }
}

/* A close is killed before any of its calls. A connection of SQLite's own VFS that asks before and during the recovery is
 * not refused afterwards. */
TEST_F(SqliteTakeover, RecoveryOfAKilledCloseLeavesTheCounterOfOthersAlone)
{
    for (const bool by_file : {false, true})
        for (int n = 0, died = CUT; died == CUT; n++) {
            SCOPED_TRACE((by_file ? "file call " : "store ") + std::to_string(n));
            support::write_file(path(), {});
            make();
            ASSERT_EQ(other.open_stock(path()), SQLITE_OK);
            ASSERT_EQ(other.text("SELECT count(*) FROM t"), "3");
            died = die_in_close(by_file, n);
            ASSERT_TRUE(died == CUT || died == 0) << died;
            (void)other.text("SELECT count(*) FROM t");
            {
                support::FsFaults faults;
                faults.before = [&](const support::FsCall &) {
                    (void)other.text("SELECT count(*) FROM t");
                    return support::GO_ON;
                };
                EXPECT_GE(Db(path()).number("SELECT count(*) FROM t"), 4);
            }
            EXPECT_EQ(other.text("SELECT count(*) FROM t"), "4");
            ASSERT_FALSE(HasFailure());
            EXPECT_EQ(other.close(), SQLITE_OK);
        }
}

/* A connection that asks all the time must not remember half of a mask. */
TEST_F(SqliteTakeover, OthersWaitWhileALastCloseMakesItPlain)
{
    make();
    ASSERT_EQ(other.open_stock(path()), SQLITE_OK);
    Db db(path());
    MUST(db, "INSERT INTO t VALUES(4, 4)");
    EXPECT_EQ(other.run("SELECT sum(a) FROM t"), SQLITE_BUSY);
    int asked = 0;
    {
        support::PersistFaults faults;
        faults.before = [&](const support::PersistCall &call) {
            if (std::string(call.site).find("guard.c") != std::string::npos) {
                asked++;
                EXPECT_EQ(other.run("SELECT sum(a) FROM t"), SQLITE_BUSY);
            }
            return support::GO_ON;
        };
        EXPECT_EQ(db.close(), SQLITE_OK);
    }
    EXPECT_GT(asked, 0);
    EXPECT_EQ(other.text("SELECT sum(a) FROM t"), "10");
}

/* The transaction outgrows SQLite's cache: the file is masked while it is open, and afterwards until the close. */
TEST_F(SqliteTakeover, OthersReadOneStateOrWaitAtEachStepOfAFirstTransaction)
{
    make();
    MUST(Db::stock(path()), fill("t", 10, 60));
    ASSERT_EQ(other.open_stock(path()), SQLITE_OK);
    for (const char *end : {"ROLLBACK", "COMMIT"}) {
        SCOPED_TRACE(end);
        Db db(path());
        std::set<std::string> answers;
        {
            const auto ask = [&](const auto &) {
                answers.insert(other.text("SELECT sum(a)||':'||max(length(b)) FROM t"));
                return support::GO_ON;
            };
            support::FsFaults calls;
            support::PersistFaults stores;
            calls.before = ask;
            stores.before = ask;
            MUST(db, "PRAGMA cache_size=5; BEGIN; UPDATE t SET b=a||hex(zeroblob(300)); " +
                         std::string(end));
            EXPECT_EQ(db.close(), SQLITE_OK);
        }
        EXPECT_TRUE(answers.erase("error: database is locked (5)"));
        const std::string now = other.text("SELECT sum(a)||':'||max(length(b)) FROM t");
        answers.erase("1791:500");
        answers.erase(now);
        EXPECT_EQ(answers, std::set<std::string>());
        EXPECT_EQ(now, std::string(end) == "COMMIT" ? "1791:602" : "1791:500");
        EXPECT_EQ(other.text("PRAGMA integrity_check"), "ok");
    }
}

TEST_F(SqliteTakeover, AReaderSeesOneStateInATransaction)
{
    for (int n = 0, died = CUT; died == CUT; n++) {
        SCOPED_TRACE(n);
        support::write_file(path(), {});
        make();
        {
            const Db db = Db::stock(path());
            MUST(db, fill("t", 10, 50) + "; CREATE TABLE u AS SELECT * FROM t");
        }
        ASSERT_EQ(other.open(path()), SQLITE_OK);
        ASSERT_EQ(other.run("PRAGMA cache_size=1"), SQLITE_OK);
        ASSERT_EQ(other.text("SELECT count(*) FROM u WHERE b=a"), "0");
        died = die_in_commit("UPDATE t SET b=a; UPDATE u SET b=a", n);
        ASSERT_TRUE(died == CUT || died == 0) << died;
        ASSERT_EQ(other.run("BEGIN"), SQLITE_OK) << other.error();
        const std::string first = other.text("SELECT count(*) FROM t WHERE b=a");
        another_opens();
        EXPECT_EQ(other.text("SELECT count(*) FROM u WHERE b=a"), first);
        EXPECT_EQ(other.run("COMMIT"), SQLITE_OK);
        EXPECT_EQ(other.close(), SQLITE_OK);
    }
}

/* As the kernel does with the locks of a process that dies, perhaps before its death is visible to libato. */
static void drop_locks()
{
    struct flock all = {};
    all.l_type = F_UNLCK;
    all.l_start = 0x40000000;
    all.l_len = 512;
    for (int fd = 3; fd < 1024; fd++)
        (void)fcntl(fd, F_OFD_SETLK, &all);
}

TEST_F(SqliteTakeover, DyingWriterIsWaitedFor)
{
    make();
    open_masked();
    support::Pipe gave_up;
    const pid_t pid = commit_until("UPDATE t SET b=a; INSERT INTO t VALUES(4, 4)", 0, [&] {
        drop_locks();
        gave_up.tell();
        usleep(200000);
        _exit(CUT);
    });
    ASSERT_TRUE(gave_up.hear());
    EXPECT_EQ(other.run("BEGIN IMMEDIATE; INSERT INTO t VALUES(5, 5)"), SQLITE_OK) << other.error();
    waitpid(pid, nullptr, 0);
    another_opens();
    EXPECT_EQ(other.run("COMMIT"), SQLITE_OK) << other.error();
    EXPECT_EQ(other.text("SELECT group_concat(b) FROM (SELECT b FROM t ORDER BY a)"), "1,2,3,4,5");
    EXPECT_EQ(other.close(), SQLITE_OK);
    EXPECT_EQ(stock_sum(path()), "15");
}

/* If that takes long, SQLite returns SQLITE_BUSY, and retries for the time of its busy timeout. */
TEST_F(SqliteTakeover, WriterWithoutLocksThatLivesOnIsBusy)
{
    make();
    open_masked();
    support::Pipe gave_up;
    const pid_t pid = commit_until("UPDATE t SET b=a; INSERT INTO t VALUES(4, 4)", 0, [&] {
        drop_locks();
        gave_up.tell();
        pause();
    });
    ASSERT_TRUE(gave_up.hear());
    EXPECT_EQ(other.run("BEGIN IMMEDIATE"), SQLITE_BUSY) << other.error();
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
    EXPECT_EQ(other.run("INSERT INTO t VALUES(5, 5)"), SQLITE_OK) << other.error();
    EXPECT_EQ(other.text("SELECT group_concat(b) FROM (SELECT b FROM t ORDER BY a)"), "1,2,3,4,5");
    EXPECT_EQ(other.close(), SQLITE_OK);
    EXPECT_EQ(stock_sum(path()), "15");
}

TEST_F(SqliteTakeover, InterruptedSwitchToWalModeIsCompleteOrAbsent)
{
    for (int n = 0, died = CUT; died == CUT; n++) {
        SCOPED_TRACE(n);
        support::write_file(path(), {});
        make();
        died = die_before("UPDATE t SET b=a+10; PRAGMA journal_mode=WAL", n);
        ASSERT_TRUE(died == CUT || died == 0) << died;
        {
            /* If it is refused, it does not open the WAL: it would keep a lock in that mode. */
            const Db early = Db::stock(path());
            const int refused = early.run("SELECT sum(b) FROM t");
            EXPECT_TRUE(refused == SQLITE_NOTADB || refused == SQLITE_OK) << refused;
            EXPECT_FALSE(refused && std::filesystem::exists(path() + "-shm"));
        }
        ASSERT_EQ(other.open(path()), SQLITE_OK);
        const std::string sum = other.text("SELECT sum(b) FROM t");
        EXPECT_TRUE(sum == "36" || sum == "0.0") << sum;
        {
            const Db db(path());
            MUST(db, fill("t", 10, 300) + "; PRAGMA wal_checkpoint");
        }
        EXPECT_EQ(other.text("SELECT count(*) FROM t"), "294");
        EXPECT_EQ(other.close(), SQLITE_OK);
        const Db stock = Db::stock(path());
        EXPECT_EQ(stock.number("SELECT count(*) FROM t"), 294);
        EXPECT_EQ(stock.text("PRAGMA integrity_check"), "ok");
        ASSERT_FALSE(HasFailure());
    }
}

/* Stock SQLite reads the whole transaction, or is refused. */
TEST_F(SqliteTakeover, InterruptedFirstCommitIsNeverAMixture)
{
    int refused = 0;
    for (int n = 0, status = 0; n == 0 || WEXITSTATUS(status) == CUT; n++) {
        SCOPED_TRACE(n);
        support::write_file(path(), {});
        make();
        waitpid(run_until("BEGIN IMMEDIATE; UPDATE t SET b=a+10; INSERT INTO t "
                          "SELECT a+10, 'x'||printf('%0900d', a) FROM t",
                          "COMMIT", n, [] { _exit(CUT); }),
                &status, 0);
        ASSERT_TRUE(WEXITSTATUS(status) == CUT || status == 0) << status;
        const std::string stock = Db::stock(path()).text("SELECT count(*)||':'||sum(b) FROM t");
        const std::string ours = Db(path()).text("SELECT count(*)||':'||sum(b) FROM t");
        EXPECT_TRUE(ours == "3:0.0" || ours == "6:36.0") << ours;
        if (stock.find("(26)") == std::string::npos)
            EXPECT_EQ(stock, ours);
        else
            refused++;
    }
    EXPECT_GT(refused, 3);
}

/* The process may not write: it is SQLITE_BUSY while another one has the database open that may, and cannot finish a commit. */
TEST_F(SqliteTakeover, AReaderThatMayNotWriteWaitsForOnesThatMay)
{
    ASSERT_EQ(chmod(folder.path().c_str(), 0755), 0);
    make();
    ASSERT_EQ(other.open(path(), "unmap=fast"), SQLITE_OK);
    ASSERT_EQ(other.run("PRAGMA user_version=1"), SQLITE_OK); /* masks the header */
    ASSERT_EQ(chmod(path().c_str(), 0644), 0);
    {
        const Nobody nobody;
        ASSERT_TRUE(nobody.is);
        EXPECT_EQ(Db(path()).run("SELECT count(*) FROM t"), SQLITE_BUSY);
    }
    ASSERT_EQ(other.close(), SQLITE_OK);
    {
        const Nobody nobody;
        const Db reader(path());
        EXPECT_EQ(reader.run("SELECT count(*) FROM t"), SQLITE_READONLY) << reader.error();
    }
    ASSERT_EQ(die_in_commit("UPDATE t SET b=a; INSERT INTO t VALUES(4, 4)", 0), CUT);
    {
        const Nobody nobody;
        const Db reader(path());
        EXPECT_EQ(reader.run("SELECT count(*) FROM t"), SQLITE_READONLY) << reader.error();
    }
    {
        const Db reader(path(), "mode=ro");
        EXPECT_EQ(reader.number("SELECT count(*) FROM t"), 4) << reader.error();
        EXPECT_EQ(reader.run("DELETE FROM t"), SQLITE_READONLY);
    }
    EXPECT_EQ(stock_sum(path()), "10");
}

} // namespace sql
