/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Processes that write and read stamped records of the same files, and are killed and replaced all the time.
 *
 * Every 8 bytes of a record hold the same stamp: as which of its writer's operations it was written. A
 * board in memory, which the killed leave behind, knows for each record what its writer has begun and what it
 * was told is done. So whoever reads a record knows
 *
 *   - that he saw one operation: all stamps are equal, over the ends of pages and in both records of a pair;
 *   - that nothing was lost, or came back: the stamp is not older than what had been told when the read
 *     began, nor than what he saw before;
 *   - that nothing was early: nor newer than what had been begun when it ended.
 *
 * The operation in which a writer was killed is in doubt: it may be there or not, and appear as long as nobody
 * has written the record again.
 */
#ifndef ATO_TEST_PEERS_HERD_H
#define ATO_TEST_PEERS_HERD_H

#include "../model/rig.h"

#include <memory>

namespace peers
{

/* Who runs a process: a number of its own for each. */
struct User {
    unsigned uid, gid; /* 0: as the test */
};

struct Plan {
    int domain;
    unsigned flags; /* of the mappings */
    unsigned writers, readers;
    User users[2]; /* by turns; readers only read with their descriptors if `watch` */
    bool watch;
};

constexpr unsigned MOST_WRITERS = 6, MOST_READERS = 6, MOST = MOST_WRITERS + MOST_READERS;

/* What a writer writes to: a short record, one over four pages, and a pair, one in each file. */
enum Record { SHORT, LONG, PAIR_A, PAIR_B, RECORDS };

struct Board;

class Herd
{
  public:
    explicit Herd(const Plan &plan);
    ~Herd();
    Herd(const Herd &) = delete;
    Herd &operator=(const Herd &) = delete;

    bool write_files();

    /* Lets them live and die for so long. "": nobody saw anything wrong, hung or failed. */
    std::string live(uint64_t ms, rig::Random &random);

    /* All end by themselves. Then the files, mapped by one more and as read(2) sees them, hold what they must, and
     * nothing is left beside them. "" or what is wrong. */
    std::string end();

    uint64_t kills = 0;
    uint64_t operations() const; /* acknowledged */
    uint64_t reads() const;
    uint64_t longest_ms() const; /* of all calls */

  private:
    void start(unsigned n);
    bool stop(unsigned n, std::string &wrong);
    std::string look_at_progress();

    const Plan plan;
    Board *board;
    rig::Folder folder;
    int pids[MOST];
    uint64_t progress[MOST], since[MOST];
    uint64_t seed;
};

} // namespace peers

#endif
