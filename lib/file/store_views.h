/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Mappings with ATO_PLAIN_STORES, of all processes: their views are private mappings of the original. A page that its process has stored to is
 * a copy that the kernel made then, from what the original had. ato_msync() commits the slices in which the two differ.
 *
 * When somebody else changes the original meanwhile, a copy differs from it in more than what was stored. So who changes pages of the
 * original keeps what they were, and looks then who has a copy of them: what is kept is what that copy is compared with from then on. Of
 * processes that look in the wrong moment:
 *
 *   a copy that was made before the change was made from what is kept
 *   one that was made during the change is a mixture: its slices are those of before, of after, or stored
 *   one that was made after the change, and before the look, is taken for one made before. It matters if its process has put a slice back
 *     to what it was before the change: that is not noticed. So the call that commits a change is the moment of the change for
 *     others: what they store before it has returned counts as stored before
 *
 * While a file has such a view, its pages are at home in the original whenever they are not held: each commit deploys what it changes.
 *
 * The list of views lies in shared memory, the pages that are kept in the undo area (undo.h), both changed by the holder of `showing`.
 */
#ifndef ATO_LIB_FILE_STORE_VIEWS_H
#define ATO_LIB_FILE_STORE_VIEWS_H

#include "lib/file/file.h"

/* Has any process such a view of the file? */
static inline bool store_views_any(const struct file *f)
{
    return __builtin_expect(__atomic_load_n(&f->shared.header->views_used, __ATOMIC_ACQUIRE) != 0,
                            0);
}

/* Puts the view of the mapping into the list, with `showing`. Returns its number; -1 with EAGAIN: there are too many. */
int store_view_open(const struct mapping *m);
void store_view_close(struct file *f, unsigned view);

/* One look at all views but `except`, a mask. Nobody's, if there are none. */
struct store_look {
    struct file *f;
    uint64_t views;
    int pagemaps[SHARED_VIEWS]; /* 0: not open yet; -1: it cannot be opened */
};
void store_look_begin(struct store_look *l, struct file *f, uint64_t except);
void store_look_end(struct store_look *l);

/* Before the original changes in a page that the caller holds: keeps what it has, unless no view has the page; with `showing`. Returns
 * NULL: nothing is kept; else what store_look_after() gets. */
char *store_look_before(struct store_look *l, uint64_t page);
void store_look_after(struct store_look *l, uint64_t page, char *kept);

/* What views have copies of is not known: there was no memory, or `showing` was not free. */
void store_look_lose(struct store_look *l);

#endif
