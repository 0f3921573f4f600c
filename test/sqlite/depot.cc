/* SPDX-License-Identifier: BSD-3-Clause */
#include "depot.h"

#include "sql.h"

#include <algorithm>
#include <cstdarg>
#include <cstring>

namespace depot
{

using kills::leave;
using kills::Note;
using kills::Say;
using kills::Teller;

static const char *const names[FILES] = {"main", "other"};

/* Formats SQL like sqlite3_mprintf(). */
static std::string text(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    char *made = sqlite3_vmprintf(format, args);
    va_end(args);
    std::string is = made;
    sqlite3_free(made);
    return is;
}

/* ---- notes of the writers ---- */

static void tell(const Teller &t, Say say, const States &states)
{
    Note n{};
    static_assert(sizeof(states) <= sizeof(n.text), "fits into a note");
    n.say = say;
    std::memcpy(n.text, &states, sizeof(states));
    t.tell(n);
}

static States states_of(const Note &n)
{
    States states;
    std::memcpy(&states, n.text, sizeof(states));
    return states;
}

void Book::hear(const std::vector<Note> &notes)
{
    for (const Note &n : notes) {
        const States states = states_of(n);
        if (n.say == Say::Begin)
            begun.push_back(states);
        acknowledged += n.say == Say::Told;
        for (unsigned f = 0; f < FILES && n.say == Say::Told; f++)
            told[f] = std::max(told[f], states.of[f].number);
    }
    interrupted += !notes.empty() && notes.back().say == Say::Begin;
}

std::string Book::judge(const States &found) const
{
    auto say = [&](unsigned f) {
        const State &s = found.of[f];
        return text("%s is at transaction %llu (%llu rows, sum %llu)", names[f], s.number, s.rows,
                    s.sum);
    };
    auto one_has =
        [&](auto files) { /* does one transaction leave these states? */
                          return std::any_of(begun.begin(), begun.end(), [&](const States &s) {
                              return std::all_of(files.begin(), files.end(), [&](unsigned f) {
                                  return s.of[f] == found.of[f];
                              });
                          });
        };
    for (unsigned f = 0; f < FILES; f++) {
        if (found.of[f].number < told[f])
            return say(f) + text(", and %llu was acknowledged", told[f]);
        if (!one_has(std::vector{f}))
            return say(f) + ", which no transaction would have left";
    }
    return together && !one_has(std::vector{0u, 1u}) ? say(0) + ", and " + say(1) : "";
}

void Book::settle(const std::vector<Note> &notes)
{
    for (const Note &n : notes)
        if (n.say == Say::Verdict)
            begun = {states_of(n)};
    for (unsigned f = 0; f < FILES; f++)
        told[f] = begun[0].of[f].number;
}

/* ---- rows ---- */

/* SQL function body(id, salt, n): n bytes that follow from id and salt. */
static void body(sqlite3_context *c, int, sqlite3_value **v)
{
    const auto n = static_cast<size_t>(sqlite3_value_int64(v[2]));
    std::vector<unsigned char> bytes(n);
    rig::Random(static_cast<uint64_t>(sqlite3_value_int64(v[0])) << 24 ^
                static_cast<uint64_t>(sqlite3_value_int64(v[1])))
        .fill(bytes.data(), n);
    sqlite3_result_blob(c, bytes.data(), static_cast<int>(n), SQLITE_TRANSIENT);
}

static void must(const sql::Db &db, const std::string &statements)
{
    if (db.run(statements) != SQLITE_OK)
        leave(statements + ": " + db.error());
}

static void prepare(const sql::Db &db)
{
    if (db.opened != SQLITE_OK)
        leave("cannot open: " + db.error());
    sqlite3_busy_timeout(db.handle, 30000);
    sqlite3_create_function(db.handle, "body", 3,
                            SQLITE_UTF8 | SQLITE_DETERMINISTIC | SQLITE_INNOCUOUS, nullptr, body,
                            nullptr, nullptr);
}

/* Covers every value that a body follows from. */
#define DIGEST(row) "(" row "id * 7919 + " row "salt * 104729 + length(" row "body) * 31) % 1000003"

void found(const Place &place, uint64_t seed)
{
    rig::Random random(seed);
    for (unsigned f = 0; f < FILES; f++) {
        sql::Db db = random.chance(50) ? sql::Db(place.path(f)) : sql::Db::stock(place.path(f));
        prepare(db);
        must(db, text("PRAGMA page_size=%d; PRAGMA auto_vacuum=%d", 512 << random.below(8),
                      static_cast<int>(random.below(3))));
        must(db, "CREATE TABLE state(number, rows, sum); INSERT INTO state VALUES(0, 0, 0);"
                 "CREATE TABLE item(id INTEGER PRIMARY KEY, salt, tag UNIQUE, body BLOB);"
                 "CREATE TRIGGER added AFTER INSERT ON item BEGIN UPDATE state SET rows=rows+1,"
                 " sum=sum+" DIGEST("new.") "; END;"
                                            "CREATE TRIGGER removed AFTER DELETE ON item BEGIN "
                                            "UPDATE state SET rows=rows-1,"
                                            " sum=sum-" DIGEST(
                                                "old.") "; END;"
                                                        "CREATE TRIGGER changed AFTER UPDATE ON "
                                                        "item BEGIN UPDATE state SET"
                                                        " sum=sum-" DIGEST("old.") "+" DIGEST(
                                                            "new.") "; END;");
    }
}

/* Has another process deleted the super-journal of a dead one whose transaction both have rolled back, each in another database, before this
 * one could? SQLite's own VFS has these errors, too. */
static bool was_late(const sql::Db &db)
{
    const int error = sqlite3_extended_errcode(db.handle);
    return error == SQLITE_CANTOPEN || error == SQLITE_IOERR_DELETE_NOENT;
}

static sql::Db open_both(const Script &s, const Place &place, bool fast)
{
    if (s.domain)
        setenv("ATO_DURABILITY", s.domain, 1);
    const std::string parameters = fast ? "unmap=fast" : "unmap=plain";
    sql::Db db(place.path(0), parameters);
    prepare(db);
    const std::string attach = "ATTACH '" + sql::uri(place.path(1), parameters) + "' AS other";
    while (db.run(attach) != SQLITE_OK)
        if (!was_late(db))
            leave(attach + ": " + db.error());
    return db;
}

static States read_states(const sql::Db &db)
{
    States states;
    for (unsigned f = 0; f < FILES; f++) {
        auto n = [&](const char *column) {
            const int64_t value = db.number(text("SELECT %s FROM %s.state", column, names[f]));
            if (value < 0)
                leave("the state of " + std::string(names[f]) + ": " + db.error());
            return static_cast<uint64_t>(value);
        };
        states.of[f] = {n("number"), n("rows"), n("sum")};
    }
    return states;
}

namespace
{

/* ---- writers ---- */

class Writer
{
  public:
    Writer(const Script &s, const Place &place, uint64_t seed, const Teller &t)
        : script(s), random(seed), teller(t), db(open_both(s, place, random.chance(50)))
    {
        const std::string journal = one_of(s.journal_modes);
        const bool exclusive = s.writers == 1 && random.chance(25);
        spills = random.chance(70);
        for (const char *file : names) {
            must(db, text("PRAGMA %s.synchronous=%s; PRAGMA %s.locking_mode=%s", file,
                          one_of(s.synchronous), file, exclusive ? "exclusive" : "normal"));
            if (spills)
                must(db, text("PRAGMA %s.cache_size=%d", file, within(5, 60)));
            if (random.chance(20))
                must(db, text("PRAGMA %s.mmap_size=1000000", file));
            /* If the database is BUSY, the mode stays. */
            went(text("PRAGMA %s.journal_mode=%s", file, journal.c_str()));
        }
        must(db, text("PRAGMA cache_spill=%d", spills));
        if (random.chance(15))
            must(db, text("PRAGMA wal_autocheckpoint=%d", within(1, 50)));
        /* Where ROLLBACK TO comes after a spill, SQLite (to 3.40 at least) may write a WAL whose checksums are
         * wrong from there on: recovery, by whatever VFS, loses what follows. */
        undoes_parts = journal != "off" && (journal != "wal" || !spills);
        rolls_back = journal != "off" || !exclusive;
    }
    void work()
    {
        if (random.chance(5))
            between(names[random.below(FILES)]);
        transact();
    }

