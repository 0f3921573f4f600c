/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How a pairing ends: removed, when everything is home, or set aside, when it is not this file's. In the
 * order of death that the head of pairing.h gives.
 *
 * For pairing.c and what it calls: the caller holds the attach lock and all slots. Each may be cut anywhere, and is
 * finished by the next map.
 */
#ifndef ATO_REFLECTION_REMOVAL_H
#define ATO_REFLECTION_REMOVAL_H

#include "place.h"

/* Nothing is in it: a birth or a removal that was cut. Removes what is left. */
int removal_start_over(struct pairing *pr, const struct place_names *n);

/* What lies under this inode number belonged to a file that is gone, or is not wanted: `why`. */
int removal_set_aside(struct pairing *pr, const struct place_names *n, const char *why);

/* The file as it lies there is right. */
int removal_forget(struct pairing *pr, const struct place_names *n);

#endif
