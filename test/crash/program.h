// SPDX-License-Identifier: BSD-3-Clause
//
// A program that the originals belong to: SQLite, through the VFS of lib/sqlite, in this process.
//
// Each statement runs on twins first, by SQLite's own VFS, in files of their own. So the bytes that
// the files have to hold after a transaction are known before it commits, and without libato.
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
    // Opens all originals, the first as `main`, the others as `b`, ...: they hold the contents that
    // the actor knows. The program belongs to the world until it dies or until close().
    static Program &open(Actor &a);
    // The program of a world.
    static Program &of(const Actor &a);

    // Runs a statement. Until it commits the files may not change; at the commit they change from
    // their old to their new content, all at once. Only a cut of a file is seen afterwards, for
    // each file by itself.
    void run(const std::string &sql);
    // Runs a statement that changes no file, without the twins.
    void set(const std::string &pragma);
    // Checks that the files have the right bytes, read as SQLite reads them, and SQLite's integrity
    // check.
    void check();

    enum class Leaves { Plain, Fast };
    static void close(Actor &a, Leaves how);

    // Makes databases of the originals by these statements, each file by its own.
    static void make(Actor &a, const std::vector<std::vector<std::string>> &sql);

    ~Program();
    Program(const Program &) = delete;
    Program &operator=(const Program &) = delete;

  private:
    explicit Program(Actor &a);

    Actor &actor; // valid while the program lives; not when it ends with its process
    const std::vector<std::string> twins;
    sqlite3 *real = nullptr, *twin = nullptr;
};

} // namespace crash

#endif
