/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which place does a page have in a sparse reflection (layout.h)?
 *
 * An entry belongs to the page whose number it has on the media. Entries from shared_header.next_place on were never used; the number
 * grows when one is taken, so no two threads can take one place. The page that gets it is held. It keeps its place until the
 * reflection is removed, also while it has nothing valid in R.
 *
 * Where a page that was loaded has its place is noted beside its state in shared memory. For pages that were not loaded yet the
 * first process to map the file makes an index, once, from all entries on the media. That does not change afterwards.
 *
 * Of two entries with the number of one page, which a kill may leave, one at most has a bitmap other than 0: that is the page's.
 */
#ifndef ATO_LIB_FILE_PLACE_H
#define ATO_LIB_FILE_PLACE_H

#include "lib/file/file.h"

/* For the first process to map a file of `size` bytes: makes the index of a sparse reflection from the media, and notes which places
 * were never used. Checks all entries (I5): EUCLEAN. Returns 0; -1.
 *
 * persist-order E2 (writer: place_give()), R4: words and page numbers are settled before. Otherwise a page could have one word that is
 * visible, and another one that is still durable; or a place whose number is not. */
int place_build(struct file *f, uint64_t size);

/* Returns the place of a page that may not be loaded; FILE_NO_PLACE if it has none. Dense: the page's number. */
uint64_t place_find(const struct file *f, uint64_t page);

/* Loads the place of a held page, for which space_look() was called. Sets *at to its word on the media; NULL: it has none, or its meta
 * page has no space, and to read it might be SIGBUS: the word is 0 until the holder writes to the page. Returns 0; -1 with EUCLEAN if
 * the entry is of another page, EIO, ESTALE. */
int place_load(struct file *f, uint64_t page, struct page_state *s, uint64_t **at);

/* Returns the page that the entry of a place below shared_header.next_place is of; it may be any number. */
uint64_t place_page(const struct file *f, uint64_t place);

/* Gives places to n held pages from `page` on that have none or the same ones. Returns 0; -1 with EIO. */
int place_give(struct file *f, uint64_t page, uint64_t n, const uint64_t *places);

#endif
