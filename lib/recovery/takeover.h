/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Recovery of a file after the death of a process: finishes what it committed, and frees what it held.
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

#include "reflection/pairing/pairing.h"

struct takeover {
    const struct pairing *own; /* of the file that is recovered */
    uint64_t journal;          /* that the dead process's slot names; 0: none */
    unsigned slot;             /* of the dead process, if there is no journal */
    uint32_t holder;           /* the same as in page_state.holder; 0: not known */
    /* Without journal and holder: all slots of a file that no process has mapped. The caller has its attach lock. */
};

/* Returns 0, also if another process has done it already; -1 with a sentence: nothing is lost, and the pages stay with
 * the dead process. If the medium fails when bitmaps are reloaded, the file is poisoned and everything is freed. */
int takeover(const struct takeover *t);

#endif
