/* SPDX-License-Identifier: BSD-3-Clause */
#include "depot.h"

#include "sql.h"

#include <algorithm>

namespace depot
{

using kills::leave;
using kills::Note;
using kills::Say;
using kills::Teller;

static const char *const names[FILES] = {"main", "other"};

/* ---- what was told ---- */

static Note note_of(Say say, const States &states)
{
    Note n{};
    static_assert(sizeof(states) <= sizeof(n.text), "fits into a note");
    n.say = say;
    std::memcpy(n.text, &states, sizeof(states));
    return n;
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
        if (n.say == Say::Begin)
            begun.push_back(states_of(n));
        if (n.say != Say::Told)
            continue;
        const States done = states_of(n);
        acknowledged++;
        for (unsigned f = 0; f < FILES; f++)
            told[f] = std::max(told[f], done.of[f].number);
    }
}

std::string Book::judge(const States &found) const
{
    auto say = [&](unsigned f) {
        const State &s = found.of[f];
        return std::string(names[f]) + " is at transaction " + std::to_string(s.number) + " (" +
               std::to_string(s.rows) + " rows, sum " + std::to_string(s.sum) + ")";
    };
    for (unsigned f = 0; f < FILES; f++)
        if (found.of[f].number < told[f])
            return say(f) + ", and " + std::to_string(told[f]) + " was acknowledged";
    auto is = [&](unsigned f) {
        return [&, f](const States &s) { return s.of[f] == found.of[f]; };
    };
    for (unsigned f = 0; f < FILES; f++)
        if (std::none_of(begun.begin(), begun.end(), is(f)))
            return say(f) + ", which no transaction would have left";
    if (together && std::none_of(begun.begin(), begun.end(),
                                 [&](const States &s) { return is(0)(s) && is(1)(s); }))
        return say(0) + ", and " + say(1);
    return "";
}

void Book::settle(const States &found)
{
    interrupted += begun.size() > 1 && begun.back().of[0].number > told[0];
    begun = {found};
    for (unsigned f = 0; f < FILES; f++)
        told[f] = found.of[f].number;
}

States heard(const std::vector<Note> &notes)
{
    for (const Note &n : notes)
        if (n.say == Say::Verdict)
            return states_of(n);
    return {};
}

/* ---- where it lies ---- */

void Place::hear(const std::vector<Note> &notes)
{
    for (const Note &n : notes)
        if (n.say == Say::Object &&
            std::find(objects.begin(), objects.end(), n.text) == objects.end())
            objects.emplace_back(n.text);
}

Place::~Place()
{
    for (const std::string &object : objects)
        unlink(object.c_str());
}

/* Journals on the disk: SQLite leaves one that is empty or has no valid head, and a super-journal that it was
 * about to use. */
static bool is_journal(const std::string &name)
{
    return name.rfind("depot.db-journal", 0) == 0 || name.rfind("depot.db-mj", 0) == 0;
}

std::string Place::leftovers(bool journals) const
{
    for (const rig::Folder &folder : folders) {
        for (const std::string &name : rig::names_in(folder / ".ato"))
            return ".ato/" + name;
        for (const std::string &name : rig::names_in(folder.at))
            if (name != "depot.db" && name != ".ato" && !(journals && is_journal(name)))
                return name;
    }
    for (const std::string &object : objects)
        if (std::filesystem::exists(object))
            return object;
    return "";
}

/* ---- rows ---- */

static uint64_t mix(uint64_t h, uint64_t v)
{
    return rig::Random(h ^ v * 0x9e3779b97f4a7c15ull).next();
}

static std::vector<unsigned char> body_of(sqlite3_int64 id, sqlite3_int64 salt, size_t n)
{
    std::vector<unsigned char> body(n);
    rig::Random(mix(static_cast<uint64_t>(id), static_cast<uint64_t>(salt))).fill(body.data(), n);
    return body;
}

/* body(id, salt, n) */
static void body(sqlite3_context *c, int, sqlite3_value **v)
{
    const auto n = static_cast<size_t>(sqlite3_value_int64(v[2]));
    std::vector<unsigned char> b = body_of(sqlite3_value_int64(v[0]), sqlite3_value_int64(v[1]), n);
    sqlite3_result_blob(c, b.data(), static_cast<int>(n), SQLITE_TRANSIENT);
}

/* digest(id, salt, length(body)): enough for what the body follows from. */
static void digest(sqlite3_context *c, int, sqlite3_value **v)
{
    uint64_t h = 1;
    for (int i = 0; i < 3; i++)
        h = mix(h, static_cast<uint64_t>(sqlite3_value_int64(v[i])));
    sqlite3_result_int64(c, static_cast<sqlite3_int64>(h >> 24));
}

