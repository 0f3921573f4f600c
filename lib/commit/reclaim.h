/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reclaiming: the space of unused RefPages goes back to the file system.
 *
 * A RefPage is a page of the reflection. It is unused if the word of its page is 0: then all slices are valid in the original.
 * Nothing is deployed here. Meta pages stay.
 *
 * In a page cache a hole may cost the pages beside it their space, and others may be about to store to these (space_waits()). There
 * the wish is only noted, and when the last process unmaps the file the space of all unused RefPages is given back
 * (plain_give_back()). A kill of all processes drops the wish.
 */
#ifndef ATO_LIB_COMMIT_RECLAIM_H
#define ATO_LIB_COMMIT_RECLAIM_H

#include "lib/file/file.h"

/* Gives back the space of the unused RefPages of pages first..last. Skips pages that others hold, and waits for nothing, so the
 * caller may hold pages. Returns 0; -1 with errno of a page that
 * could not be looked at or given back: the others were. */
int reclaim_range(struct mapping *m, uint64_t first, uint64_t last);

#endif
