/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Makes a pairing's files: reflection, manifest and attribute, in the order of birth at the head of
 * pairing.h. Also the steps that adopting a pairing shares with this.
 *
 * For pairing_open.c and what it calls. The caller holds the attach lock and all slots. On failure the files
 * stay; the next birth replaces them. Results: 0, or -1 with a sentence.
 */
#ifndef ATO_REFLECTION_PAIRING_BIRTH_H
#define ATO_REFLECTION_PAIRING_BIRTH_H

#include "reflection/pairing/pairing.h"

/* Makes reflection and manifest, which has no record yet. */
int birth_give(struct pairing *pr, const struct pairing_wish *wish);

/* Makes the pairing durable, with pr->record and the attribute: nothing may be stored before. `marks`: folder_sync_name(). */
int birth_finish(struct pairing *pr, bool marks);

/* The end of that: makes the manifest durable, and sets the attribute. */
int birth_end(struct pairing *pr);

/* Sets the attribute, with pr->record.id and this inode number. The caller syncs the file. Clears pr->has_attributes, and notes that in
 * pr->record, if the file system takes none. */
int birth_set_attribute(struct pairing *pr, uint64_t inode);

/* Bytes of the ring of a new log. A test's may be shorter. */
extern uint64_t birth_ring_bytes;

/* Sets pr->persist to the wished domain, else to what the media of file and folder offer. The manifest is open. */
void birth_choose_domain(struct pairing *pr, const struct pairing_wish *wish);

/* Allocates space for the manifest and for the area of slot 0. */
int birth_allocate(struct pairing *pr);

/* Writes the next version of pr->record, durably. */
int birth_write_record(struct pairing *pr);

#endif
