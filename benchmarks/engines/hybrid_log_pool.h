/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which log blocks of the engine hybrid-log are free: a list for each size, in memory only. A size that has none left splits a
 * larger block; when there is no larger one, free neighbours are joined.
 */
#ifndef ATO_BENCHMARKS_ENGINES_HYBRID_LOG_POOL_H
#define ATO_BENCHMARKS_ENGINES_HYBRID_LOG_POOL_H

#include "hybrid_log_lock.h"
#include "hybrid_log_media.h"

namespace engine::hybrid
{

struct Block {
    Record *record = nullptr;
    char *data = nullptr;
    Block *next = nullptr; /* of a list */
    uint8_t shift = 0;     /* its size: 1 << shift */
    bool free = false;
};

class Pool
{
  public:
    void add(const Segment &segment);

    Block *take(unsigned shift); /* null: there is no room */

    /* A list. On the media its records are free, or undo of an earlier epoch: there they may say anything. */
    void give(Block *list);

  private:
    Block *pop(unsigned shift);
    void push(Block *block);
    void join();

    Lock lock_;
    Block *lists_[LARGEST_SHIFT + 1] = {};
    std::vector<std::vector<Block>>
        segments_; /* a block for each unit; those within another are not used */
};

} // namespace engine::hybrid

#endif
