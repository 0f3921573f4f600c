// SPDX-License-Identifier: BSD-3-Clause
//
// SQLite's transactions through the VFS of lib/sqlite. Databases are small, with pages that are
// parts of libato's pages or as large: the limits that they cross matter.
//
// Without WALs and their checkpoints: the VFS below writes these, and is not recorded.
#include "program.h"
#include "scenes.h"

namespace crash
{

namespace
{

std::string number(uint64_t n)
{
    return std::to_string(n);
}

// A row is a little more than a sixth of a page. With small pages there are more rows, so that
// there are several of libato's pages.
uint64_t rows_of(uint64_t page_size)
{
    return page_size < PAGE ? 64 * 1024 / page_size : 24;
}

struct Make {
    uint64_t page_size, auto_vacuum;
};

std::vector<std::string> statements(const Make &m)
{
    const std::string bytes = number(m.page_size / 6), rows = number(rows_of(m.page_size));
    return {
        "PRAGMA page_size = " + number(m.page_size),
        "PRAGMA auto_vacuum = " + number(m.auto_vacuum),
        "CREATE TABLE t(k INTEGER PRIMARY KEY, n INTEGER, v BLOB)",
        "CREATE INDEX i ON t(n)",
        // Bytes that all differ, and are the same in every run.
        "WITH RECURSIVE r(k) AS (SELECT 1 UNION ALL SELECT k + 1 FROM r WHERE k < " + rows +
            ") INSERT INTO t SELECT k, k * 7919 % 1000, CAST(printf('%0" + bytes +
            "d', k * 104729) AS BLOB) FROM r",
    };
}

std::string table(size_t file)
{
    return file ? "b.t" : "main.t";
}

// ---- statements ----

std::string value(Actor &a, uint64_t n)
{
    static const char digits[] = "0123456789abcdef";
    std::string hex;
    for (const unsigned char byte : a.some(n)) {
        hex += digits[byte >> 4];
        hex += digits[byte & 15];
    }
    return "x'" + hex + "'";
}

uint64_t page_size(const Actor &a, size_t file = 0)
{
    return page_size_of(a.contents[file]);
}

std::string change_a_row(Actor &a, size_t file = 0)
{
    return "UPDATE " + table(file) + " SET n = " + number(a.random.below(1000)) +
           ", v = " + value(a, page_size(a, file) / 6) +
           " WHERE k = " + number(1 + a.random.below(rows_of(page_size(a, file))));
}

std::string change_many(Actor &a, size_t file = 0)
{
    return "UPDATE " + table(file) + " SET n = n * 31 % 1000 + " + number(a.random.below(99)) +
           ", v = CAST(v || " + value(a, 3) + " AS BLOB) WHERE k % 4 <> " +
           number(a.random.below(4));
}

// Of several pages, or of one.
std::string insert(Actor &a, size_t file = 0)
{
    const uint64_t page = page_size(a, file), n = page / (a.random.one_in(2) ? 1 : 6) * 2;
    return "INSERT INTO " + table(file) + "(n, v) VALUES(" + number(a.random.below(1000)) + ", " +
           value(a, n + a.random.below(40)) + ")";
}

std::string remove_many(Actor &a, size_t file = 0)
{
    return "DELETE FROM " + table(file) + " WHERE k > " +
           number(2 + a.random.below(rows_of(page_size(a, file)) - 6)) + " AND k % 5 <> 1";
}

void run(Actor &a, const std::vector<std::string> &sql)
{
    for (const std::string &statement : sql)
        Program::of(a).run(statement);
}

// So small a cache that nearly every page is written at once.
std::vector<std::string> tiny_cache(size_t files)
{
    std::vector<std::string> sql;
    for (size_t i = 0; i < files; i++) {
        sql.push_back(i ? "PRAGMA b.cache_size = 2" : "PRAGMA main.cache_size = 2");
        sql.push_back(i ? "PRAGMA b.cache_spill = 1" : "PRAGMA main.cache_spill = 1");
    }
    return sql;
}

// ---- before ----

void open_plain(Actor &a, const std::vector<Make> &files)
{
    std::vector<std::vector<std::string>> sql;
    for (const Make &m : files)
        sql.push_back(statements(m));
    Program::make(a, sql);
    Program::open(a);
}

void open(Actor &a, const std::vector<Make> &files)
{
    open_plain(a, files);
    for (size_t i = 0; i < files.size(); i++) {
        // Makes the reflection, and puts nothing there that counts.
        const std::string cache = std::string("PRAGMA ") + (i ? "b" : "main") + ".cache_size = ";
        run(a, {cache + "1", "BEGIN", change_many(a, i), "ROLLBACK", cache + "-2000"});
        litter(a, static_cast<int>(i));
    }
    // Puts slices into both homes, and uses lanes.
    for (size_t i = 0; i < files.size(); i++)
        run(a, {change_many(a, i), change_a_row(a, i)});
    litter_lanes(a);
}

Make any_make(Actor &a)
{
    static const uint64_t sizes[] = {512, 1024, 4096};
    return {sizes[a.random.below(3)], 0};
}

void before_one(Actor &a)
{
    open(a, {any_make(a)});
}

// Nobody has written yet: there is no reflection.
void before_first(Actor &a)
{
    open_plain(a, {any_make(a)});
    if (a.random.one_in(2))
        run(a, tiny_cache(1));
}

// Each read brings home what it reads.
void before_eager(Actor &a)
{
    setenv("ATO_READ_POLICY", "eager", 1);
    before_one(a);
    unsetenv("ATO_READ_POLICY");
}

void before_spills(Actor &a)
{
    before_one(a);
    run(a, tiny_cache(1));
}

void before_vacuum(Actor &a)
{
    Make m = any_make(a);
    m.auto_vacuum = a.random.below(3);
    open(a, {m});
}

// Puts slices into both homes. Bytes behind the end of a shorter file are kept as long as it is
// mapped.
void before_wal(Actor &a)
{
    before_one(a);
    run(a, {change_many(a), insert(a)});
    if (a.random.one_in(2))
        run(a, {remove_many(a), "VACUUM", change_a_row(a)});
}

// ---- run ----

void rows(Actor &a)
{
    run(a, {change_a_row(a), insert(a), change_a_row(a)});
}

// The first transaction that writes may be rolled back.
void first(Actor &a)
{
    if (a.random.one_in(2))
        run(a, {"BEGIN", change_many(a), insert(a), "ROLLBACK"});
    run(a, {"BEGIN", change_many(a), insert(a), "COMMIT", change_a_row(a)});
}

void many_pages(Actor &a)
{
    run(a, {"BEGIN", change_many(a), insert(a), change_a_row(a), "COMMIT", change_a_row(a)});
}

void spill(Actor &a)
{
    run(a, {"BEGIN", change_many(a), insert(a), change_a_row(a), "COMMIT", change_a_row(a)});
}

void spill_and_roll_back(Actor &a)
{
    // In this mode SQLite has no rollback journal, and its own VFS would leave half of the
    // transaction.
    if (a.random.one_in(2))
        Program::of(a).set("PRAGMA journal_mode = off");
    run(a, {"BEGIN", insert(a), change_many(a), a.random.one_in(2) ? remove_many(a) : insert(a),
            "ROLLBACK", change_a_row(a)});
}

void savepoints(Actor &a)
{
    if (a.random.one_in(2))
        run(a, tiny_cache(1));
    run(a, {"BEGIN", change_a_row(a), "SAVEPOINT one", change_many(a), "SAVEPOINT two", insert(a),
            "ROLLBACK TO two", "RELEASE two", change_a_row(a)});
    if (a.random.one_in(2))
        run(a, {"ROLLBACK TO one"});
    run(a, {"RELEASE one", "COMMIT", "SAVEPOINT three", change_a_row(a), "RELEASE three"});
}

void grow(Actor &a)
{
    run(a, {"BEGIN", insert(a), insert(a), insert(a), "COMMIT", insert(a)});
}

// One transaction with a small cache writes so much that the VFS allocates ahead. Zeros cost
// little.
void grow_ahead(Actor &a)
{
    run(a, {"BEGIN", "INSERT INTO t(n, v) VALUES(1, zeroblob(600000))", change_a_row(a)});
    run(a, {a.random.one_in(2) ? "COMMIT" : "ROLLBACK", change_a_row(a)});
}

void vacuum(Actor &a)
{
    run(a, {remove_many(a), a.random.one_in(2) ? "PRAGMA incremental_vacuum" : "VACUUM",
            change_a_row(a), insert(a)});
}

// And back, perhaps. The WAL stays empty.
void to_wal(Actor &a)
{
    run(a, {"PRAGMA journal_mode = wal"});
    if (a.random.one_in(2))
        run(a, {"PRAGMA journal_mode = delete", change_a_row(a)});
}

void left_open(Actor &a)
{
    run(a, {change_a_row(a), "BEGIN", change_many(a), insert(a), change_a_row(a)});
}

void closed(Actor &a)
{
    run(a, {change_many(a)});
    for (int i = 0; i < 2; i++) {
        Program::close(a, a.random.one_in(2) ? Program::Leaves::Plain : Program::Leaves::Fast);
        Program::open(a).check();
        run(a, {change_a_row(a), insert(a)});
    }
}

// ---- after a crash ----

void leave(Actor &a)
{
    switch (a.random.below(3)) {
    case 0:
        Program::close(a, Program::Leaves::Plain);
        for (size_t i = 0; i < a.contents.size(); i++)
            if (unmasked(a.world.plain_content(static_cast<int>(i))) != unmasked(a.contents[i]))
                throw Violation("closed after the recovery, a database has another content");
        break;
    case 1:
        Program::close(a, Program::Leaves::Fast);
        break;
    case 2:
        a.world.die();
        break;
    }
}

void look(Actor &a)
{
    Program::open(a).check();
    leave(a);
}

void go_on(Actor &a)
{
    Program::open(a).check();
    a.allow_this();
    const size_t last = a.contents.size() - 1;
    switch (a.random.below(4)) {
    case 0:
        run(a, {change_a_row(a), change_a_row(a, last)});
        break;
    case 1:
        run(a, {"BEGIN", insert(a, last), change_many(a), "COMMIT"});
        break;
    case 2:
        run(a, {"BEGIN", change_many(a, last), "ROLLBACK", "BEGIN", change_a_row(a),
                remove_many(a, last), "COMMIT"});
        break;
    }
    switch (a.random.below(3)) {
    case 0:
        Program::close(a, Program::Leaves::Plain);
        break;
    case 1:
        Program::close(a, Program::Leaves::Fast);
        break;
    }
}

// Reads only: there is one WAL for all crashes.
void go_on_with_wal(Actor &a)
{
    Program::open(a).check();
    a.allow_this();
}

void look_with_wal(Actor &a)
{
    go_on_with_wal(a);
    leave(a);
}

constexpr Use SQLITE = {look, go_on}, SQLITE_WAL = {look_with_wal, go_on_with_wal};

constexpr uint64_t AHEAD = 256 << 10; // the file soon has a size of this order

} // namespace

const std::vector<Case> &sqlite_cases()
{
    constexpr unsigned DENSE = 0; // not with sparse reflections
    static const std::vector<Case> cases = {
        {"SQLite, rows", COSTLY, {PAGE}, before_one, rows, 0, &SQLITE},
        {"SQLite, first", COSTLY, {PAGE}, before_first, first, 0, &SQLITE},
        {"SQLite, eager", COSTLY, {PAGE}, before_eager, rows, 0, &SQLITE, DENSE},
        {"SQLite, many pages", ALL, {PAGE}, before_one, many_pages, 0, &SQLITE, DENSE},
        {"SQLite, spill", COSTLY, {PAGE}, before_spills, spill, 0, &SQLITE},
        {"SQLite, spill, rollback",
         COSTLY,
         {PAGE},
         before_spills,
         spill_and_roll_back,
         0,
         &SQLITE,
         DENSE},
        {"SQLite, savepoints", COSTLY, {PAGE}, before_one, savepoints, 0, &SQLITE, DENSE},
        {"SQLite, grow", COSTLY, {PAGE}, before_one, grow, 0, &SQLITE},
        {"SQLite, grow ahead", PMEM, {AHEAD}, before_spills, grow_ahead, 0, &SQLITE, DENSE},
        {"SQLite, vacuum", COSTLY, {PAGE}, before_vacuum, vacuum, 0, &SQLITE},
        {"SQLite, to WAL", COSTLY, {PAGE}, before_wal, to_wal, 0, &SQLITE_WAL, DENSE},
        {"SQLite, left open", COSTLY, {PAGE}, before_spills, left_open, 0, &SQLITE, DENSE},
        {"SQLite, closed", COSTLY, {PAGE}, before_one, closed, 0, &SQLITE},
    };
    return cases;
}

} // namespace crash
