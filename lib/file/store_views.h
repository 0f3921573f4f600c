/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Mappings with ATO_PLAIN_STORES, of all processes: their views are private mappings of the original. A page that its process has stored to is
 * a copy that the kernel made then, from what the original had. ato_msync() commits the slices in which the two differ.
 *
 * When somebody else changes the original meanwhile, a copy differs from it in more than what was stored. So who changes pages of the
 * original looks which views have copies of them, and keeps what the pages were. From then on such a copy is compared with what is kept. After the
 * change it looks again. Of a copy that was made in between each byte is that of before, of after, or stored: bytes of before
 * count as bytes of after. What its process stored meanwhile counts as stored before the change; and that it puts a byte back to what it
 * was before is not noticed, until its next commit.
 *
 * Of several changes the first one is what matters; what is kept at the second one tells what came after the first. If a process dies in a
 * change, the one that goes on with it makes one more: bytes of a copy may be of any of them, up to the first for which it is known that
 * the copy was there before.
 *
 * A copy that the kernel has begun to make before the change, and has not put into the page tables when the look after it comes, is not
 * seen: the next commit of its process takes slices of the change back. Nothing that a process may do waits for a page fault of another one.
 * So processes that store to the same page at the same time need a lock (ato.h), with which there is no such fault.
 *
 * While a file has such a view, its pages are at home in the original whenever they are not held: each commit deploys what it changes.
 *
 * The list of views lies in shared memory, the pages that are kept in the undo area (undo.h), both changed by the holder of `showing`.
 */
#ifndef ATO_LIB_FILE_STORE_VIEWS_H
#define ATO_LIB_FILE_STORE_VIEWS_H

#include "lib/file/file.h"

/* Has any process such a view of the file, but `except`, a mask? */
static inline bool store_views_any_but(const struct file *f, uint64_t except)
{
    const uint64_t used = __atomic_load_n(&f->shared.header->views_used, __ATOMIC_ACQUIRE);
    return __builtin_expect((used & ~except) != 0, 0);
}

static inline bool store_views_any(const struct file *f)
{
    return store_views_any_but(f, 0);
}

/* Puts the view of the mapping into the list, with `showing`. Returns its number; -1 with EAGAIN: there are too many. */
int store_view_open(const struct mapping *m);
void store_view_close(struct file *f, unsigned view);

/* What these views have copies of is not known any more, for want of memory or of `showing`: their next commits fail. */
void store_views_lose(struct file *f, uint64_t views);

/* ---- what is kept, with `showing` ---- */

/* Keeps `bytes` for a view: its copy of the page was made from them. Without memory the view is lost. */
void store_view_keep(struct file *f, unsigned view, uint64_t page, const char *bytes);

/* Forgets what is kept for these views, of a page (without memory to look at it the views are lost), or of all pages from `first` on. */
void store_view_forget(struct file *f, uint64_t page, uint64_t views);
void store_view_forget_from(struct file *f, uint64_t first, uint64_t views);

/* The file was cut at `end` of the page, and so was the view's copy: what is kept for the view has zeros from there on.
 * Without memory the view is lost. */
void store_view_cut(struct file *f, unsigned view, uint64_t page, unsigned end);

/* `is` are the bytes of a copy. Those that its program has not stored become those of `newest`; if nothing is kept, all stay. Returns
 * false: no memory. */
bool store_view_follow(struct file *f, unsigned view, uint64_t page, char *is, const char *newest);

/* ---- one look at all views but `except`, a mask, with `showing` ---- */

enum { STORE_LOOK_PAGES = 64 };
struct store_look {
    struct file *f;
    uint64_t views;
    uint64_t changed[STORE_LOOK_PAGES]; /* not looked at again yet */
    unsigned n;
    bool is_full; /* there was no memory to keep more */
    bool took;    /* show_look_begin() */
    int pagemaps[SHARED_VIEWS];
};
void store_look_begin(struct store_look *l, struct file *f, uint64_t except);
void store_look_end(struct store_look *l);

/* Around the change of a page that the caller holds until the end of the look: keeps what it has, for the views that need it. */
void store_look_before(struct store_look *l, uint64_t page);
void store_look_after(struct store_look *l, uint64_t page);

#endif
