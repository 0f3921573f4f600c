/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Two databases in two folders that are changed together, and what there is to know of them after a kill.
 *
 * Each has rows whose bodies follow from their keys, and a table of one row, kept by triggers: how many rows
 * there are, the sum of their digests, and the number of the last transaction. A writer tells what these are
 * going to be before each COMMIT, and that it is done after it. So of a database that is found it can be said
 * whether it is, as a whole, as one of the transactions left it, and whether that is not older than what was
 * acknowledged; and of both, whether they are so by the same one.
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
    unsigned writers;       /* processes at once */
    unsigned kills;         /* usually */
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
    void hear(const std::vector<kills::Note> &notes);
    /* "" if this may be what was found; else what is wrong. */
    std::string judge(const States &found) const;
    /* That was right, and is what there is from here on. */
    void settle(const States &found);

    uint64_t acknowledged = 0, interrupted = 0;

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
    /* What lies beside the files, and in shared memory, and should not. */
    std::string leftovers(bool journals) const;
    void hear(const std::vector<kills::Note> &notes);
    ~Place(); /* removes what shared memory is left */

    std::vector<std::string> objects;
};

/* Makes both databases, of random shape. */
void found(const Place &place, uint64_t seed);

/* Transactions for ever. */
void write_until_killed(const Script &s, const Place &place, uint64_t seed, const kills::Teller &t);

enum class End { Plain, Fast, Abandoned };

/* Looks at both files; tells what was found, as a verdict, or leaves with a sentence. */
void look(const Script &s, const Place &place, const Book &book, End end, const kills::Teller &t);

/* The same by SQLite's own VFS. */
void look_plainly(const Place &place, const Book &book, const kills::Teller &t);

States heard(const std::vector<kills::Note> &notes);

} // namespace depot

#endif
