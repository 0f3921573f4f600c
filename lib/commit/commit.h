/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The commit: makes the pending slices of all held pages of one file valid, and its new size, in one step.
 *
 * Three ways (all end in the same state):
 *   one word   its 8-byte store, of a page or a size
 *   RTM        all words in one hardware transaction, where what is visible is durable
 *   lane       a redo list of all words; it is durable before the first of them changes
 */
#ifndef ATO_LIB_COMMIT_COMMIT_H
#define ATO_LIB_COMMIT_COMMIT_H

#include "lib/commit/lanes.h"
#include "lib/commit/show.h"
#include "lib/file/page.h"
#include "lib/file/under_way.h"
#include "lib/page/page_set.h"

/*
 * Expects pages that are reserved, and every slice of their pending masks stored to its invalid home, but not fenced.
 *
 * Returns 0: the flip is durable and visible in memory, pending masks are empty, pages still held. Or -1 with
 * errno and nothing changed (ENOSPC, E2BIG, EOPNOTSUPP, EIO, ...), or with EIO and the file poisoned, if the
 * medium failed so late that the commit is in doubt.
 */
int commit_run(const struct commit *flip);

/* commit_run() for one page of a logged file, which was stored to; gives its memory back. */
int commit_page_to_log(struct mapping *m, const struct held_page *at, bool relaxed);

/*
 * Takes a small lane if a commit of so many words will need one. For speed alone, before the stores
 * of the operation: taking a lane needs locked instructions, which after the stores would wait until they
 * have drained. Returns 0; -1 with errno of commit_run() and nothing stored.
 */
int commit_prepare(const struct mapping *m, struct page_set *h, uint64_t words);

/* Gives the lane back that no commit has used; there may be none. */
static inline void commit_unprepare(struct page_set *set)
{
    if (set->lane.of)
        lanes_give(&set->lane, false);
    set->lane.of = NULL;
}

/* Flips each pending page by itself: for deploying, where the content of a page does not change. All are of
 * the file. Returns 0; -1 with EIO and the file poisoned. */
int commit_each_page(struct file *f, struct page_set *h);

/* ---- one page ---- */

/* commit_run() for one page, whose pending mask is not empty. Inline, as store.h is. */
static inline __attribute__((always_inline)) int commit_page(struct held_page *at, unsigned slices)
{
    /* The stores may have met a fault (fault.h). No fence, as W4 has it: nobody stores to a page of a poisoned file. */
    if (file_check(at->file) < 0)
        return -1;
    const struct tally under_way = under_way_begin(at->file);
    const struct persist *p = &at->file->persist;
    struct page_state *s = at->state;
    uint64_t value = show_bitmap(at), number = 0;
    int r = 0;
    if (__builtin_expect(file_is_numbered(at->file), 0) &&
        show_begin(at->file, at, 1, false, &number) < 0) {
        under_way_end(under_way);
        return -1;
    }
    /* persist-order W1 (readers: R1 replay_apply, R4 load_page_slow): the slices are durable before the word
     * that makes them valid. Otherwise a crash could leave a bitmap that names garbage. I1. */
    persist_fence(p);
    persist_store_word(p, at->homes.word, value);
    if (persist_flush_word(p, at->homes.word) < 0) {
        r = file_in_doubt(at->file, "a commit");
    } else {
        /* persist-order W2 (reader: the next write to these slices): the word is durable before the page is
         * released and the homes that it made invalid may be stored to. I3. */
        persist_fence(p);
        seam_point(SEAM_DURABLE, s);
        if (__builtin_expect(file_is_poisoned(at->file), 0)) { /* the word may have met a fault */
            r = file_in_doubt(at->file, "a commit");
        } else {
            show_account(at->file, COUNT_COMMITS_SINGLE, slices, 1);
            show_one(at, true, number);
        }
    }
    if (__builtin_expect(number != 0, 0))
        show_end(at->file, number);
    under_way_end(under_way);
    return r;
}

#endif
