/* SPDX-License-Identifier: BSD-3-Clause */
/* How a commit that is durable becomes visible in memory, and is counted. */
#ifndef ATO_LIB_COMMIT_SHOW_H
#define ATO_LIB_COMMIT_SHOW_H

#include "lib/file/page.h"
#include "lib/page/page_set.h"

struct commit {
    struct page_set *set;    /* all its pages with pending slices are m's file's */
    const struct mapping *m; /* whose flags hold */
    bool resizes;            /* the file gets `size` */
    uint64_t size;
};

static inline uint64_t *show_size_word(const struct file *f)
{
    return (uint64_t *)(f->pairing.manifest + MANIFEST_SIZE_WORD);
}

/* Makes a commit visible, which is under way (under_way.h). Pending masks are empty then. Returns 0; -1 with EIO and the file poisoned: it
 * waited in vain for another commit. */
int show(const struct commit *c);

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

/* show() for one page. */
int show_one_numbered(struct held_page *at);

/* Makes the flip of one page visible. `changed`: its content has changed, in a commit that is under way. I4. Returns as show(). */
static inline int show_one(struct held_page *at, bool changed)
{
    if (changed && __builtin_expect(file_is_numbered(at->file), 0))
        return show_one_numbered(at);
    const uint64_t bitmap = show_bitmap(at);
    seam_point(SEAM_FLIP, at->state);
    page_turn_mark(at->state);
    seam_point(SEAM_FLIPPING, at->state);
    page_set_bitmap(at->state, bitmap);
    at->pending = 0;
    seam_point(SEAM_FLIPPED, at->state);
    if (changed)
        page_unmark_changed(at->state, 0);
    else
        page_turn_mark(at->state);
    return 0;
}

#endif