  private:
    const Script &script;
    rig::Random random;
    const Teller &teller;
    sql::Db db;
    bool spills, undoes_parts, rolls_back;
    std::vector<const char *> changed; /* by this transaction */

    const char *one_of(const std::vector<const char *> &all)
    {
        return all[random.below(all.size())];
    }
    int within(int least, int most)
    {
        return least + static_cast<int>(random.below(static_cast<uint64_t>(most - least + 1)));
    }
    int up_to(uint64_t most)
    {
        return static_cast<int>(random.log_uniform(most));
    }
    /* Returns false if another process was in the way (SQLITE_BUSY, was_late()). Any other error ends the process. */
    bool went(const std::string &statement)
    {
        const int r = db.run(statement);
        if (r != SQLITE_OK && ((r != SQLITE_BUSY && !was_late(db)) || script.writers == 1))
            leave(statement + ": " + db.error());
        return r == SQLITE_OK;
    }
    void between(const char *file)
    {
        switch (random.below(5)) {
        case 0:
            must(db, text("PRAGMA %s.page_size=%d", file, 512 << random.below(8)));
            [[fallthrough]];
        case 1:
            went(text("VACUUM %s", file));
            break;
        case 2:
            went(text("PRAGMA %s.incremental_vacuum(%d)", file, within(1, 200)));
            break;
        case 3:
            went(text("PRAGMA %s.wal_checkpoint(%s)", file,
                      random.chance(50) ? "passive" : "truncate"));
            break;
        case 4:
            if (spills)
                must(db, text("PRAGMA %s.cache_size=%d", file, within(5, 500)));
        }
    }