static void is_body(sqlite3_context *c, int, sqlite3_value **v)
{
    const auto n = static_cast<size_t>(sqlite3_value_bytes(v[2]));
    const std::vector<unsigned char> b =
        body_of(sqlite3_value_int64(v[0]), sqlite3_value_int64(v[1]), n);
    sqlite3_result_int(c, n == 0 || std::memcmp(b.data(), sqlite3_value_blob(v[2]), n) == 0);
}

static void add_functions(const sql::Db &db)
{
    constexpr int flags = SQLITE_UTF8 | SQLITE_DETERMINISTIC | SQLITE_INNOCUOUS;
    sqlite3_create_function(db.handle, "body", 3, flags, nullptr, body, nullptr, nullptr);
    sqlite3_create_function(db.handle, "digest", 3, flags, nullptr, digest, nullptr, nullptr);
    sqlite3_create_function(db.handle, "is_body", 3, flags, nullptr, is_body, nullptr, nullptr);
}

static void must(const sql::Db &db, const std::string &statements)
{
    if (db.run(statements) != SQLITE_OK)
        leave(statements + ": " + db.error());
}

void found(const Place &place, uint64_t seed)
{
    rig::Random random(seed);
    for (unsigned f = 0; f < FILES; f++) {
        sql::Db db = random.chance(50) ? sql::Db(place.path(f)) : sql::Db::stock(place.path(f));
        if (db.opened != SQLITE_OK)
            leave("cannot make " + place.path(f) + ": " + db.error());
        add_functions(db);
        must(db, "PRAGMA page_size=" + std::to_string(512u << random.below(8)) +
                     "; PRAGMA auto_vacuum=" + std::to_string(random.below(3)));
        must(db, "CREATE TABLE state(number, rows, sum); INSERT INTO state VALUES(0, 0, 0);"
                 "CREATE TABLE item(id INTEGER PRIMARY KEY, salt, tag UNIQUE, body BLOB);"
                 "CREATE TRIGGER added AFTER INSERT ON item BEGIN UPDATE state SET rows=rows+1,"
                 " sum=sum+digest(new.id, new.salt, length(new.body)); END;"
                 "CREATE TRIGGER removed AFTER DELETE ON item BEGIN UPDATE state SET rows=rows-1,"
                 " sum=sum-digest(old.id, old.salt, length(old.body)); END;"
                 "CREATE TRIGGER changed AFTER UPDATE ON item BEGIN UPDATE state SET"
                 " sum=sum-digest(old.id, old.salt, length(old.body))"
                 "+digest(new.id, new.salt, length(new.body)); END;");
    }
}

/* ---- who opens it ---- */

static void use_domain(const Script &s)
{
    if (s.domain)
        setenv("ATO_DURABILITY", s.domain, 1);
}

static sql::Db open_both(const Place &place, const std::string &parameters)
{
    sql::Db db(place.path(0), parameters);
    if (db.opened != SQLITE_OK)
        leave("cannot open: " + db.error());
    sqlite3_busy_timeout(db.handle, 30000);
    add_functions(db);
    must(db, "ATTACH '" + sql::uri(place.path(1), parameters) + "' AS other");
    return db;
}

static std::string with_end(const std::string &parameters, bool fast)
{
    return parameters + (parameters.empty() ? "" : "&") + (fast ? "unmap=fast" : "unmap=plain");
}

static State read_state(const sql::Db &db, const std::string &file)
{
    auto n = [&](const char *column) {
        const int64_t value =
            db.number("SELECT " + std::string(column) + " FROM " + file + ".state");
        if (value < 0)
            leave("the state of " + file + ": " + db.error());
        return static_cast<uint64_t>(value);
    };
    return {n("number"), n("rows"), n("sum")};
}

static States read_states(const sql::Db &db)
{
    return {{read_state(db, names[0]), read_state(db, names[1])}};
}

static void tell_objects(const Teller &t)
{
    for (const std::string &object : rig::shared_objects())
        t.tell_text(Say::Object, object);
}

