/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The pages that one operation holds.
 *
 * Reserved in ascending order of (file id, page), all of them before anything else; released
 * together. For each page it knows the slices that the operation wrote to their invalid homes
 * (`pending`); a page held only to keep it still has none. The operation's own memory says so, where
 * nobody else can change it between two steps of a commit.
 */
#ifndef ATO_LIB_HOLD_H
#define ATO_LIB_HOLD_H

#include "journals.h"
#include "pages.h"

struct held {
    struct file *file;
    struct page_state *state;
    uint64_t page;
    uint64_t pending;
};

enum { HOLD_SMALL = 32 };

struct hold {
    struct held *pages; /* in the order they were reserved */
    uint64_t n, room;
    struct journal_lane lane; /* for the commit to come; .in is NULL if there is none */
    struct held small[HOLD_SMALL];
};

static inline void hold_init(struct hold *h)
{
    h->pages = h->small;
    h->n = 0;
    h->room = HOLD_SMALL;
    h->lane.in = NULL;
}

/* Reserves and loads pages first..last of `f`, which come after all that is held in the order above
 * (callers see to that). Those held already are skipped. ENOMEM, ENOSPC, EIO: what was held before
 * and some more is held; the caller releases. */
int hold_range(struct hold *h, struct file *f, uint64_t first, uint64_t last);

/* Releases everything; forgets pending masks that were not flipped: an abort takes nothing back
 * (I2). */
void hold_release(struct hold *h);

/* A held page, by binary search; NULL if it is not held. */
struct held *hold_find(struct hold *h, const struct file *f, uint64_t page);

#endif
