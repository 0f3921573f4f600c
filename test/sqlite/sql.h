/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Runs SQL through the VFS `ato` or through SQLite's own VFS, with results that need no assertion: it works in forked
 * children, too. Keeps the entries of SQLite's log.
 */
#ifndef ATO_TEST_SQLITE_SQL_H
#define ATO_TEST_SQLITE_SQL_H

#include <cstdint>
#include <sqlite3.h>
#include <string>
#include <vector>

namespace sql
{

/* Registers the VFS once, after a call of `before`. Each Db calls it. */
void start(void (*before)() = nullptr);

/* Returns `file:PATH?vfs=ato`, with more parameters. */
std::string uri(const std::string &path, const std::string &parameters = "");

class Db
{
  public:
    Db() = default;
    /* Opens through the VFS `ato`; `opened` is the result. */
    explicit Db(const std::string &path, const std::string &parameters = "", int flags = 0);
    ~Db();
    Db(Db &&other) noexcept;
    Db &operator=(Db &&other) noexcept;

    /* Opens through SQLite's own VFS. */
    static Db stock(const std::string &path, int flags = 0);

    /* Runs statements until one fails; returns SQLite's result. */
    int run(const std::string &statements) const;
    /* Returns the first column of the first row; "-" if there is no row, "error: ..." on failure. */
    std::string text(const std::string &statement) const;
    /* The same as a number; -1 if it is not a number. */
    int64_t number(const std::string &statement) const;
    std::string error() const;
    int close();

    sqlite3 *handle = nullptr;
    int opened = SQLITE_MISUSE;
};

/* Returns the entries of sqlite3_log() since the last call. */
std::vector<std::string> logged();
/* Does one of these entries contain `words`? */
bool logged(const std::string &words);

} // namespace sql

#endif
