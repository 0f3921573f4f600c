/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ends a pairing: removes it when all slices are deployed, or sets it aside when it is not this file's. In
 * the order of death at the head of pairing.h.
 *
 * Except pairing_remove(), removal_of_failed_birth() and removal_is_set_aside(), for pairing_open.c and what it calls. The caller holds the attach lock
 * and all slots. Each function may be interrupted anywhere; the next map finishes it. All return 0, or -1 with a sentence.
 */
#ifndef ATO_REFLECTION_PAIRING_REMOVAL_H
#define ATO_REFLECTION_PAIRING_REMOVAL_H

#include "reflection/pairing/lookup.h"

/* The order of death from `deployed` on. All slices are deployed and durable. ESTALE: another program changed the file's length; unless
 * `complete`: before that pairing_is_complete(). */
int pairing_remove(struct pairing *pr, bool complete);

/* Returns 1 if no content would be missing without the reflection, whatever another program did to the file: it holds no slice, the
 * guard, if any, is off, and nothing is yet to be cut off; else 0; -1. No other process uses the file. */
int pairing_is_complete(const struct pairing *pr);

/* Removes the files that an interrupted birth or removal left: they have no content. */
int removal_start_over(struct pairing *pr);

/* Removes what a birth made that failed, or whose map failed: the record is not in use yet. Keeps the error, errno too. */
void removal_of_failed_birth(struct pairing *pr);

/* Renames a pairing under this inode number that belonged to a file that is gone, or that is not
 * preferred. `why` is for the warning. */
int removal_set_aside(struct pairing *pr, const char *why);

/* Returns true if the reflection was renamed so, and the manifest with this record still has its name: the renaming was
 * interrupted, and the reflection's name may be that of a birth that was cut, too. With the attach lock. */
bool removal_is_set_aside(const struct folder *f, const struct manifest_record *record);

/* Sets the pairing aside, since the file is preferred. */
int removal_forget(struct pairing *pr);

#endif
