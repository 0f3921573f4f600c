/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Where do the unit tests of the VFS work? In a folder of their own, with a table to fill, and with another
 * process to talk to: SQLite takes locks for the process as a whole, so only another one finds them held.
 */
#ifndef ATO_TEST_SQLITE_LAB_H
#define ATO_TEST_SQLITE_LAB_H

#include "sql.h"
#include "support/temp.h"

#include <gtest/gtest.h>
#include <sys/types.h>
#include <unistd.h>

namespace sql
{

/* What an answer has to be that needs no more than this. */
#define MUST(db, statements) ASSERT_EQ((db).run(statements), SQLITE_OK) << (db).error()

/* So many rows of 500 bytes, in a transaction: `INSERT INTO table`. */
std::string fill(const std::string &table, int first, int last);

/* A process with one connection. Made while this process has no database open. */
class Remote
{
  public:
    Remote();
    ~Remote(); /* ends it, not by force */
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

/* The user `nobody`, where this is root: who may write anywhere. */
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
    /* Made first: see Remote. */
    Remote other;
    support::TempDir folder;

    std::string path(const std::string &name = "a.db") const
    {
        return folder / name;
    }
    /* With a table t(a INTEGER PRIMARY KEY, b UNIQUE) of three rows, made by SQLite's own VFS. */
    void make(const std::string &name = "a.db", const std::string &first = "") const;
    /* The folder and what is in it, where this is root. */
    bool give_to_nobody() const;
    /* What lies in the folder, but for .ato: "a.db". */
    std::string names() const;
    /* What lies in .ato. */
    size_t left() const;
    /* Not open here: is it as SQLite's own VFS says? The sum of a, after a check. */
    static std::string stock_sum(const std::string &file);

    void SetUp() override
    {
        (void)logged();
    }
};

} // namespace sql

#endif
