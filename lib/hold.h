/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The pages that one operation holds.
 *
 * Reserved in ascending order of (file id, page), all of them before anything else; released
 * together. (A transaction's are in the order in which its calls came to them: stage.h.) For each page it knows the slices that the operation wrote to their invalid homes
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
    uint32_t tag;             /* of the transaction whose pages they are; 0: none's */
    /* By which pages were stored to whose masks do not say so any more; NULL: none. */
    const struct persist *forgotten;
    struct held small[HOLD_SMALL];
};

/* What page_state.tx says of a page: the transaction that has it, and the page's place among its pages. */
static inline uint64_t hold_note(uint32_t tag, uint64_t place)
{
    return (uint64_t)tag << 32 | place;
}

/* Is a page this transaction's? Their numbers are each process's own. */
static inline bool hold_is_of(const struct file *f, const struct page_state *s, uint32_t tag)
{
    return __atomic_load_n(&s->holder, __ATOMIC_RELAXED) == f->holder &&
           __atomic_load_n(&s->tx, __ATOMIC_RELAXED) >> 32 == tag;
}

static inline void hold_init(struct hold *h)
{
    h->pages = h->small;
    h->n = 0;
    h->room = HOLD_SMALL;
    h->lane.in = NULL;
    h->tag = 0;
    h->forgotten = NULL;
}

struct hold_span {
    struct file *file;
    uint64_t first, last; /* pages */
    uint64_t end;         /* bytes that the file must have */
};

static inline struct hold_span hold_span_of(struct file *f, uint64_t offset, uint64_t n)
{
    return (struct hold_span){f, offset / PAGE_BYTES, (offset + n - 1) / PAGE_BYTES, offset + n};
}

/* Reserves and loads the pages of n spans, which are in the order above by their first pages, and may
 * overlap. Nothing is held yet. Where a transaction has one, or makes the file shorter, all others are given
 * back until it ends. ENOMEM, ENOSPC, EIO, EDEADLK (pages_wait()), EFAULT: some are held; the caller
 * releases. */
int hold_spans(struct hold *h, const struct hold_span *spans, unsigned n);

/* Whole pages. */
static inline int hold_range(struct hold *h, struct file *f, uint64_t first, uint64_t last)
{
    struct hold_span span = {f, first, last, last * PAGE_BYTES + 1};
    return hold_spans(h, &span, 1);
}

/* The same of a range, without the pages that transactions have: they are not held. */
int hold_but_tx(struct hold *h, struct file *f, uint64_t first, uint64_t last);

/* For a caller that holds nothing any more, after PAGES_OF_TX or PAGES_AGAIN (`why`): until the transaction
 * that has the page ends, or the one that makes the file shorter; or until the epoch of the caller's write has
 * the page (patience.epoch). EDEADLK, ENOSPC. */
int hold_await(struct file *f, uint64_t page, int why, uint32_t epoch);

/* Is a page before another in the order above? */
int hold_order(const struct file *a, uint64_t a_page, const struct file *b, uint64_t b_page);

/* Releases pages from the n-th on, of those held. */
void hold_release_from(struct hold *h, uint64_t n);

/* Releases everything; forgets pending masks that were not flipped: an abort takes nothing back
 * (I2). */
void hold_release(struct hold *h);

/* A held page, by binary search; NULL if it is not held. */
struct held *hold_find(struct hold *h, const struct file *f, uint64_t page);

#endif
