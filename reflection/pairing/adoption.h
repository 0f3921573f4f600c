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
int adopt(struct pairing *pr, const struct lookup_names *n, const char *bytes,
          const struct pairing_wish *wish);

/* The part of adopt() that gives reflection and manifest the file's owner, group and mode. For a recovery
 * that is due, which goes by these. */
void adopt_follow(struct pairing *pr, const struct lookup_names *n, const char *bytes);

/* After adopt() failed with ESTALE: does the reflection hold nothing of the file, and is the guard, if any,
 * off? Then the file is right, and may get a new reflection, whatever wrote to it. Returns 1 if so: the
 * manifest now says `deployed`, without a guard (or still `born`). 0 if not, with adopt()'s errno and
 * sentence. -1 with a sentence if it cannot be told. */
int adopt_lost_nothing(struct pairing *pr, const struct lookup_names *n, const char *bytes,
                       const struct pairing_wish *wish);

/* For a file that other processes have mapped. Returns as wish->join(). */
int adopt_used(struct pairing *pr, const struct lookup_names *n, const struct pairing_wish *wish);

#endif
