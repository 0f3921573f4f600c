/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The commit: makes the pending slices of all held pages valid, and new sizes of their files, in one step.
 *
 * Three ways (all end in the same state):
 *   one word   its 8-byte store
 *   RTM        all words in one hardware transaction, where what is visible is durable
 *   journal    a redo lane names all words; it is durable before the first of them changes
 */
#ifndef ATO_LIB_COMMIT_COMMIT_H
#define ATO_LIB_COMMIT_COMMIT_H

#include "lib/commit/journals.h"
#include "lib/page/page_set.h"

/* The pending slices of all pages of the hold, and the new sizes of their files. */
struct commit {
    struct page_set *set;
    struct part *parts; /* each file of the hold has one */
    unsigned nparts;
};

/*
 * Expects pages that are reserved, and every slice of their pending masks stored to its invalid home and
 * flushed (commit_flush()), but not fenced.
 *
 * Returns 0: the flip is durable and visible in memory, pending masks are empty, pages still held. Or -1 with
 * errno and nothing changed (ENOSPC, E2BIG, EOPNOTSUPP, EIO, ...), or with EIO and the files poisoned, if the
 * medium failed so late that the commit is in doubt.
 */
int commit_run(struct commit *flip);

/*
 * Takes a lane of the journal if a commit of so many pages will need one. For speed alone, before the stores
 * of the operation: taking a lane needs locked instructions, which after the stores would wait until they
 * have drained. Returns 0; -1 with errno of commit_run() and nothing stored.
 */
int commit_prepare(struct mapping *m, struct page_set *h, uint64_t pages);

/* Gives the lane back that no commit has used; there may be none. */
static inline void commit_unprepare(struct page_set *set)
{
    if (set->lane.journal)
        journals_give_lane(&set->lane);
    set->lane.journal = NULL;
}

/* Returns the index of the next page, from the i-th on, whose pending mask is not empty; n if there is none. */
static inline uint64_t commit_next(const struct held_page *pages, uint64_t n, uint64_t i)
{
    while (i < n && !pages[i].pending)
        i++;
    return i;
}

/* In domain msync, makes the pending slices of n pages durable in their invalid homes. Pages near each other share a call, which
 * also writes dirty pages between them. Returns 0; -1 with EIO. */
int commit_flush(const struct held_page *pages, uint64_t n);

/* commit_run() for one page, whose pending mask is not empty. */
int commit_page(struct mapping *m, struct held_page *at);

/* Flips each pending page by itself: for deploying, where the content of a page does not change. All are of
 * m's file. Returns 0; -1 with EIO and the file poisoned. */
int commit_each_page(struct mapping *m, struct page_set *h);

#endif
