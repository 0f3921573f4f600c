/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the suites of SQLite compare: ways to keep a database, all of which start with the same content and get the same
 * transactions.
 *
 *   the name of an engine   journal_mode=OFF in that engine (engine_vfs.h): its promise for Unit::sync is that of a transaction
 *   truncate, wal           SQLite's own VFS and journals, on the medium of the engines; reads map the database, as in the
 *                           Acumen paper
 *   ato-vfs                 libato's VFS
 *   ato-vfs-off             the same with journal_mode=OFF: like the engines' sides it cannot roll back
 *
 * synchronous is FULL everywhere. The first side is the floor, the engine raw, which a crash tears. Variants of an engine take
 * part with --full, or where they are named.
 */
#ifndef ATO_BENCHMARKS_SUITES_SQLITE_SIDES_H
#define ATO_BENCHMARKS_SUITES_SQLITE_SIDES_H

#include "../suite.h"
#include "connection.h"
#include "engine_vfs.h"

namespace sqlite
{

class Side
{
  public:
    virtual ~Side() = default;

    const std::string name, guarantee;

    /* The database becomes a copy of the one in that file. Nobody has it open. */
    virtual void fill(const std::string &file) = 0;

    virtual std::unique_ptr<Connection> open() = 0;

    /* Of all rows of all tables. Fails if SQLite finds the database damaged. */
    size_t hash();

  protected:
    Side(const std::string &called, const std::string &guarantees)
        : name(called), guarantee(guarantees)
    {
    }
};

class Sides
{
  public:
    /* Databases that are copies of the one in `file`, and may grow to `room` bytes. */
    Sides(const std::string &file, uint64_t room);
    ~Sides(); /* removes the files */

    size_t count() const
    {
        return sides_.size();
    }

    Side &operator[](size_t side) const
    {
        return *sides_[side];
    }

    /* Fails if a side holds other rows than the first. */
    void compare() const;

    using Values = std::vector<std::vector<double>>; /* by side and round */

    struct Plan {
        double seconds;        /* that all rounds should take, about */
        uint64_t least, limit; /* operations of a side: in a round, in all of them */
        bool few = false;      /* rounds, and longer ones: threads that wait for one another */
    };

    /* Returns operations a second. In a round each side, in random order, does the same number of operations by work(); the first
     * rounds, from which that number is chosen, do not count. */
    Values measure(const Plan &plan,
                   const std::function<void(size_t side, uint64_t operations)> &work) const;

    void report(const char *suite, const suite::Cell &cell, const char *metric,
                const Values &values) const;

  private:
    std::string folder_;
    std::vector<std::unique_ptr<Side>> sides_;
};

/* The name of a new file beside the databases. */
std::string new_file(const std::string &name);

} // namespace sqlite

#endif
