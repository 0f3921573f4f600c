/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Two databases, changed by the same transactions, and the states in which a kill may leave them.
 *
 * Each database has rows whose bodies follow from their keys, and a table of one row that triggers maintain: the number
 * of rows, the sum of their digests, and the number of the last transaction. Before each COMMIT a writer sends a note
 * with the new states; after it, a note that it is done. So the content after a kill can be checked: each database is
 * exactly in the state after one of the transactions, not older than the last acknowledged one, and both are in the
 * state after the same transaction.
 */
#ifndef ATO_TEST_SQLITE_DEPOT_H
#define ATO_TEST_SQLITE_DEPOT_H

#include "../kill/process.h"

namespace depot
{

constexpr unsigned FILES = 2;

/* What the writers do, and which result is allowed. */
struct Script {
    const char *name;
    std::vector<const char *> journal_modes, synchronous;
    const char *domain; /* ATO_DURABILITY; NULL: not set */
    bool together; /* a transaction is in both files or in neither; else some are in one alone */
    unsigned writers = 1; /* processes at once */
    rig::Medium medium = rig::Medium::Memory;
};

struct State {
    uint64_t number, rows, sum;

    bool operator==(const State &other) const
    {
        return number == other.number && rows == other.rows && sum == other.sum;
    }
};

struct States {
    State of[FILES];
};

/* The notes of the writers. */
class Book
{
  public:
    explicit Book(bool as_one) : together(as_one)
    {
    }
    /* Takes the notes of a process that was killed. */
    void hear(const std::vector<kills::Note> &notes);
    /* Returns "" if these states are allowed; else a sentence with the error. */
    std::string judge(const States &found) const;
    /* Takes the notes of look(): its verdict was right, and the states in it are the new start. */
    void settle(const std::vector<kills::Note> &notes);

    uint64_t acknowledged = 0, interrupted = 0; /* in COMMIT */

  private:
    bool together;
    std::vector<States> begun{States{}};
    uint64_t told[FILES] = {};
};

struct Place {
    rig::Folder folder;

    std::string path(unsigned file) const
    {
        return folder / (file ? "other.db" : "depot.db");
    }
};

/* Each of these runs in a forked child, which ends with a sentence if there is an error. */

/* Makes both databases, of random shape. */
void found(const Place &place, uint64_t seed);

/* Runs transactions until the process is killed. */
void write_until_killed(const Script &s, const Place &place, uint64_t seed, const kills::Teller &t);

/* Plain: closes the database, reads it through SQLite's own VFS, and checks that no file is left beside it. */
enum class End { Plain, Fast, Abandoned };

/* Reads both files, and sends the states in a note. */
void look(const Script &s, const Place &place, const Book &book, End end, const kills::Teller &t);

} // namespace depot

#endif
