/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Space before stores: a home is allocated before it is written, so that a full disk is ENOSPC
 * before anything happened and never SIGBUS in the middle. On tmpfs even reading a hole can be
 * SIGBUS, so that there O is allocated before it is read.
 *
 * Callers hold the reservation of the page.
 */
#ifndef ATO_LIB_SPACE_H
#define ATO_LIB_SPACE_H

#include "hold.h"

/* First touch: what is known of the page's space, as PAGE_ flags; O can be read afterwards.
 * ENOSPC. */
int space_look(struct file *f, uint64_t page, uint8_t *flags);

/* First touch of a page whose word names slices in R: R can be read afterwards. Who copied the reflection
 * may have left zeros out (cp --sparse). ENOSPC. */
int space_look_r(struct file *f, uint64_t page);

/* Does the page's word exist on the media? If not, it is 0 (and reading it might be SIGBUS). Valid
 * until the page is first written, which nobody else can do meanwhile. */
static inline bool space_has_word(const struct file *f, uint64_t page)
{
    return __atomic_load_n(&f->chunks[page / CHUNK_PAGES], __ATOMIC_RELAXED) & CHUNK_META_WORDS;
}

/* Makes stores possible to the homes in `need` (PAGE_O_ALLOCATED, PAGE_R_ALLOCATED) of a page. ENOSPC:
 * nothing changed but space that is there. */
int space_make(struct file *f, uint64_t page, struct page_state *s, uint8_t need);

/* The same for the meta page of a chunk alone. */
int space_make_meta(struct file *f, uint64_t chunk);

/* The same, where space beside it may have been given back since. */
int space_make_words(struct file *f, uint64_t chunk);

/* The same for a run of held pages that were all found wanting: one call to the kernel for the run. */
int space_make_run(struct file *f, uint64_t page, uint64_t n, uint8_t need);

/* Gives the space of n pages of one chunk in the reflection back, as far as the file system can. All are home,
 * durably; and nobody else has the file mapped, or is about to (scarce.c). */
void space_give_back(struct file *f, uint64_t page, uint64_t n);

/* By the same one: of no page is it known any more that the reflection has space for it. */
void space_forget(struct file *f);

#endif
