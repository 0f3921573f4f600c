/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How does a test talk to SQLite? By SQL, through the VFS or through SQLite's own, with answers that need no
 * assertion: it works in forked children, too. What SQLite logs is kept.
 */
#ifndef ATO_TEST_SQLITE_SQL_H
#define ATO_TEST_SQLITE_SQL_H

#include <cstdint>
#include <sqlite3.h>
#include <string>
#include <vector>

namespace sql
{

/* Registers the VFS, once. Each connection does so by itself. */
void start();

/* `file:PATH?vfs=ato`, and more parameters. */
std::string uri(const std::string &path, const std::string &parameters = "");

class Db
{
  public:
    Db() = default;
    /* Through the VFS. Look at `opened`. */
    explicit Db(const std::string &path, const std::string &parameters = "", int flags = 0);
    ~Db();
    Db(Db &&other) noexcept;
    Db &operator=(Db &&other) noexcept;

    /* Through SQLite's own VFS. */
    static Db stock(const std::string &path, int flags = 0);

    /* Statements, to the first that fails: SQLite's result. */
    int run(const std::string &statements) const;
    /* The first column of the first row; "-" where there is no row, "error: ..." */
    std::string text(const std::string &statement) const;
    /* -1 where it is none. */
    int64_t number(const std::string &statement) const;
    std::string error() const;
    int close();

    sqlite3 *handle = nullptr;
    int opened = SQLITE_MISUSE;
};

/* What was said in sqlite3_log() since it was asked last. */
std::vector<std::string> logged();
/* Was a sentence with these words among that? */
bool logged(const std::string &words);

} // namespace sql

#endif
