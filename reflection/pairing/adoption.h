/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Adopts an existing pairing of the file: checks it, and makes durable what is visible of it.
 *
 * For pairing_open.c and what it calls. The caller holds the attach lock and has the verdict VERDICT_ADOPT.
 */
#ifndef ATO_REFLECTION_PAIRING_ADOPTION_H
#define ATO_REFLECTION_PAIRING_ADOPTION_H

#include "reflection/pairing/lookup.h"

/* For a file that no other process has mapped; `bytes` are its manifest's. Returns 0; -1 with a sentence:
 * ESTALE, EUCLEAN, EACCES, ... */
int adopt(struct pairing *pr, const char *bytes, const struct pairing_wish *wish);

/* Called after adopt() failed with ESTALE. If the reflection holds no slice of the file, and the guard,
 * if any, is off, then the file is complete, and may get a new reflection, whichever program wrote to
 * it. Returns 1 in that case: the state in the manifest is now `deployed`, without a guard. 0 otherwise,
 * with adopt()'s errno and sentence. -1 with a sentence if that cannot be found out. */
int adopt_lost_nothing(struct pairing *pr, const char *bytes, const struct pairing_wish *wish);

/* For a file that other processes have mapped. Returns as wish->join(). */
int adopt_used(struct pairing *pr, const struct pairing_wish *wish);

#endif
