/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How a pairing's files are made: reflection, manifest and attribute, in the order of birth that the
 * head of pairing.h gives. And the steps that adopting a pairing shares with it.
 *
 * For pairing.c and what it calls: the caller holds the attach lock and all slots. On failure what was made so
 * far stays; the next birth begins anew over it.
 */
#ifndef ATO_REFLECTION_BIRTH_H
#define ATO_REFLECTION_BIRTH_H

#include "place.h"

/* Leaves the manifest in state `born`, everything durable. `name`: within pr->path. */
int birth_give(struct pairing *pr, const struct place_names *n, const char *name,
               const struct pairing_wish *wish);

/* What was wished for, else what the media of both files offer. The reflection is open. */
int birth_choose_domain(struct pairing *pr, const struct pairing_wish *wish);

/* That of the file, which others have mapped. EXDEV: another one was wished for. */
int birth_take_domain(struct pairing *pr, const struct pairing_wish *wish);

/* Maps the manifest, with space under all of it. The domain is chosen. */
int birth_map_manifest(struct pairing *pr, const struct place_names *n);

/* Owner, group and mode of a file of the pairing follow the original's, which may have changed: what lies
 * in the reflection is the original's content. As far as the caller may; else a warning. */
void birth_follow(const struct pairing *pr, int fd, const char *name);

/* The next version of pr->record, durable. */
int birth_write_record(struct pairing *pr);

#endif
