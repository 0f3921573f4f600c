/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The life of a process of the herd until it is killed, and its checks. Each writer has records of its own in
 * three files and stamps them; all writers move money among the same accounts; readers check both.
 *
 * Records: every 8 bytes hold the number of the writer's operation that wrote them. A board in memory, which
 * outlives killed processes, has for each record the operation that its writer began last, and the last one
 * that was acknowledged. A reader therefore checks that
 *
 *   - it reads one operation: all stamps are equal, across pages and in both records of a pair;
 *   - nothing is lost and nothing comes back: the stamp is not older than the one acknowledged when the read
 *     began, nor than those read before;
 *   - nothing is early: the stamp is not newer than the operation begun when the read ended.
 *
 * An operation that a kill interrupted may be done or not until its writer writes the record again.
 *
 * Accounts: they lie on many pages of a file, half of them across the end of a page. A transfer is a
 * transaction. It reads the receipt of its writer, which counts its transfers, and writes the next number;
 * that number and the writer determine the amount for each account. So the receipts determine the value of
 * each account at any time, and the sum of all is 0.
 */
#ifndef ATO_TEST_KILL_LIFE_H
#define ATO_TEST_KILL_LIFE_H

#include "../model/rig.h"

namespace herds
{

/* The user of a process. 0: the user of the test. */
struct User {
    unsigned uid, gid;
};

struct Plan {
    int domain;
    unsigned flags;                    /* of the mappings */
    unsigned writers = 3, readers = 2; /* processes */
    unsigned threads = 1;              /* of each process */
    rig::Medium medium = rig::Medium::Memory;
    User users[2] = {}; /* in turn */
    bool watch = false; /* readers map for reading only */
    bool plain = false; /* the control: through mmap() */

    unsigned processes() const
    {
        return writers + readers;
    }
    unsigned actors() const /* the threads that write; each has records of its own */
    {
        return writers * threads;
    }
};

constexpr unsigned MOST_ACTORS = 6, MOST_THREADS = 12;

enum Record { SHORT, LONG, PAIR_A, PAIR_B, RECEIPT, RECORDS };
enum File { A, B, TAIL, FILES };
extern const char *const names[FILES];

/* In memory that all processes share. */
struct Board {
    struct {
        uint64_t begun, told;
    } records[MOST_ACTORS][RECORDS];
    bool within[MOST_ACTORS];    /* in a call that writes */
    uint64_t done[MOST_THREADS]; /* operations */
    char objects[FILES][64];     /* the prefixes of the names of the files' shared memory */
    bool stopping, failed;
    char why[800];
};

/* The state in which a checking process leaves the files. */
enum class End { Fast, Spatial, Exit, Abandon };

bool write_files(const Plan &plan, const rig::Folder &folder);

/* The whole life of process `n`: writers are numbered first, then readers. */
[[noreturn]] void live(Board &board, const Plan &plan, const std::string &folder, unsigned n,
                       uint64_t seed);

/* Checks each record, each account and the bytes between them, as user 0 or 1 and alone; after End::Spatial
 * also as read(2) returns them. */
[[noreturn]] void look(Board &board, const Plan &plan, const std::string &folder, unsigned user,
                       End end, uint64_t seed);

/* Is the long record of a writer a mixture, as read(2) returns it? */
bool is_torn(const std::string &folder, unsigned actor);

} // namespace herds

#endif
