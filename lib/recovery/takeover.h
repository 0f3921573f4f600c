/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Recovery of a file after the death of a process: finishes what it committed, and frees what it held.
 *
 * A process that finds that a page's holder is dead (attach.h) does this. The slot of the dead process stays given out
 * until all that it held is free.
 *
 * A commit to several files names them all in a journal. So a recovery is of a set of files: the one that is
 * recovered, and those that the dead process's journal names. Readers of any of them must never see one file after
 * the commit and another one before it. It runs in phases, each over all files of the set:
 *
 *   1. attach locks, in ascending order of ids
 *   2. all pages that the dead process holds are marked as flipping, so that readers wait
 *   3. committed lanes are replayed and retired
 *   4. the bitmaps of these pages are reloaded from the media; all changed, the first mark is removed, and each page
 *      is released with its mark
 *   5. the manifests no longer name the journal; the slots are free
 *
 * It works by shared memory, manifests and descriptors, so the calling process needs to have none of the files mapped.
 * It may be killed anywhere, and done again by another process: until 5 the manifests name the journal, and a page that is
 * marked stays with the dead process. Modelled in takeover.pml and several.pml, except for the size.
 *
 * Lock order: a journal, attach locks by id. The caller may hold pages, so a thread that has one of these locks waits for
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

/* Implements pairing_wish.recover. */
int takeover_lanes(const struct pairing *pr, uint64_t journal);

/* Returns true if a slot is given out to a process that is dead. The calling thread holds the attach lock. */
bool takeover_is_due(const struct file *f);

#endif