    /* ---- within a transaction ---- */

    int key(const char *file)
    {
        const int64_t last = db.number(text("SELECT coalesce(max(id), 0) FROM %s.item", file));
        return static_cast<int>(random.below(static_cast<uint64_t>(last) + 1));
    }
    /* Adds about `pages` pages, in rows of all sizes. */
    void add(const char *file, uint64_t pages)
    {
        const auto page = static_cast<uint64_t>(db.number(text("PRAGMA %s.page_size", file))),
                   bytes = std::min<uint64_t>(pages * page, 2 << 20);
        const int one = up_to(std::min<uint64_t>(bytes, 50000)), salt = within(0, 999999),
                  rows = std::min(static_cast<int>(bytes) / one + 1, 400);
        went(text("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<%d),"
                  " k(first) AS (SELECT coalesce(max(id), 0) FROM %s.item) INSERT INTO %s.item"
                  " SELECT first+i, %d, (first+i)||'-%d', body(first+i, %d, %d+i%%7) FROM n, k",
                  rows, file, file, salt, salt, salt, one));
    }
    /* Changes rows until a UNIQUE constraint fails. */
    void stumble(const char *file)
    {
        const int r = db.run(text("UPDATE %s.item SET salt=1, body=body(id, 1, 3000), tag=CASE WHEN"
                                  " id%%9=8 THEN 'twice' ELSE tag END WHERE id>%d",
                                  file, key(file)));
        if (r != SQLITE_OK && r != SQLITE_CONSTRAINT)
            leave("an update that stumbles: " + db.error());
    }
    void step(const char *file)
    {
        const int64_t pages = db.number(text("PRAGMA %s.page_count", file)),
                      page = db.number(text("PRAGMA %s.page_size", file));
        const int salt = within(0, 999999), first = key(file);
        if (pages > 1200 || pages * page > (4 << 20)) {
            went(text("DELETE FROM %s.item WHERE id%%%d<>0", file, within(2, 9)));
            return;
        }
        switch (random.below(undoes_parts ? 6 : 5)) {
        case 0:
        case 1:
            return add(file, random.log_uniform(500));
        case 2:
        case 3:
            went(
                text("UPDATE %s.item SET salt=%d, body=body(id, %d, %d) WHERE id BETWEEN %d AND %d",
                     file, salt, salt, up_to(5000), first, first + up_to(60)));
            return;
        case 4:
            went(text("DELETE FROM %s.item WHERE id BETWEEN %d AND %d", file, first,
                      first + up_to(200)));
            return;
        default:
            return stumble(file);
        }
    }
    void steps()
    {
        for (const char *file : changed)
            if (random.chance(85))
                for (uint64_t n = random.log_uniform(3); n; n--)
                    step(file);
    }
    void savepoint(int depth)
    {
        must(db, text("SAVEPOINT s%d", depth));
        steps();
        if (depth < 3 && random.chance(30))
            savepoint(depth + 1);
        if (undoes_parts && random.chance(50)) {
            must(db, text("ROLLBACK TO s%d", depth));
            if (random.chance(30))
                steps();
        }
        must(db, text("RELEASE s%d", depth));
    }
    void roll_back()
    {
        /* SQLite may have ended a failed transaction itself. */
        if (!sqlite3_get_autocommit(db.handle))
            must(db, "ROLLBACK");
    }
    void transact()
    {
        static const char *const begins[] = {"BEGIN", "BEGIN IMMEDIATE", "BEGIN EXCLUSIVE"};
        if (!went(begins[script.writers > 1 ? 1 : random.below(3)]))
            return;
        changed.assign(names, names + FILES);
        if (!script.together && random.chance(60))
            changed = {names[random.below(FILES)]};
        const bool is_small =
            changed.size() == 1 && random.chance(50); /* it does not change a size */
        if (!is_small)
            steps();
        if (!is_small && random.chance(30))
            savepoint(1);
        if (rolls_back && random.chance(15))
            return roll_back();
        for (const char *file : changed)
            must(db, text("UPDATE %s.state SET number=number+1", file));
        const States states = read_states(db);
        tell(teller, Say::Begin, states);
        for (int tries = 0; !went("COMMIT"); tries++)
            if (tries == 10)
                return roll_back();
        tell(teller, Say::Told, states);
    }
};

} // namespace

void write_until_killed(const Script &s, const Place &place, uint64_t seed, const Teller &t)
{
    Writer writer(s, place, seed, t);
    for (;;)
        writer.work();
}

/* ---- checks ---- */

static States examine(const sql::Db &db, const Book &book)
{
    const States found = read_states(db);
    for (const char *file : names) {
        auto must_be = [&](const std::string &statement, const std::string &wanted) {
            const std::string is = db.text(statement);
            if (is != wanted)
                leave(text("%s: %s: %s, not %s", file, statement.c_str(), is.c_str(),
                           wanted.c_str()));
        };
        must_be(text("PRAGMA %s.integrity_check", file), "ok");
        must_be(text("SELECT count(*) FROM %s.item WHERE body IS NOT body(id, salt, length(body))",
                     file),
                "0");
        must_be(text("SELECT count(*)||' '||coalesce(sum(%s), 0) FROM %s.item", DIGEST(""), file),
                db.text(text("SELECT rows||' '||sum FROM %s.state", file)));
    }
    const std::string wrong = book.judge(found);
    if (!wrong.empty())
        leave(wrong);
    return found;
}

/* SQLite may leave an unused super-journal, and a journal that is empty or has no valid head. A kill may leave an empty folder that was to become the reflection folder. `objects`: names of shared memory;
 * names of all generations begin with the same 32 digits. */
static void must_be_bare(const Place &place, const std::vector<std::string> &objects)
{
    const std::string databases[] = {"depot.db", "other.db"};
    for (const std::string &name : rig::names_in(place.folder / ".ato"))
        leave(".ato/" + name + " is left");
    for (const std::string &name : rig::names_in(place.folder.at)) {
        bool known = name == ".ato" || name.rfind(".ato.", 0) == 0;
        for (const std::string &is : databases)
            known |= name == is || name.rfind(is + "-mj", 0) == 0 || name == is + "-journal";
        if (!known)
            leave(name + " is left");
    }
    for (const std::string &name : rig::names_in("/dev/shm"))
        for (const std::string &object : objects)
            if (("/dev/shm/" + name).compare(0, 13 + 32, object, 0, 13 + 32) == 0)
                leave("/dev/shm/" + name + " is left");
}

void look(const Script &s, const Place &place, const Book &book, End end, const Teller &t)
{
    sql::Db db = open_both(s, place, end == End::Fast);
    const std::vector<std::string> objects = rig::shared_objects();
    const States seen = examine(db, book);
    tell(t, Say::Verdict, seen);
    if (end == End::Abandoned)
        leave("");
    /* A kill in a removal may leave files that nothing needs: the next map of the file removes them, for a write. A write to a WAL
     * does not map it. */
    for (const char *file : names)
        for (int commits = 0; end == End::Plain && commits < 2;
             commits++) /* on a disk the first one maps nothing */
            must(db, text("PRAGMA %s.journal_mode=delete; PRAGMA %s.user_version=%d", file, file,
                          static_cast<int>(db.number(text("PRAGMA %s.user_version", file))) + 1));
    if (db.close() != SQLITE_OK)
        leave("cannot close");
    if (end == End::Fast)
        return;
    must_be_bare(place, objects);
    sql::Db plain = sql::Db::stock(place.path(0));
    prepare(plain);
    must(plain, "ATTACH '" + place.path(1) + "' AS other");
    const States same = examine(plain, book);
    if (!(same.of[0] == seen.of[0] && same.of[1] == seen.of[1]))
        leave("SQLite's own VFS finds another transaction");
}

} // namespace depot
