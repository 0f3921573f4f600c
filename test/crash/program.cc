// SPDX-License-Identifier: BSD-3-Clause
#include "program.h"

#include "ato_sqlite.h"

extern "C" {
#include "reflection/media/domain.h"
}

#include <cstdlib>

#include <fcntl.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <unistd.h>

namespace crash
{

uint64_t page_size_of(const Bytes &database)
{
    const uint64_t n = database[16] * 256u + database[17];
    return n == 1 ? 65536 : n;
}

namespace
{

// ---- files ----

void write_file(const std::string &path, const Bytes &bytes)
{
    int fd = open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    check(fd >= 0 && write(fd, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()),
          "writing a database");
    ::close(fd);
}

Bytes read_file(const std::string &path)
{
    struct stat st;
    int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    check(fd >= 0 && fstat(fd, &st) == 0, "opening a twin");
    Bytes bytes(static_cast<size_t>(st.st_size));
    check(read(fd, bytes.data(), bytes.size()) == st.st_size, "reading a twin");
    ::close(fd);
    return bytes;
}

std::vector<Bytes> read_all(const std::vector<std::string> &paths)
{
    std::vector<Bytes> contents;
    for (const std::string &p : paths)
        contents.push_back(read_file(p));
    return contents;
}

// Beside the folder of the files: every file in that folder is known.
std::vector<std::string> names_of_twins(const World &world)
{
    std::vector<std::string> names;
    for (size_t i = 0; i < world.originals(); i++)
        names.push_back(world.path() + "-twin-" + std::to_string(i));
    return names;
}

// ---- SQLite ----

void must(int result, sqlite3 *db, const std::string &what)
{
    if (result != SQLITE_OK)
        throw Violation(what + ": " + sqlite3_errmsg(db));
}

void execute(sqlite3 *db, const std::string &sql)
{
    must(sqlite3_exec(db, sql.c_str(), nullptr, nullptr, nullptr), db, sql.substr(0, 60));
}

std::string ask(sqlite3 *db, const std::string &sql)
{
    std::string answer;
    auto take = [](void *to, int, char **columns, char **) {
        *static_cast<std::string *>(to) += columns[0] ? columns[0] : "NULL";
        return 0;
    };
    must(sqlite3_exec(db, sql.c_str(), take, &answer, nullptr), db, sql);
    return answer;
}

std::string schema(size_t file)
{
    return file ? std::string(1, static_cast<char>('a' + file)) : "main";
}

bool in_transaction(sqlite3 *db)
{
    return !sqlite3_get_autocommit(db);
}

sqlite3 *open_all(const std::vector<std::string> &uris, const char *vfs)
{
    constexpr int FLAGS = SQLITE_OPEN_READWRITE | SQLITE_OPEN_URI | SQLITE_OPEN_NOMUTEX;
    sqlite3 *db;
    int r = sqlite3_open_v2(uris[0].c_str(), &db, FLAGS, vfs);
    try {
        must(r, db, "opening " + uris[0]);
        execute(db, "PRAGMA temp_store = memory");
        for (size_t i = 1; i < uris.size(); i++)
            execute(db, "ATTACH '" + uris[i] + "' AS " + schema(i));
    } catch (...) {
        sqlite3_close(db);
        throw;
    }
    return db;
}

constexpr const char *WAL = "-wal", *DOMAIN_WORD = "ATO_DURABILITY";

// The committed content; files that get shorter, from the n-th on, may be cut or not yet.
std::vector<uint64_t> hashes_of_cuts(const std::vector<Bytes> &before, std::vector<Bytes> after,
                                     size_t n)
{
    if (n == after.size())
        return {hash_of(after)};
    std::vector<uint64_t> all = hashes_of_cuts(before, after, n + 1);
    const auto size = static_cast<long>(after[n].size());
    if (after[n].size() >= before[n].size())
        return all;
    after[n].insert(after[n].end(), before[n].begin() + size, before[n].end());
    for (const uint64_t h : hashes_of_cuts(before, after, n + 1))
        all.push_back(h);
    return all;
}

} // namespace

// ---- Program ------------------------------------------------------------------------------------

Program::Program(Actor &a) : actor(a), twins(names_of_twins(a.world))
{
    std::vector<std::string> files, others;
    for (size_t i = 0; i < twins.size(); i++) {
        const std::string file = a.world.path_of(static_cast<int>(i));
        a.contents[i] = unmasked(a.contents[i]);
        write_file(twins[i], a.contents[i]);
        if (access((file + WAL).c_str(), F_OK) == 0)
            write_file(twins[i] + WAL, read_file(file + WAL));
        others.push_back("file:" + twins[i]);
        files.push_back("file:" + file + "?vfs=ato&max_size=4194304&unmap=fast");
    }
    if (ato_vfs_register(0) != SQLITE_OK)
        throw Violation("ato_vfs_register");
    setenv(DOMAIN_WORD, ::domain_name(a.domain), 1);
    twin = open_all(others, "unix");
    try {
        real = open_all(files, "ato");
    } catch (...) {
        sqlite3_close(twin);
        throw;
    }
    // A dying process neither checkpoints nor removes the WAL.
    for (sqlite3 *db : {real, twin})
        must(sqlite3_db_config(db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, nullptr), db,
             "a WAL stays");
}

Program::~Program()
{
    for (sqlite3 *db : {real, twin})
        sqlite3_close(db);
    for (const std::string &t : twins)
        for (const char *end : {"", WAL, "-shm"})
            unlink((t + end).c_str());
}

Program &Program::open(Actor &a)
{
    auto *p = new Program(a);
    a.world.company = std::shared_ptr<Program>(p);
    return *p;
}

Program &Program::of(const Actor &a)
{
    return *static_cast<Program *>(a.world.company.get());
}

void Program::close(Actor &a, Leaves how)
{
    for (size_t i = 0; i < a.contents.size(); i++)
        execute(of(a).real,
                "PRAGMA " + schema(i) + ".ato_unmap = " + (how == Leaves::Fast ? "fast" : "plain"));
    a.world.company = nullptr;
}

void Program::make(Actor &a, const std::vector<std::vector<std::string>> &sql)
{
    const std::vector<std::string> names = names_of_twins(a.world);
    for (size_t i = 0; i < names.size(); i++) {
        write_file(names[i], {});
        sqlite3 *db = open_all({names[i]}, "unix");
        for (const std::string &statement : sql[i])
            execute(db, statement);
        sqlite3_close(db);
        a.contents[i] = read_file(names[i]);
        write_file(a.world.path_of(static_cast<int>(i)), a.contents[i]);
    }
}

void Program::run(const std::string &sql)
{
    execute(twin, sql);
    const bool open = in_transaction(twin);
    const std::vector<Bytes> before = actor.contents, after = open ? before : read_all(twins);
    if (after != before) {
        std::vector<uint64_t> may_be = hashes_of_cuts(before, after, 0);
        may_be.push_back(hash_of(before));
        actor.allow(may_be);
    }
    execute(real, sql);
    if (in_transaction(real) != open)
        throw Violation("'" + sql + "' ended a transaction unexpectedly, or did not end it");
    actor.contents = after;
    actor.allow_this();
}

void Program::set(const std::string &pragma)
{
    execute(real, pragma);
}

void Program::check()
{
    for (size_t i = 0; i < actor.contents.size(); i++) {
        sqlite3_file *f = nullptr;
        sqlite3_int64 size = -1;
        must(sqlite3_file_control(real, schema(i).c_str(), SQLITE_FCNTL_FILE_POINTER, &f), real,
             "SQLITE_FCNTL_FILE_POINTER");
        // It may end with zeros behind its pages: unmasked().
        if (f->pMethods->xFileSize(f, &size) != SQLITE_OK ||
            static_cast<size_t>(size) < actor.contents[i].size())
            throw Violation("a database has a wrong length");
        Bytes bytes(static_cast<size_t>(size));
        if (f->pMethods->xRead(f, bytes.data(), static_cast<int>(bytes.size()), 0) != SQLITE_OK ||
            unmasked(bytes) != unmasked(actor.contents[i]))
            throw Violation("a database read by the VFS differs from the committed content");
        const std::string verdict = ask(real, "PRAGMA " + schema(i) + ".integrity_check");
        if (verdict != "ok")
            throw Violation("integrity_check: " + verdict);
    }
}

} // namespace crash
