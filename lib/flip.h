/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The commit: makes the pending slices of all held pages count, and new sizes of their files, in one step.
 *
 * Three ways (all end in the same state):
 *   one word   its 8-byte store
 *   RTM        all words in one hardware transaction, where what is visible is durable
 *   journal    a redo lane names all words; it is durable before the first of them changes
 */
#ifndef ATO_LIB_FLIP_H
#define ATO_LIB_FLIP_H

#include "hold.h"

/* What an operation has to do with a mapping. Of several mappings of one file the first one speaks for the
 * file: `size` and the counts are its. */
struct flip_part {
    struct mapping *mapping;
    bool written, eager; /* a transaction's own */
    /* Of a transaction that changes the file's size (resize.h): */
    bool sized;    /* it has `sizing`; what follows means something */
    bool resizes;  /* `size` is another than the file has: the commit makes it so */
    uint64_t size; /* bytes, as the transaction sees it */
    uint64_t old;  /* before it */
    uint64_t low;  /* the least that it was in between: whole pages from there on are drained */
    /* The commit's own: */
    uint64_t pages, slices; /* that flip */
    unsigned index;         /* of the file in a lane */
    bool under_way;         /* settle_begin() was told */
};

struct flip {
    struct hold *hold;
    struct flip_part *parts; /* each file of the hold has one */
    unsigned nparts;
};

/*
 * Takes: pages reserved, every slice of their pending masks stored to its invalid home and, in
 * domain msync, flushed (persist_flush_data). No fence yet.
 * Leaves: 0, the flip durable and shown in memory, pending masks empty, pages still held. Or -1
 * with errno and nothing changed (ENOSPC, E2BIG, EOPNOTSUPP, EIO), or EIO with the files poisoned,
 * when the medium failed so late that the commit is in doubt.
 */
int flip_commit(struct flip *flip);

/*
 * Before the stores of an operation that is going to flip so many pages: takes the lane of the journal, if
 * the commit will need one. For speed alone: a lane is taken by locked
 * instructions, which behind the stores would wait until they have drained, before the commit's own
 * stores begin. E2BIG, ENOSPC, ...: as flip_commit(), with nothing stored.
 */
int flip_prepare(struct mapping *m, struct hold *h, uint64_t pages);

/* In a forked child, which has no other thread. */
void flip_forget_others(void);

/* flip_commit() for one page, whose pending mask is not empty. */
int flip_one(struct mapping *m, struct held *at);

/* The same for pages whose content does not change, so that each may flip by itself: deploying. They are of
 * m's file. */
int flip_each(struct mapping *m, struct hold *h);

#endif
