/* SPDX-License-Identifier: BSD-3-Clause */
/* Finishes what a dead process has committed: stores the words of its lanes in all files that they name. */
#ifndef ATO_REFLECTION_RECOVERY_REPLAY_H
#define ATO_REFLECTION_RECOVERY_REPLAY_H

#include "reflection/recovery/participants.h"

#ifdef ATO_SEAM
extern unsigned replay_few_flushes; /* most flushes in domain msync that are done one by one */
#endif

/* Makes the lanes of a dead process durable as they are visible, and adds the files of those with a commit to `n`, which
 * may be NULL. `path`: of the journal or manifest, for sentences. Returns 0; -1 with a sentence: EUCLEAN if a lane is damaged. */
int replay_collect(const struct journal *j, struct participants *n, const char *path);

/* Replays the lanes with a commit; their files are acquired. Returns 0; -1 with a sentence: no commit is lost, and the call
 * can be repeated. */
int replay_lanes(const struct journal *j, const struct participants *n, const char *path);

/* Retires them. Returns 0; -1 with EIO. */
int replay_retire(const struct journal *j, const char *path);

/* All three for the lanes in the manifest of one file, of the dead process in slot p->slot; maps p->area, if that slot was
 * used. */
int replay_slot(const struct participants *n, struct participant *p);

/* Where the words of a lane go for one of its files: to the bytes of its reflection, and to the size word of
 * its manifest. */
struct replay_target {
    struct persist persist;
    char *
        reflection; /* NULL: it is empty; if `size` is NULL too, the file is gone, and its words are skipped */
    uint64_t bytes;
    uint64_t *size;
    const char *path; /* of the reflection, for sentences */
    int fd;           /* the reflection; 0: never sync all of it */
};

/* Applies the words of a committed lane; `targets` has one entry for each of its files. Durable when it
 * returns 0. -1 with EUCLEAN, with nothing stored, if a word does not lie in a meta page of its reflection,
 * or a size is not valid or more than the reflection has pages for. (If another process changes the lane
 * meanwhile, words before the bad one may be stored.) */
int replay_apply(const struct journal_view *v, const struct replay_target *targets);

#endif
