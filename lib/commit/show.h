/* SPDX-License-Identifier: BSD-3-Clause */
/* How a commit that is durable becomes visible in memory, and is counted. */
#ifndef ATO_LIB_COMMIT_SHOW_H
#define ATO_LIB_COMMIT_SHOW_H

#include "lib/file/page.h"
#include "lib/file/store_views.h"
#include "lib/page/page_set.h"

struct commit {
    struct page_set *set;    /* all its pages with pending slices are m's file's */
    const struct mapping *m; /* whose flags hold */
    bool resizes;            /* the file gets `size` */
    uint64_t size;
    /* It may become visible before it is durable (early.h). */
    struct ato_promise *promise; /* to writers alone, and this tells how it is waited for; NULL */
    bool relaxed;                /* to all, and nobody waits for it */
};

/* `flags`: of a call. */
static inline bool show_is_relaxed(const struct mapping *m, unsigned flags)
{
    return ((m->flags | flags) & ATO_RELAXED) && !(flags & ATO_EAGER);
}

static inline uint64_t *show_size_word(const struct file *f)
{
    return (uint64_t *)(f->pairing.manifest + MANIFEST_SIZE_WORD);
}

/*
 * With numbers (undo.h), commits become visible one after the other: takes the number of one, which is under way, and saves the pages with
 * pending slices for snapshots. *number: 0 without numbers. Then the pages may change, and show_end() follows. A commit that may still fail
 * waits as a plain call, for a holder that is stopped: -1 with ETIMEDOUT or another error of reservation_wait(). `late`: it is durable, and waits
 * without end: -1 with EIO and the file poisoned.
 */
int show_begin(struct file *f, const struct held_page *pages, uint64_t n, bool late,
               uint64_t *number);

/* The two parts of it, with numbers. */
int show_take(struct file *f, bool late);
uint64_t show_number(struct file *f, const struct held_page *pages, uint64_t n);
void show_end(struct file *f, uint64_t number);

/* Begins a look at the views of plain stores but `except`, around changes of held pages (store_views.h). `showing`: the caller has it; else it is
 * held until the end. */
void show_look_begin(struct store_look *l, struct file *f, uint64_t except, bool showing);
void show_look_end(struct store_look *l);

/* Makes a commit visible, with the number of show_begin(). Pending masks are empty then. */
void show(const struct commit *c, uint64_t number);

/* Returns the bitmap of a page once its pending slices are valid. */
static inline uint64_t show_bitmap(const struct held_page *at)
{
    return at->state->bitmap ^ at->pending;
}

static inline void show_account(const struct file *f, enum counter path, uint64_t slices,
                                uint64_t words)
{
    struct tally t = tally_of(f);
    if (path != COUNTERS)
        tally_add(t, path, 1);
    tally_add(t, COUNT_FLIPS, words);
    tally_add(t, COUNT_BYTES_TO_MEDIA, slices * SLICE_BYTES + words * 8);
}

/* Makes the flip of one page visible. `changed`: its content has changed, with this number (show_begin()). I4. */
static inline void show_one(struct held_page *at, bool changed, uint64_t number)
{
    const uint64_t bitmap = show_bitmap(at);
    seam_point(SEAM_FLIP, at->state);
    if (changed)
        page_mark_changing(at->state);
    else
        page_turn_mark(at->state);
    seam_point(SEAM_FLIPPING, at->state);
    page_set_bitmap(at->state, bitmap);
    at->pending = 0;
    seam_point(SEAM_FLIPPED, at->state);
    if (changed)
        page_unmark_changed(at->state, number);
    else
        page_turn_mark(at->state);
}

#endif
