/* SPDX-License-Identifier: BSD-3-Clause */
/* Finishes what a dead process's journal has committed: stores the words of its lanes in all files that they
 * name. */
#ifndef ATO_REFLECTION_RECOVERY_REPLAY_H
#define ATO_REFLECTION_RECOVERY_REPLAY_H

#include "reflection/recovery/participants.h"
#include "reflection/recovery/pool.h"

#ifdef ATO_SEAM
extern unsigned replay_few_flushes; /* most flushes in domain msync that are done one by one */
#endif

/* Makes a dead process's journal durable as it is visible. Returns 0; -1 with a sentence. */
int replay_settle(const struct folder *f, const struct pool *pool);

/* Replays and retires all lanes. The caller holds the journal's recovery byte. Returns 0: the journal may be removed; -1 with
 * a sentence: no commit is lost, and the call can be repeated. */
int replay_all(const struct found_journal *journal, struct pool *pool);

/* Applies the words of a committed lane; `targets` has one entry for each of its files. Durable when it
 * returns 0. -1 with EUCLEAN, with nothing stored, if a word does not lie in a meta page of its reflection,
 * or a size is not valid or more than the reflection has pages for. (If another process changes the lane
 * meanwhile, words before the bad one may be stored.) */
int replay_apply(const struct journal_view *v, const struct participants_target *targets);

#endif
