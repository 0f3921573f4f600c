/* SPDX-License-Identifier: BSD-3-Clause */
/* The parts of a manifest (manifest.h). The area of a slot: the journal word and the lanes of the process in that slot. */
#ifndef ATO_REFLECTION_PAIRING_AREA_H
#define ATO_REFLECTION_PAIRING_AREA_H

#include "reflection/format/manifest.h"

/* Maps the records and words, for an access (folder_map()). Returns NULL with errno and a sentence: EUCLEAN if the manifest is
 * too short, ... */
char *area_map_manifest(int lock, int access, const char *path);

/* Maps the area of a slot, with space for stores. `lock`: the manifest; `path`: its name in sentences. Returns NULL
 * with errno and a sentence: ENOSPC, ... */
char *area_map(int lock, unsigned slot, const char *path);
void area_unmap(char *area); /* may be NULL */

/* Returns true if the lanes of all slots count for nothing: in domain process none is flushed, and the machine was restarted
 * since, so half of one may be left. */
bool area_are_lost(const struct manifest_record *record);

/* Returns the first slot in [slot, MANIFEST_SLOTS) whose area may hold anything but zeros; MANIFEST_SLOTS: none. */
unsigned area_next(int lock, unsigned slot);

/* Sets *number to the journal that the slot's word names; 0: none. Returns 0; -1 with EUCLEAN: it is damaged, ... */
int area_journal(int lock, unsigned slot, const char *path, uint64_t *number);

/* Finds the first slot that names the journal *number; 0: any journal, whose number becomes *number. Returns
 * MANIFEST_SLOTS if none does; -1 with a sentence. */
int area_find_journal(int lock, uint64_t *number, const char *path);

/* Stores the slot's journal word. Durable when it returns 0; -1 with EIO and a sentence. */
int area_set_journal(const struct persist *p, char *area, uint64_t number, const char *path);

#endif
