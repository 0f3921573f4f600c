/* SPDX-License-Identifier: BSD-3-Clause */
/* Finishing what a dead journal's lanes have committed: their words are stored, in all files that they name. */
#ifndef ATO_REFLECTION_REPLAY_H
#define ATO_REFLECTION_REPLAY_H

#include "linked.h"
#include "manifest.h"
#include "pool.h"
#include "trust.h"

#ifdef ATO_SEAM
extern unsigned replay_few_flushes; /* of domain msync, one by one */
#endif

/* Makes what a dead journal shows durable as it is. -1 with a sentence. */
int replay_settle(const struct folder *f, const struct pool *pool);

/* Replays and retires all its lanes, for a caller that holds its recovery byte, and removes the pointers to it. 1: it may
 * be removed; 0: all is done, and a pointer to it stays; -1 with a sentence: nothing is lost, and it can be done again. */
int replay_all(const struct linked *journal, struct pool *pool);

/* Where the words of a file of a lane go: to its reflection, a range of bytes, and to the size word of its
 * manifest. */
struct replay_target {
    struct persist persist;
    char *reflection; /* NULL: the file is gone, its words go nowhere */
    uint64_t bytes;
    uint64_t *size;            /* NULL: as the above */
    const char *folder, *name; /* of the reflection, for sentences */
    int fd;                    /* the reflection; 0: it is not to be synced as a whole */
};

/* Applies the words of a committed lane; targets: one for each of its files. Durable when it returns.
 * EUCLEAN, and nothing stored, when a word does not lie in a meta page of its reflection, or a size is
 * none or more than the reflection has pages for (or whatever was stored before, when somebody changes
 * the lane meanwhile). */
int replay_apply(const struct journal_view *v, const struct replay_target *targets);

#endif
