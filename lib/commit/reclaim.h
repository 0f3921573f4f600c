/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reclaiming: the space of unused RefPages goes back to the file system.
 *
 * A RefPage is a page of the reflection. It is unused if the word of its page is 0: then all slices are valid in the original.
 * Nothing is deployed here. Meta pages stay.
 */
#ifndef ATO_LIB_COMMIT_RECLAIM_H
#define ATO_LIB_COMMIT_RECLAIM_H

#include "lib/file/file.h"

/* Gives back the space of the unused RefPages of pages first..last. Skips pages that others hold, and waits for nothing, so the
 * caller may hold pages. (A sparse reflection in a page cache: when the last process unmaps the file.) Ends after `until` (clock_ns()), when it has
 * done something. Returns 0; -1 with errno of a page that could not
 * be looked at or given back: the others were. */
int reclaim_range(struct file *f, uint64_t first, uint64_t last, uint64_t until);

/*
 * Before a writer allocates `more` RefPages of a file with a budget, gives others back, in batches, as far as the reflection would take
 * more than the budget: deploys the pages that were written longest ago, and reclaims them.
 *
 * Which these are is a guess. A hand goes over the pages with space, round and round, for all processes. A page that was
 * written since the hand was there last stays for one more round; but a call looks at some hundred pages at most, and
 * takes what it finds from its second half on.
 *
 * In a sparse reflection their places go to other pages (place.h), with their space if the reflection takes no more than the budget.
 *
 * The caller holds pages; they, and others that somebody holds, stay. If too little can be given back, or what is kept takes
 * too much (such as the bitmaps), the reflection takes more than the budget. So there is no error. What it costs is counted as work of the process's mapping
 * that was made first.
 */
void reclaim_for(struct file *f, uint64_t more);

#endif
