/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A pairing that is the file's goes on: checked, and as durable as it looks.
 *
 * For pairing.c and what it calls: the caller holds the attach lock, and has the verdict VERDICT_ADOPT.
 */
#ifndef ATO_REFLECTION_ADOPT_H
#define ATO_REFLECTION_ADOPT_H

#include "place.h"

/* Nobody has the file mapped; `bytes`: its manifest's. 0, or -1 with a sentence: ESTALE, EUCLEAN, EACCES, ... */
int adopt(struct pairing *pr, const struct place_names *n, const char *bytes,
          const struct pairing_wish *wish);

/* Of adopt() this alone: reflection and manifest get owner, group and mode of the file. For a recovery that is due,
 * and goes by these. */
void adopt_follow(struct pairing *pr, const struct place_names *n, const char *bytes);

/* After adopt() said ESTALE: does the reflection hold nothing of the file, and is its guard, if any, off? Then the file is
 * right, whoever wrote to it, and may get a new reflection. 1: yes, and the manifest says `deployed` now, without a guard.
 * 0: no, and errno and sentence are adopt()'s again. -1: it cannot be told, with a sentence. */
int adopt_lost_nothing(struct pairing *pr, const struct place_names *n, const char *bytes,
                       const struct pairing_wish *wish);

/* Others have it mapped. As wish->join(). */
int adopt_used(struct pairing *pr, const struct place_names *n, const struct pairing_wish *wish);

#endif
