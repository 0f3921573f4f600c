/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Space before stores: a home is allocated before it is written, so a full disk is ENOSPC before anything has
 * happened, and never SIGBUS in the middle. On tmpfs even reading a hole can be SIGBUS, so there O is allocated
 * before it is read.
 *
 * Callers hold the reservation of the page.
 */
#ifndef ATO_LIB_FILE_SPACE_H
#define ATO_LIB_FILE_SPACE_H

#include "lib/file/file.h"
#include "reflection/media/domain.h"
#include "reflection/pairing/meta.h"

/* First touch of a page: makes O readable. Returns what is known of its space (PAGE_ flags); -1 with ENOSPC, ESTALE (another
 * program truncated the file) or EIO. */
int space_look(struct file *f, uint64_t page);

/* First touch of a page that has slices in R, by its word: makes R readable. A copy of the reflection may have
 * holes in place of zeros (cp --sparse). Returns 0; -1 as space_look(). */
int space_look_r(struct file *f, uint64_t page, const struct page_state *s);

/* Allocates the homes in `need` (PAGE_O_ALLOCATED, PAGE_R_ALLOCATED) of a page, so that stores to them are
 * possible. Returns 0; -1 with ENOSPC: nothing changed, but some space may be allocated. */
int space_make(struct file *f, uint64_t page, uint8_t need);

/* The same for the meta page of a chunk alone. */
int space_make_meta(struct file *f, uint64_t chunk);

/* The same for many held pages, in ascending order: one call to the kernel for each run of pages with the same need. All have
 * their space when space_run_end() returns 0. */
struct space_run {
    struct file *file;
    uint64_t page, n;
    uint8_t need;
};
int space_run_add(struct space_run *r, uint64_t page, uint8_t need);
int space_run_end(struct space_run *r);

/* Before stores to n pages of O that have space: another process may have made it, or the kernel may have dropped them and read them
 * again, so that they are in one folio with pages that have none (domain_make_storable()). Returns 0; -1 with ENOSPC: nothing changed. */
int space_keep(const struct file *f, uint64_t page, uint64_t n);

/* Returns true if space of the reflection can be given back while the file is mapped: not in a page cache on a disk, where a hole may cost
 * the pages beside it their space too (domain_make_storable()), and others may be about to store to these. */
static inline bool space_comes_back(const struct file *f)
{
    return !domain_is_cached(f->persist.domain) || f->r_holes_fault;
}

/*
 * Where space comes back, gives that of the RefPages of n places of one chunk back. The words of their pages are 0, durably (W5). None of these
 * pages counts as having space any more. The caller holds all of these pages; or no other thread or process uses the file, or is
 * about to map it. Returns 0; -1 with errno: the space may be kept, which is harmless.
 *
 * Others may copy from these RefPages without a lock, as an older bitmap says. They see that it is an older one, and
 * copy again. Where reading a hole may be SIGBUS, that copy takes space again; if the file system is full by then, it
 * is SIGBUS. Between the reader's look at the bitmap and its copy the page must have been deployed, its space given back, and all
 * space taken by others.
 */
int space_give_back(struct file *f, uint64_t place, uint64_t n);

/* The next pages before `end` with bitmaps other than 0, so far as they were looked for. The others zeros: not yet. */
struct space_words {
    uint64_t end;
    uint64_t pages[META_FOUND];
    int n, next;
    bool all; /* there are no others */
};

/* Moves *page to the next one before `end` that has space in the original or a bitmap other than 0; or to `end`. Others are
 * zeros, if they have no state or are not loaded. From call to call *page grows. The caller need not hold the pages. Returns 0; -1
 * with errno. */
int space_skip_zeros(const struct file *f, uint64_t *page, uint64_t end, struct space_words *w);

/* Before a growth to page `end`: pages [page, end), which are behind all that the file had since it was mapped, go back to 'not
 * loaded'. An earlier growth that came to nothing may have loaded them and given them space, and cut that off when it ended.
 *
 * Otherwise versions only grow, for readers (read.c). But a reader checks before that the page is within the file, and these
 * never were. (Exception: read_at_once() behind the end may note the version before this; then the growth happens, and it may
 * find that the file reaches so far: it reads zeros, which is right, or, if the disk is full by then, gets SIGBUS.)
 *
 * The caller holds `sizing`: others hold such a page only while they find out that it is behind the end. */
void space_forget(struct file *f, uint64_t page, uint64_t end);

#endif
