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

/* Others have it mapped. As wish->join(). */
int adopt_used(struct pairing *pr, const struct place_names *n, const struct pairing_wish *wish);

#endif
