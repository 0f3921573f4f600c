/* SPDX-License-Identifier: BSD-3-Clause */
/* Finishes what a dead process has committed: stores the words of its lanes in all files that they name. */
#ifndef ATO_REFLECTION_RECOVERY_REPLAY_H
#define ATO_REFLECTION_RECOVERY_REPLAY_H

#include "reflection/recovery/participants.h"

/* The steps of finishing the commits in a dead process's lanes, each for all of them:
 *   collect  makes durable what is visible of the lanes, and adds the files of those with a commit to the participants,
 *            unless `n` is NULL
 *   apply    stores their words, durably; the files are acquired
 *   retire   retires them
 * Each can be repeated. */
enum replay_step { REPLAY_COLLECT, REPLAY_APPLY, REPLAY_RETIRE };

/* Does one step. `path`: of the journal or manifest, for sentences. Returns 0; -1 with a sentence, and no commit is lost:
 * EUCLEAN if a lane is damaged, EIO, ... */
int replay_lanes(const struct journal *j, enum replay_step step, struct participants *n,
                 const char *path);

/* Does all three for the lanes in the manifest of one file, of the dead processes in slots [slot, end); keeps the area of
 * the last one mapped as p->area. */
int replay_slots(struct participants *n, struct participant *p, unsigned slot, unsigned end);

/* Applies the words of a committed lane; `targets` has an entry for each of its files, NULL for one that is gone: its words are
 * skipped. Durable when it returns 0. -1 with EUCLEAN, with nothing stored, if a word does not lie in a meta page of its
 * reflection, or a size is not valid or more than the reflection has pages for. (If another process changes the lane
 * meanwhile, words before the bad one may be stored.) */
int replay_apply(const struct journal_view *v, struct participant *const *targets);

#endif
