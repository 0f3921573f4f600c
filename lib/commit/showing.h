/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Makes a commit visible in memory: marks its pages and sizes, changes them, and takes the marks off again. If the
 * process is killed meanwhile, the marks stay, and nobody reads these pages, until another process recovers them.
 */
#ifndef ATO_LIB_COMMIT_SHOWING_H
#define ATO_LIB_COMMIT_SHOWING_H

#include "lib/page/page_set.h"
#include "lib/page/part.h"

/* The pending slices of all pages of the hold, and the new sizes of their files. */
struct commit {
    struct page_set *set;
    struct part *parts; /* each file of the hold has one */
    unsigned nparts;
};

/* Returns the bitmap of a page once its pending slices are valid. */
static inline uint64_t showing_bitmap(const struct held_page *at)
{
    return at->state->bitmap ^ at->pending;
}

/* Returns true if the commit changes the part's file. */
static inline bool showing_changes(const struct part *part)
{
    return part->pages || part->resizes;
}

/* Returns the part that stands for a file. Pages of one file come in runs: `last` is the part found last. */
static inline struct part *showing_part(const struct commit *c, const struct file *f,
                                        struct part *last)
{
    if (last && last->mapping->file == f)
        return last;
    last = c->parts;
    while (last->mapping->file != f)
        last++;
    return last;
}

/* Makes the flips of all pages, and the sizes, visible in memory: at one moment for readers, since every page
 * is marked before the first bitmap changes, and the last bitmap has changed before the first mark goes. I4:
 * they are durable by now. Modelled in read.pml, and what follows a kill in takeover.pml. */
void showing_all(struct commit *c);

#endif
