/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which place does a page have in a sparse reflection (layout.h)?
 *
 * An entry belongs to the page whose number it has on the media. It gets another number only while its page is held, and has
 * nothing valid in R; the page that gets it is held too. So no two threads can take one place, and after a kill every entry still
 * belongs to some page. Entries from shared_header.next_place on were never used; the number grows when one is taken.
 *
 * A page that has nothing valid in R may do without its place. Under a budget such places are noted in file.spares, with and without
 * space, and the next pages that need one take these, before one that was never used: so the number of places stays near the
 * number of RefPages in the budget, and those who look for space find it.
 *
 * Where a page that was loaded has its place is noted beside its state in shared memory. For pages that were not loaded yet the
 * first process to map the file makes an index, once, from all entries on the media. That does not change afterwards: a page loses
 * its place only after it was loaded; if it counts as not loaded later (space_forget()), the entry has another page's number.
 *
 * Of two entries with the number of one page, which a kill may leave, one at most has a bitmap other than 0: that is the page's.
 */
#ifndef ATO_LIB_FILE_PLACE_H
#define ATO_LIB_FILE_PLACE_H

#include "lib/file/file.h"

/* Returns how many places an index must have room for at most; UINT64_MAX with an error. */
uint64_t place_count(const struct file *f);

/* Fills the index f->shared.index, which is all zeros, from the media, where the first `places` (place_count()) may be used, and notes in
 * *next where those begin that never were. Checks all entries (I5) for a file of `size` bytes: EUCLEAN. Returns 0; -1. */
int place_build(const struct file *f, uint64_t places, uint64_t size, uint64_t *next);

/* Returns the place of a page that may not be loaded; FILE_NO_PLACE if it has none. */
uint64_t place_find(const struct file *f, uint64_t page);

/* Loads the place of a held page. Returns its word on the media; NULL: it has no place. *r is -1 with EUCLEAN if the entry is of
 * another page. */
uint64_t *place_load(struct file *f, uint64_t page, struct page_state *s, int *r);

/* Returns the page that the entry of a place below shared_header.next_place is of; it may be any number. */
uint64_t place_page(const struct file *f, uint64_t place);

/* Takes a place from a page that does not need it, if one is known, for the held page `page`, whose own place, if it has one, goes to
 * that page. Returns FILE_NO_PLACE if not, or if `page` has slices in R. Until place_give() the entry still has the other page's
 * number. *has_space becomes whether stores to the place meet space, if one is
 * returned. */
uint64_t place_take_spare(struct file *f, uint64_t page, bool *has_space);

/* Notes that the page, which has nothing valid in R, may give its place away. */
void place_spare(struct file *f, uint64_t page);

/* Returns true if at least n places with space are noted so, or as many as can be. */
bool place_has_spares(const struct file *f, uint64_t n);

/* Gives places to n held pages from `page` on that have none or the same ones. Returns 0; -1 with EIO. */
int place_give(struct file *f, uint64_t page, uint64_t n, const uint64_t *places);

#endif