namespace
{

/* ---- writers ---- */

class Writer
{
  public:
    Writer(const Script &s, const Place &place, uint64_t seed, const Teller &t)
        : script(s), random(seed), teller(t),
          db(open_both(place, with_end(s.parameters, random.chance(50))))
    {
        const std::string journal = one_of(s.journal_modes);
        const bool exclusive = s.writers == 1 && random.chance(25);
        spills = random.chance(70);
        for (const char *file : names) {
            const std::string pragma = std::string("PRAGMA ") + file + ".";
            must(db, pragma + "synchronous=" + one_of(s.synchronous) + ";" + pragma +
                         "locking_mode=" + (exclusive ? "exclusive" : "normal"));
            if (spills)
                must(db, pragma + "cache_size=" + std::to_string(random.within(5, 60)));
            if (random.chance(20))
                must(db, pragma + "mmap_size=1000000");
            /* BUSY: it stays as it was. */
            went(pragma + "journal_mode=" + journal);
        }
        must(db, "PRAGMA cache_spill=" + std::to_string(spills));
        if (random.chance(15))
            must(db, "PRAGMA wal_autocheckpoint=" + std::to_string(random.within(1, 50)));
        /* Where ROLLBACK TO comes after a spill, SQLite (to 3.40 at least) may write a WAL whose checksums are
         * wrong from there on: who recovers, by whatever VFS, loses what follows. */
        undoes_parts = journal != "off" && (journal != "wal" || !spills);
        rolls_back = journal != "off" || !exclusive;
        tell_objects(t);
    }
    void work()
    {
        if (random.chance(5))
            between();
        transact();
    }

  private:
    const Script &script;
    rig::Random random;
    const Teller &teller;
    sql::Db db;
    bool spills, undoes_parts, rolls_back;

    std::string one_of(const std::vector<const char *> &all)
    {
        return all[random.below(all.size())];
    }
    /* Others may be in the way; nothing else may. False: they were, and it came to nothing. */
    bool went(const std::string &statement)
    {
        const int r = db.run(statement);
        if (r != SQLITE_OK && (r != SQLITE_BUSY || script.writers == 1))
            leave(statement + ": " + db.error());
        return r == SQLITE_OK;
    }
    void between()
    {
        const std::string file = names[random.below(FILES)];
        switch (random.below(5)) {
        case 0:
            went("VACUUM " + file);
            break;
        case 1:
            must(db, "PRAGMA " + file + ".page_size=" + std::to_string(512u << random.below(8)));
            went("VACUUM " + file);
            break;
        case 2:
            went("PRAGMA " + file + ".incremental_vacuum(" + std::to_string(random.within(1, 200)) +
                 ")");
            break;
        case 3:
            went("PRAGMA " + file + ".wal_checkpoint(" +
                 (random.chance(50) ? "passive" : "truncate") + ")");
            break;
        case 4:
            if (spills)
                must(db, "PRAGMA " + file + ".cache_size=" + std::to_string(random.within(5, 500)));
        }
    }

    /* ---- within a transaction ---- */

