/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reclaiming: the space of unused RefPages goes back to the file system.
 *
 * A RefPage is a page of the reflection. It is unused if the word of its page is 0: then all slices are valid in the original.
 * Nothing is deployed here. Meta pages stay.
 *
 * In a page cache on a disk nothing is given back (space_comes_back()) before a spatial unmap removes the reflection.
 */
#ifndef ATO_LIB_COMMIT_RECLAIM_H
#define ATO_LIB_COMMIT_RECLAIM_H

#include "lib/file/file.h"

/* Gives back the space of the unused RefPages of pages first..last. Skips pages that others hold, and waits for nothing, so the
 * caller may hold pages. Returns 0; -1 with errno of a page that
 * could not be looked at or given back: the others were. */
int reclaim_range(struct file *f, uint64_t first, uint64_t last);

#endif
