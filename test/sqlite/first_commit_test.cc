/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The first commit of a process to a database on a disk, which the VFS below makes, with its journal on the disk: what does a power
 * cut leave of it, or a kill; how many syncs does it make; and what may other programs do then?
 *
 * The VFS below is SQLite's own, which also notes each write and sync. Of what was written since the last sync of a file a power cut
 * keeps any subset of the sectors. A sync of a new journal makes its name durable (SQLite's own VFS syncs the folder then), and a
 * deletion is durable if SQLite's own VFS was asked for that.
 */
#include "lab.h"

#include "model/rig.h"

#include <csignal>
#include <memory>
#include <set>
#include <sys/wait.h>

namespace sql
{
namespace
{

constexpr size_t SECTOR = 512;
constexpr unsigned IMAGES = 25; /* of each moment */

/* ---- what is noted ---- */

using Bytes = std::string;

struct Event {
    enum What { WRITE, CUT, SYNC, CREATE, DELETE, DELETE_DURABLY, RETURN } what;
    bool is_journal;
    size_t at;
    Bytes bytes;
};

std::vector<Event> events;
bool notes;
size_t dies_at = SIZE_MAX, fails_at = SIZE_MAX; /* in place of this event */
bool fails_on;                                  /* and in place of all after it */
int failure;
sqlite3_vfs *stock_vfs;
struct Methods { /* SQLite's own VFS has other ones for a journal, which it does not lock */
    const sqlite3_io_methods *stock;
    sqlite3_io_methods noting;
} methods[2];
std::set<const sqlite3_file *> journals;

bool is_journal(const sqlite3_file *file)
{
    return journals.count(file) != 0;
}

/* Returns SQLITE_OK, or the error that is returned in place of the event. */
int note(Event::What what, bool journal, size_t at = 0, Bytes bytes = {})
{
    if (!notes)
        return SQLITE_OK;
    const size_t i = events.size();
    if (i == dies_at)
        raise(SIGKILL);
    events.push_back({what, journal, at, std::move(bytes)});
    return i == fails_at || (fails_on && i > fails_at) ? failure : SQLITE_OK;
}

int write_file(sqlite3_file *file, const void *from, int n, sqlite3_int64 at)
{
    const int r = note(Event::WRITE, is_journal(file), static_cast<size_t>(at),
                       Bytes(static_cast<const char *>(from), static_cast<size_t>(n)));
    if (r != SQLITE_OK)
        return r;
    return methods[is_journal(file)].stock->xWrite(file, from, n, at);
}

int cut_file(sqlite3_file *file, sqlite3_int64 size)
{
    const int r = note(Event::CUT, is_journal(file), static_cast<size_t>(size));
    if (r != SQLITE_OK)
        return r;
    return methods[is_journal(file)].stock->xTruncate(file, size);
}

int sync_file(sqlite3_file *file, int flags)
{
    const int r = note(Event::SYNC, is_journal(file));
    if (r != SQLITE_OK)
        return r;
    return methods[is_journal(file)].stock->xSync(file, flags);
}

int open_noted(sqlite3_vfs *, const char *name, sqlite3_file *file, int flags, int *out)
{
    const bool to_journal = flags & SQLITE_OPEN_MAIN_JOURNAL;
    const int r = stock_vfs->xOpen(stock_vfs, name, file, flags, out);
    if (r != SQLITE_OK || !(to_journal || (flags & SQLITE_OPEN_MAIN_DB)))
        return r;
    Methods &m = methods[to_journal];
    m.stock = file->pMethods;
    m.noting = *m.stock;
    m.noting.xWrite = write_file;
    m.noting.xTruncate = cut_file;
    m.noting.xSync = sync_file;
    file->pMethods = &m.noting;
    journals.erase(file);
    if (to_journal)
        journals.insert(file);
    if (to_journal && (flags & SQLITE_OPEN_CREATE))
        (void)note(Event::CREATE, true);
    return r;
}

int delete_noted(sqlite3_vfs *, const char *name, int durably)
{
    const int r = note(durably ? Event::DELETE_DURABLY : Event::DELETE, true);
    if (r != SQLITE_OK)
        return r;
    return stock_vfs->xDelete(stock_vfs, name, durably);
}

/* Makes it the VFS below `ato`, which that of SQLite's default is when `ato` is registered. */
void note_below()
{
    static sqlite3_vfs vfs;
    stock_vfs = sqlite3_vfs_find(nullptr);
    vfs = *stock_vfs;
    vfs.zName = "noted";
    vfs.xOpen = open_noted;
    vfs.xDelete = delete_noted;
    sqlite3_vfs_register(&vfs, 1);
}

/* ---- power cuts ---- */

/* A file, as it is on the disk. */
class Disk
{
  public:
    explicit Disk(Bytes is = {}) : durable(std::move(is))
    {
    }

    void write(const Event &e)
    {
        pending.push_back(e);
    }
    void sync()
    {
        durable = apply([] { return true; });
        pending.clear();
    }
    template <class Keeps> Bytes apply(const Keeps &keeps) const
    {
        Bytes is = durable;
        for (const Event &e : pending) {
            if (e.what == Event::CUT) {
                if (keeps())
                    is.resize(e.at);
                continue;
            }
            for (size_t at = e.at, n; at < e.at + e.bytes.size(); at += n) {
                n = std::min(SECTOR - at % SECTOR, e.at + e.bytes.size() - at);
                if (!keeps())
                    continue;
                if (is.size() < at + n)
                    is.resize(at + n);
                is.replace(at, n, e.bytes, at - e.at, n);
            }
        }
        return is;
    }

  private:
    Bytes durable;
    std::vector<Event> pending;
};

void put(const std::string &path, const Bytes &bytes)
{
    const support::Bytes content(bytes.begin(), bytes.end());
    support::write_file(path, content);
}

/* A page of zeros but for a byte in each sector: SQLite's checksum of a page in a journal does not tell whether all of it is there. */
std::string row(unsigned seed)
{
    std::string hex;
    for (unsigned i = 0; i < 3900; i++) {
        char two[3];
        (void)snprintf(two, sizeof(two), "%02x", i % 61 == 7 ? 1 + (seed + i) % 250 : 0);
        hex += two;
    }
    return "x'" + hex + "'";
}

const char *const VALUES = "SELECT group_concat(hex(b)) FROM t";

class SqliteFirstCommit : public Lab
{
  protected:
    void SetUp() override
    {
        unsetenv("ATO_DURABILITY");
        if (support::disk_folder().empty())
            GTEST_SKIP() << "no folder on a disk: set ATO_TEST_DISK";
        disk = std::make_unique<support::TempDir>(support::disk_folder());
        file = *disk / "a.db";
        start(note_below);
        Db db = Db::stock(file);
        MUST(db, "CREATE TABLE t(a INTEGER PRIMARY KEY, b)");
        for (unsigned i = 0; i < 4; i++)
            MUST(db, "INSERT INTO t(b) VALUES(" + row(i) + ")");
        before = db.text(VALUES);
        db.close();
        const auto bytes = support::read_file(file);
        began = Bytes(bytes.begin(), bytes.end());
    }
    void run(const std::string &first)
    {
        Db db(file);
        MUST(db, first);
        events.clear();
        notes = true;
        MUST(db, "UPDATE t SET b = " + row(77) + " WHERE a > 2");
        notes = false;
        events.push_back({Event::RETURN, false, 0, {}});
        after = db.text(VALUES);
        ASSERT_NE(before, after);
    }
    /* What a power cut after the event leaves is played back by SQLite's own VFS. */
    void cut(const Bytes &database, const Bytes *journal, bool is_committed, size_t event)
    {
        const std::string there = folder / "cut.db";
        put(there, database);
        if (journal)
            put(there + "-journal", *journal);
        {
            Db db = Db::stock(there);
            const std::string is = db.text(VALUES);
            ASSERT_TRUE(is == after || (!is_committed && is == before)) << "event " << event;
            ASSERT_EQ(db.text("PRAGMA integrity_check"), "ok");
        }
        (void)unlink((there + "-journal").c_str());
        images++;
    }
    void cut_all()
    {
        SCOPED_TRACE(rig::replay());
        rig::Random random(rig::seed());
        Disk database(began), journal;
        enum { NONE, MAY_BE, IS } name = NONE; /* of the journal */
        bool is_committed = false;
        for (size_t i = 0; i < events.size(); i++) {
            const Event &e = events[i];
            Disk &to = e.is_journal ? journal : database;
            switch (e.what) {
            case Event::WRITE:
            case Event::CUT:
                to.write(e);
                break;
            case Event::SYNC:
                to.sync();
                name = e.is_journal ? IS : name;
                break;
            case Event::CREATE:
                journal = Disk();
                name = MAY_BE;
                break;
            case Event::DELETE:
                name = MAY_BE;
                break;
            case Event::DELETE_DURABLY:
                name = NONE;
                break;
            case Event::RETURN:
                is_committed = true;
            }
            for (unsigned n = 0; n < IMAGES && !HasFatalFailure(); n++) {
                const unsigned percent = 5 + static_cast<unsigned>(random.below(91));
                const auto keeps = [&] { return n == 0 || (n != 1 && random.chance(percent)); };
                const Bytes d = database.apply(keeps), j = journal.apply(keeps);
                const bool there = name == IS || (name == MAY_BE && random.chance(50));
                cut(d, there ? &j : nullptr, is_committed, i);
            }
        }
    }
    size_t count(Event::What what, bool is_journal) const
    {
        size_t n = 0;
        for (const Event &e : events)
            n += e.what == what && e.is_journal == is_journal;
        return n;
    }

    std::unique_ptr<support::TempDir> disk;
    std::string file, before, after;
    Bytes began;
    unsigned images = 0;
};

TEST_F(SqliteFirstCommit, IsWholeOrNotThereAfterAPowerCut)
{
    for (const char *mode : {"delete", "truncate", "persist"})
        for (const char *synchronous : {"normal", "full"}) {
            SCOPED_TRACE(std::string(mode) + ", " + synchronous);
            put(file, began);
            ASSERT_NO_FATAL_FAILURE(run("PRAGMA journal_mode=" + std::string(mode) +
                                        "; PRAGMA synchronous=" + synchronous));
            ASSERT_GT(count(Event::WRITE, false), 0u) << "it was not made by the VFS below";
            ASSERT_NO_FATAL_FAILURE(cut_all());
        }
    std::printf("%u images\n", images);
}

/* The next process, with whatever VFS, finds it whole or not there. Nothing is left beside the database. */
TEST_F(SqliteFirstCommit, IsWholeOrNotThereAfterAKill)
{
    ASSERT_NO_FATAL_FAILURE(run(""));
    const size_t all = events.size();
    unsigned done = 0, undone = 0;
    for (size_t at = 0; at < 2 * all; at++) {
        put(file, began);
        dies_at = at / 2;
        const pid_t pid = fork();
        if (pid == 0) {
            run("");
            _exit(HasFailure());
        }
        int status = 0;
        waitpid(pid, &status, 0);
        dies_at = SIZE_MAX;
        ASSERT_TRUE(WIFSIGNALED(status) || (at / 2 == all - 1 && status == 0)) << at;
        Db db = at % 2 ? Db::stock(file) : Db(file);
        const std::string is = db.text(VALUES);
        ASSERT_TRUE(is == before || is == after) << "event " << at / 2 << ": " << is.substr(0, 99);
        (is == after ? done : undone)++;
        MUST(db, "UPDATE t SET a = a");
        db.close();
        EXPECT_EQ(Db::stock(file).text("PRAGMA integrity_check"), "ok");
        for (const std::string &name : support::names_in(disk->path()))
            EXPECT_TRUE(name == "a.db" || name == ".ato") << name;
    }
    EXPECT_GT(done, 0u);
    EXPECT_GT(undone, done);
}

/* Where its journal cannot be made, it is staged; later SQLite rolls back. */
TEST_F(SqliteFirstCommit, IsWholeOrNotThereAfterAnError)
{
    ASSERT_NO_FATAL_FAILURE(run(""));
    const size_t all = events.size();
    unsigned done = 0, undone = 0;
    for (size_t at = 0; at < 2 * all; at++) {
        put(file, began);
        failure = at % 2 ? SQLITE_FULL : SQLITE_IOERR_WRITE;
        int r = SQLITE_OK;
        {
            Db db(file);
            events.clear();
            fails_at = at / 2;
            notes = true;
            r = db.run("UPDATE t SET b = " + row(77) + " WHERE a > 2");
            notes = false;
            fails_at = SIZE_MAX;
            EXPECT_EQ(db.text(VALUES), r == SQLITE_OK ? after : before) << at;
        }
        (r == SQLITE_OK ? done : undone)++;
        Db db = Db::stock(file);
        EXPECT_EQ(db.text(VALUES), r == SQLITE_OK ? after : before) << at;
        EXPECT_EQ(db.text("PRAGMA integrity_check"), "ok");
        db.close();
        for (const std::string &name : support::names_in(disk->path()))
            EXPECT_TRUE(name == "a.db" || name == ".ato") << at << ": " << name;
    }
    EXPECT_GT(done, 6u); /* there are three events before the first sync */
    EXPECT_GT(undone, 6u);
}

/* SQLite may not notice that its journal is still there: in locking mode EXCLUSIVE it does not look. It goes on, and what it acknowledges
 * stays. */
TEST_F(SqliteFirstCommit, ThatLeavesItsJournalDoesNotTakeLaterOnesBack)
{
    ASSERT_NO_FATAL_FAILURE(run(""));
    const size_t all = events.size();
    failure = SQLITE_IOERR;
    for (const char *mode : {"delete", "truncate"})
        for (const char *locking : {"normal", "exclusive"})
            for (size_t at = 0; at < 2 * all; at++) {
                SCOPED_TRACE(std::string(mode) + ", " + locking + ", " + std::to_string(at));
                put(file, began);
                (void)unlink((file + "-journal").c_str());
                Db db(file);
                MUST(db, "PRAGMA journal_mode=" + std::string(mode) +
                             "; PRAGMA locking_mode=" + locking);
                events.clear();
                fails_at = at / 2;
                fails_on = at % 2;
                notes = true;
                (void)db.run("UPDATE t SET b = " + row(77) + " WHERE a > 2");
                notes = false;
                fails_at = SIZE_MAX;
                fails_on = false;
                if (db.run("UPDATE t SET b = 'later' WHERE a = 3") != SQLITE_OK)
                    continue;
                MUST(db, "INSERT INTO t(b) VALUES(hex(zeroblob(9000)))");
                db.close();
                Db stock = Db::stock(file);
                ASSERT_EQ(stock.text("SELECT b FROM t WHERE a = 3"), "later");
                ASSERT_EQ(stock.number("SELECT count(*) FROM t"), 5);
                ASSERT_EQ(stock.text("PRAGMA integrity_check"), "ok");
            }
}

/* In journal mode TRUNCATE SQLite keeps its journal open as long as it reads, and looks for no other one. */
TEST_F(SqliteFirstCommit, IsFollowedByOthersThoughAKilledProcessHasLeftAJournal)
{
    Db db(file);
    MUST(db, "PRAGMA journal_mode=truncate");
    sqlite3_stmt *reads;
    ASSERT_EQ(sqlite3_prepare_v2(db.handle, "SELECT a FROM t", -1, &reads, nullptr), SQLITE_OK);
    ASSERT_EQ(sqlite3_step(reads), SQLITE_ROW);
    MUST(db, "UPDATE t SET b = 1 WHERE a = 1");
    const pid_t pid = fork();
    if (pid == 0) {
        Db own = Db::stock(file);
        MUST(own, "PRAGMA synchronous=off; BEGIN IMMEDIATE; UPDATE t SET b = 'no'");
        raise(SIGKILL);
    }
    int status = 0;
    waitpid(pid, &status, 0);
    ASSERT_GT(support::size_of(file + "-journal"), 0u);
    MUST(db, "UPDATE t SET b = 2 WHERE a = 1");
    sqlite3_finalize(reads);
    db.close();
    Db stock = Db::stock(file);
    EXPECT_EQ(stock.text("SELECT b FROM t WHERE a = 1"), "2");
    EXPECT_EQ(stock.text("PRAGMA integrity_check"), "ok");
}

TEST_F(SqliteFirstCommit, ToAFileThatHasLostItsNameIsRefused)
{
    Db db(file);
    MUST(db, "BEGIN; UPDATE t SET b = 1");
    ASSERT_EQ(rename(file.c_str(), (*disk / "b.db").c_str()), 0);
    put(file, began);
    EXPECT_NE(db.run("COMMIT"), SQLITE_OK);
    (void)db.run("ROLLBACK");
    db.close();
    for (const char *name : {"a.db", "b.db"})
        EXPECT_EQ(Db::stock(*disk / name).text(VALUES), before) << name;
}

/* The first sync of a new journal is two: that of its folder comes with it; and so is a durable deletion one. */
TEST_F(SqliteFirstCommit, MakesNoMoreSyncsThanSqliteItself)
{
    ASSERT_NO_FATAL_FAILURE(run(""));
    EXPECT_EQ(count(Event::SYNC, true) + 1 + count(Event::SYNC, false) +
                  count(Event::DELETE_DURABLY, true),
              5u);
    EXPECT_EQ(count(Event::CREATE, true), 1u);
}

TEST_F(SqliteFirstCommit, LeavesAPlainDatabaseToOtherPrograms)
{
    Db db(file);
    ASSERT_EQ(other.open_stock(file), SQLITE_OK);
    MUST(db, "UPDATE t SET b = 1 WHERE a = 1");
    EXPECT_EQ(other.text("SELECT b FROM t WHERE a = 1"), "1");
    EXPECT_EQ(other.run("UPDATE t SET b = 2 WHERE a = 1"), SQLITE_OK);
    EXPECT_EQ(db.text("SELECT b FROM t WHERE a = 1"), "2");
    EXPECT_EQ(support::names_in(disk->path()).size(), 1u);
    /* From the second one on they are staged. */
    MUST(db, "UPDATE t SET b = 3 WHERE a = 1");
    EXPECT_EQ(other.run("UPDATE t SET b = 4 WHERE a = 1"), SQLITE_BUSY);
    db.close();
    EXPECT_EQ(other.text("SELECT b FROM t WHERE a = 1"), "3");
}

/* Nothing below is asked to sync then, and a commit is durable all the same. Pages are staged before the commit if they do not fit into
 * SQLite's cache. */
TEST_F(SqliteFirstCommit, IsStagedWithoutSyncsOrAJournalAndIfItIsLarge)
{
    for (const char *first :
         {"PRAGMA synchronous=off", "PRAGMA journal_mode=memory", "PRAGMA journal_mode=off"}) {
        ASSERT_NO_FATAL_FAILURE(run(first));
        EXPECT_EQ(count(Event::CREATE, true), 0u) << first;
        put(file, began);
    }
    Db db(file);
    MUST(db, "PRAGMA cache_size=1; PRAGMA cache_spill=1");
    events.clear();
    notes = true;
    MUST(db, "BEGIN; " + fill("t", 10, 400) + "; UPDATE t SET b = randomblob(3000); COMMIT");
    notes = false;
    EXPECT_EQ(count(Event::WRITE, false), 0u);
}

} // namespace
} // namespace sql