    std::string key(const std::string &file)
    {
        const int64_t last = db.number("SELECT coalesce(max(id), 0) FROM " + file + ".item");
        return std::to_string(random.below(static_cast<uint64_t>(last) + 1));
    }
    /* About so many pages, in rows of all sizes. */
    void add(const std::string &file, uint64_t pages)
    {
        const uint64_t bytes =
            pages * static_cast<uint64_t>(db.number("PRAGMA " + file + ".page_size"));
        const uint64_t one = random.log_uniform(std::min<uint64_t>(bytes, 50000)),
                       rows = std::min<uint64_t>(bytes / one + 1, 400),
                       salt = random.below(1000000);
        went("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<" +
             std::to_string(rows) + "), k(first) AS (SELECT coalesce(max(id), 0) FROM " + file +
             ".item) INSERT INTO " + file + ".item SELECT first+i, " + std::to_string(salt) +
             ", (first+i)||'-" + std::to_string(salt) + "', body(first+i, " + std::to_string(salt) +
             ", " + std::to_string(one) + "+i%7) FROM n, k");
    }
    void change(const std::string &file)
    {
        const std::string salt = std::to_string(random.below(1000000)),
                          n = std::to_string(random.log_uniform(5000)), first = key(file);
        went("UPDATE " + file + ".item SET salt=" + salt + ", body=body(id, " + salt + ", " + n +
             ") WHERE id BETWEEN " + first + " AND " + first + "+" +
             std::to_string(random.log_uniform(60)));
    }
    void remove(const std::string &file)
    {
        const std::string first = key(file);
        went("DELETE FROM " + file + ".item WHERE id BETWEEN " + first + " AND " + first + "+" +
             std::to_string(random.log_uniform(200)));
    }
    /* Changes rows until one is in the way. */
    void stumble(const std::string &file)
    {
        const int r = db.run("UPDATE " + file +
                             ".item SET salt=1, body=body(id, 1, 3000), tag=CASE"
                             " WHEN id%9=8 THEN 'twice' ELSE tag END WHERE id>" +
                             key(file));
        if (r != SQLITE_OK && r != SQLITE_CONSTRAINT)
            leave("an update that stumbles: " + db.error());
    }
    void step(const std::string &file)
    {
        const int64_t pages = db.number("PRAGMA " + file + ".page_count"),
                      page = db.number("PRAGMA " + file + ".page_size");
        if (pages > 1200 || pages * page > (12 << 20)) {
            went("DELETE FROM " + file + ".item WHERE id%" + std::to_string(random.within(2, 9)) +
                 "<>0");
            return;
        }
        switch (random.below(undoes_parts ? 6 : 5)) {
        case 0:
        case 1:
            return add(file, random.log_uniform(500));
        case 2:
        case 3:
            return change(file);
        case 4:
            return remove(file);
        default:
            return stumble(file);
        }
    }
    void steps()
    {
        for (const char *file : names)
            if (random.chance(85))
                for (uint64_t n = random.log_uniform(3); n; n--)
                    step(file);
    }
    void savepoint(unsigned depth)
    {
        const std::string name = "s" + std::to_string(depth);
        must(db, "SAVEPOINT " + name);
        steps();
        if (depth < 3 && random.chance(30))
            savepoint(depth + 1);
        if (undoes_parts && random.chance(50)) {
            must(db, "ROLLBACK TO " + name);
            if (random.chance(30))
                steps();
        }
        must(db, "RELEASE " + name);
    }
    void roll_back()
    {
        /* One that failed may be over by itself. */
        if (!sqlite3_get_autocommit(db.handle))
            must(db, "ROLLBACK");
    }
    void transact()
    {
        static const char *const begins[] = {"BEGIN", "BEGIN IMMEDIATE", "BEGIN EXCLUSIVE"};
        if (!went(begins[script.writers > 1 ? 1 : random.below(3)]))
            return;
        steps();
        if (random.chance(30))
            savepoint(1);
        if (rolls_back && random.chance(15))
            return roll_back();
        for (const char *file : names)
            must(db, std::string("UPDATE ") + file + ".state SET number=number+1");
        const States states = read_states(db);
        teller.tell(note_of(Say::Begin, states));
        for (int tries = 0; !went("COMMIT"); tries++)
            if (tries == 10)
                return roll_back();
        teller.tell(note_of(Say::Told, states));
    }
};

} // namespace

void write_until_killed(const Script &s, const Place &place, uint64_t seed, const Teller &t)
{
    use_domain(s);
    Writer writer(s, place, seed, t);
    for (;;)
        writer.work();
}

/* ---- who looks ---- */

static void examine(const sql::Db &db, const std::string &file)
{
    const std::string health = db.text("PRAGMA " + file + ".integrity_check");
    if (health != "ok")
        leave(file + ": " + health);
    const int64_t odd =
        db.number("SELECT count(*) FROM " + file + ".item WHERE NOT is_body(id, salt, body)");
    if (odd != 0)
        leave(file + ": " + std::to_string(odd) + " rows have wrong bodies");
    const std::string is =
        db.text("SELECT count(*)||' '||coalesce(sum(digest(id, salt, length(body))), 0) FROM " +
                file + ".item");
    const std::string sum = db.text("SELECT rows||' '||sum FROM " + file + ".state");
    if (is != sum)
        leave(file + ": rows and sum are " + is + ", not " + sum);
}

static void examine_both(const sql::Db &db, const Book &book, const Teller &t)
{
    const States found = read_states(db);
    for (const char *file : names)
        examine(db, file);
    const std::string wrong = book.judge(found);
    if (!wrong.empty())
        leave(wrong);
    t.tell(note_of(Say::Verdict, found));
}

void look(const Script &s, const Place &place, const Book &book, End end, const Teller &t)
{
    use_domain(s);
    sql::Db db = open_both(place, with_end(s.parameters, end == End::Fast));
    tell_objects(t);
    examine_both(db, book, t);
    if (end == End::Abandoned)
        leave("");
    if (db.close() != SQLITE_OK)
        leave("cannot close");
}

void look_plainly(const Place &place, const Book &book, const Teller &t)
{
    sql::Db db = sql::Db::stock(place.path(0));
    add_functions(db);
    must(db, "ATTACH '" + place.path(1) + "' AS other");
    examine_both(db, book, t);
}

} // namespace depot
