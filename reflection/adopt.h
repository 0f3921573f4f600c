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

/* After ESTALE of adopt(), which stays what the caller is told if not: is nothing of the file in its reflection, so that
 * the file is right whoever wrote to it, and may have a new one? 1: its manifest says `deployed`; 0; -1 with a sentence. */
int adopt_lost_nothing(struct pairing *pr, const struct place_names *n, const char *bytes,
                       const struct pairing_wish *wish);

/* Others have it mapped. As wish->join(). */
int adopt_used(struct pairing *pr, const struct place_names *n, const struct pairing_wish *wish);

#endif
