/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The life of a process that writes and reads the file of a history (ledger.h), until it ends or is killed.
 *
 * Processes 0 to 3 have two threads each, which write and read at random. Process ANCHOR keeps a snapshot from its beginning to its end,
 * and never writes. Process READER has a read-only descriptor. A board in memory outlives them.
 *
 * What a reader checks of each snapshot: that it is a state (read_state()); that it contains all commits that were acknowledged, or that
 * anybody had seen, before ato_snapshot_begin() was called; none that had not begun when it was read; and that each byte
 * that is read again is the same. It notes which commits are in it: the snapshots of all processes have to be ordered.
 */
#ifndef ATO_TEST_KILL_HISTORY_H
#define ATO_TEST_KILL_HISTORY_H

#include "ledger.h"

namespace histories
{

enum { WRITERS = 4, ANCHOR = WRITERS, READER, PROCESSES };

struct Plan {
    int domain, format;
    rig::Medium medium = rig::Medium::Memory;
    bool bounded = false; /* little memory for snapshots: they may be given up */
};

enum Count { COMMITS, SNAPSHOTS, READ_AGAIN, GIVEN_UP, COUNTS };

/* In memory that all processes share. */
struct Board {
    enum { NOTES = 1 << 15 };
    Vector begun, known; /* known: acknowledged, or seen */
    struct {
        Vector is;
        bool valid;
    } notes[NOTES]; /* of snapshots */
    uint64_t noted;
    uint64_t counts[COUNTS], done[PROCESSES];
    unsigned sized; /* the actor that has the tail */
    bool anchored, stopping, failed;
    char objects[64]; /* how the paths of the file's shared memory begin */
    char why[1000];
};

/* The paths of the shared memory that there is. */
std::vector<std::string> objects_of(const Board &board);

/* The whole life of process `n`. */
[[noreturn]] void live(Board &board, const Plan &plan, const std::string &path, unsigned n,
                       uint64_t seed);

/* Alone with the file: checks it, and unmaps it in that mode. After a spatial unmap read(2) has to return the same, and
 * no shared memory is left. */
[[noreturn]] void look(Board &board, const Plan &plan, const std::string &path, int mode,
                       uint64_t seed);

} // namespace histories

#endif
