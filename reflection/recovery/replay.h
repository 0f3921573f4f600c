/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Finishes what dead processes have committed to a file: stores the words of the lanes in its manifest.
 *
 * The caller has the attach lock, and no living process uses these lanes. The files are mapped anew, whole, by their
 * descriptors.
 */
#ifndef ATO_REFLECTION_RECOVERY_REPLAY_H
#define ATO_REFLECTION_RECOVERY_REPLAY_H

#include "reflection/pairing/area.h"
#include "reflection/pairing/pairing.h"

struct replay {
    const struct pairing *own;
    struct persist persist;
    int fd;    /* of the reflection */
    char *map; /* the reflection; NULL: it is empty */
    uint64_t bytes;
    char *manifest;             /* all of it */
    uint64_t length, mapped;    /* of the manifest; what is mapped may be more */
    struct fault_target faults; /* of all its views */
};

/* Maps reflection and manifest. Returns 0; -1 with a sentence: ESTALE if the reflection is missing, ... replay_close() closes
 * them, also after a failure. */
int replay_open(struct replay *r, const struct pairing *own);
void replay_close(struct replay *r);

/* Finishes the commits in the lanes of slots first..last; MANIFEST_SLOTS is the long lane. Returns 0; -1 with a sentence, and no
 * commit is lost: EUCLEAN if a lane is damaged, and nothing is stored; or if a commit names what is no word of the file: then none
 * is retired. EIO, ENOSPC, ... */
int replay_slots(struct replay *r, unsigned first, unsigned last);

/* To be called at the end. Returns 0; -1 with EIO: what was read or stored may be lost (fault.h). */
int replay_check(const struct replay *r);

/* All of this, for all slots of a file that no process has mapped. */
int replay_all(const struct pairing *own);

/* Applies the words of a committed lane. Durable when it returns 0. -1 with EUCLEAN, and nothing is stored, if a word does not lie
 * in a meta page of the reflection, or a size is not valid or more than the reflection has pages for. (If another process changes
 * the lane meanwhile, words before the bad one may be stored.) */
int replay_apply(const struct lane_view *v, const struct replay *to);

#endif
