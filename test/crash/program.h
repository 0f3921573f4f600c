// SPDX-License-Identifier: BSD-3-Clause
//
// A program whose files the originals are: SQLite, through the VFS of lib/sqlite, in this process.
//
// All that it does it does to twins first, by SQLite's own VFS, in files of their own. So it is known before a
// transaction is committed which bytes the files have to hold after it, and by whom it is known is no part of
// libato.
#ifndef ATO_TEST_CRASH_PROGRAM_H
#define ATO_TEST_CRASH_PROGRAM_H

#include "actor.h"

struct sqlite3;

namespace crash
{

uint64_t page_size_of(const Bytes &database);

class Program
{
  public:
    // Opens all originals, the first as `main`, the others as `b`, ...: they hold what the actor knows. The
    // world has it from then on, until it dies or close().
    static Program &open(Actor &a);
    // That one.
    static Program &of(const Actor &a);

    // One statement. Not before it commits may the files change, and then from what they held to what they
    // have to hold, all at once; only that they get shorter is seen afterwards, of each by itself.
    void run(const std::string &sql);
    // That changes no file, and is not for the twins.
    void set(const std::string &pragma);
    // The files hold what they have to, read by SQLite's way; and SQLite finds nothing wrong.
    void check();

    enum class Leaves { Plain, Fast };
    static void close(Actor &a, Leaves how);

    // The originals are databases from here on, that these statements make: of each file its own.
    static void make(Actor &a, const std::vector<std::vector<std::string>> &sql);

    ~Program();
    Program(const Program &) = delete;
    Program &operator=(const Program &) = delete;

  private:
    explicit Program(Actor &a);

    Actor &actor; // as long as it lives: not when the program ends with its process
    const std::vector<std::string> twins;
    sqlite3 *real = nullptr, *twin = nullptr;
};

} // namespace crash

#endif
