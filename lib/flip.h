/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The commit: makes the pending slices of all held pages count, in one step.
 *
 * Three ways (all end in the same state):
 *   one page   the 8-byte store of its word
 *   RTM        all words in one hardware transaction, where what is visible is durable
 *   journal    a redo lane names all words; it is durable before the first of them changes
 */
#ifndef ATO_LIB_FLIP_H
#define ATO_LIB_FLIP_H

#include "hold.h"

/*
 * Takes: pages reserved, every slice of their pending masks stored to its invalid home and, in
 * domain msync, flushed (persist_flush_data). No fence yet.
 * Leaves: 0, the flip durable and shown in memory, pending masks empty, pages still held. Or -1
 * with errno and nothing changed (ENOSPC, E2BIG, EOPNOTSUPP, EIO), or EIO with the file poisoned,
 * when the medium failed so late that the commit is in doubt.
 */
int flip_commit(struct mapping *m, struct hold *h);

/*
 * Before the stores of an operation that is going to flip so many pages: takes the lane of the journal, if
 * the commit will need one. For speed alone: a lane is taken by locked
 * instructions, which behind the stores would wait until they have drained, before the commit's own
 * stores begin. E2BIG, ENOSPC, ...: as flip_commit(), with nothing stored.
 */
int flip_prepare(struct mapping *m, struct hold *h, uint64_t pages);

/* flip_commit() for one page, whose pending mask is not empty. */
int flip_one(struct mapping *m, struct held *at);

/* The same for pages whose content does not change, so that each may flip by itself: deploying. */
int flip_each(struct mapping *m, struct hold *h);

#endif
