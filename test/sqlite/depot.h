/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Two databases in two folders that are changed together, and what is known of them after a kill.
 *
 * Each has rows whose bodies follow from their keys, and a table of one row that triggers keep: how many rows
 * there are, the sum of their digests, and the number of the last transaction. A writer tells what these are
 * going to be before each COMMIT, and that it is done after it. So a database that is found can be judged: it
 * must be, as a whole, as one of the transactions left it, and not older than what was acknowledged; and both
 * must be as the same one left them.
 */
#ifndef ATO_TEST_SQLITE_DEPOT_H
#define ATO_TEST_SQLITE_DEPOT_H

#include "../kill/process.h"

namespace depot
{

constexpr unsigned FILES = 2;

/* What writers do, and what may be expected of it. */
struct Script {
    const char *name;
    std::vector<const char *> journal_modes, synchronous;
    const char *parameters; /* of the URI */
    const char *domain;     /* ATO_DURABILITY; NULL: as found */
    bool together;          /* a transaction is in both files or in neither */
    unsigned writers = 1;   /* processes at once */
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

/* What the writers told. */
class Book
{
  public:
    explicit Book(bool as_one) : together(as_one)
    {
    }
    /* Of a process that was killed. */
    void hear(const std::vector<kills::Note> &notes);
    /* "" if this may be what was found; else what is wrong. */
    std::string judge(const States &found) const;
    /* That was right, and is what there is from here on; notes of look(). */
    void settle(const std::vector<kills::Note> &notes);

    uint64_t acknowledged = 0, interrupted = 0; /* in COMMIT */

  private:
    bool together;
    std::vector<States> begun{States{}};
    uint64_t told[FILES] = {};
};

/* A folder for each file. */
struct Place {
    rig::Folder folders[FILES];

    std::string path(unsigned file) const
    {
        return folders[file] / "depot.db";
    }
};

/* Each of these is the life of a forked child, and leaves with a sentence if anything is wrong. */

/* Makes both databases, of random shape. */
void found(const Place &place, uint64_t seed);

/* Transactions for ever. */
void write_until_killed(const Script &s, const Place &place, uint64_t seed, const kills::Teller &t);

/* Plain: looks once more by SQLite's own VFS, and at what is left beside the files. */
enum class End { Plain, Fast, Abandoned };

/* Looks at both files, and tells what was found. */
void look(const Script &s, const Place &place, const Book &book, End end, const kills::Teller &t);

} // namespace depot

#endif
