/* SPDX-License-Identifier: BSD-3-Clause */
/* How page states are loaded at first touch (modelled in read.pml). */
#ifndef ATO_LIB_PAGE_LOAD_H
#define ATO_LIB_PAGE_LOAD_H

#include "lib/file/file.h"

/* Loads the page's bitmap from the media and makes O readable, if that was not done yet. The caller holds the page.
 * Returns 0; -1 with ENOSPC or EIO: nothing changed. */
int load_page_slow(struct file *f, uint64_t page, struct page_state *s);

static inline int load_page(struct file *f, uint64_t page, struct page_state *s)
{
    if (__builtin_expect(__atomic_load_n(&s->version, __ATOMIC_RELAXED) != 0, 1))
        return 0;
    return load_page_slow(f, page, s);
}

/* Returns the page's state, loaded, for a reader; reserves the page for that if necessary. NULL with ENOSPC, EIO,
 * EFAULT, or an error of reservation_await(). */
struct page_state *load_look(struct file *f, uint64_t page);

#endif
