/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Recovery of a file after the death of a process: finishes what it committed, and frees what it held.
 *
 * A process that finds that a page's holder is dead (attach.h) does this. The slot of the dead process stays given out
 * until all that it held is free.
 *
 * It runs in phases, under the attach lock:
 *
 *   1. all pages that the dead process holds are marked as flipping, so that readers wait
 *   2. committed lanes are replayed and retired
 *   3. the bitmaps of these pages are reloaded from the media; all changed, the first mark is removed, and each page
 *      is released with its mark
 *   4. the long lane, if it had that, and the slot are free
 *
 * It may be killed anywhere, and done again by another process: until 4 the slot is the dead process's, and a page that is
 * marked stays with it. Modelled in takeover.pml, except for the size.
 *
 * The caller may hold pages, so a thread that has the attach lock waits for
 * no page of a living process, except one that holds it for a few stores.
 */
#ifndef ATO_LIB_RECOVERY_TAKEOVER_H
#define ATO_LIB_RECOVERY_TAKEOVER_H

#include "lib/file/file.h"

/* If the process `holder` (page_state.holder; 0: none) is dead, finishes what it committed and frees what it held. Returns 0, also
 * if another process has done it already; -1 with a sentence (EUCLEAN, EACCES, EIO, ESTALE, ...): nothing is lost, and the pages stay
 * with the dead process. If the medium fails when bitmaps are reloaded, the file is poisoned and everything is freed. The
 * caller may hold pages. */
int takeover(struct file *f, uint32_t holder);

/* The same for all dead processes. */
int takeover_all(struct file *f);

/* Returns true if a slot is given out to a process that is dead. The calling thread holds the attach lock. */
bool takeover_is_due(const struct file *f);

#endif
