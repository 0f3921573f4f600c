/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The fixture of the tests of the VFS: a folder, a table to fill, and another process with a connection.
 */
#ifndef ATO_TEST_SQLITE_LAB_H
#define ATO_TEST_SQLITE_LAB_H

#include "sql.h"
#include "support/temp.h"

#include <gtest/gtest.h>
#include <sys/types.h>
#include <unistd.h>

/* AddressSanitizer has it. (A macro would not do: the same tests are linked with and without it.) */
extern "C" __attribute__((weak)) void __asan_init();

namespace sql
{

inline bool with_sanitizer()
{
    return __asan_init != nullptr;
}

/* The statements must succeed; their rows are not looked at. */
#define MUST(db, statements) ASSERT_EQ((db).run(statements), SQLITE_OK) << (db).error()

/* An INSERT of the rows first to last, of 500 random bytes each. */
std::string fill(const std::string &table, int first, int last);

/* A process with one connection. Made while this process has no database open. */
class Remote
{
  public:
    Remote();
    ~Remote(); /* closes its connection, and the process exits */
    Remote(const Remote &) = delete;
    Remote &operator=(const Remote &) = delete;

    int open(const std::string &path, const std::string &parameters = "");
    int open_stock(const std::string &path);
    int run(const std::string &statements);
    std::string text(const std::string &statement);
    std::string error();
    int close();
    void kill();

  private:
    std::string ask(char what, const std::string &words);
    int number(char what, const std::string &words);
    int fd = -1;
    pid_t pid = -1;
};

constexpr uid_t NOBODY = 65534;

/* Acts as the Unix user `nobody` if this process is root: root ignores permissions. */
class Nobody
{
  public:
    Nobody() : was_root(geteuid() == 0)
    {
        if (was_root)
            is = seteuid(NOBODY) == 0;
    }
    ~Nobody()
    {
        if (was_root)
            (void)!seteuid(0);
    }
    bool is = true;

  private:
    bool was_root;
};

class Lab : public testing::Test
{
  protected:
    /* Made before any database is open: see Remote. */
    Remote other;
    support::TempDir folder;

    std::string path(const std::string &name = "a.db") const
    {
        return folder / name;
    }
    /* Makes a database by SQLite's own VFS, with a table t(a INTEGER PRIMARY KEY, b UNIQUE) of three rows. */
    void make(const std::string &name = "a.db", const std::string &first = "") const;
    /* Gives the folder and its files to the Unix user `nobody`, if this process is root. */
    bool give_to_nobody() const;
    /* The names in the folder, without .ato: "a.db". */
    std::string names() const;
    /* The number of files in .ato. */
    size_t left() const;
    /* Checks a database that this process has not open, through SQLite's own VFS. Returns the sum of a, or the
     * error. */
    static std::string stock_sum(const std::string &file);

    void SetUp() override
    {
        (void)logged();
    }
};

} // namespace sql

#endif
