/* SPDX-License-Identifier: BSD-3-Clause */
/* The parts of a manifest (manifest.h). The area of a slot: the journal word and the lanes of the process in that slot. `lock`: the
 * manifest. */
#ifndef ATO_REFLECTION_PAIRING_AREA_H
#define ATO_REFLECTION_PAIRING_AREA_H

#include "reflection/format/manifest.h"
#include "reflection/media/fault.h"

/* Reads the record that holds, and *sizes (may be NULL), of which the damaged are all 0. Returns manifest_read()'s result, as of zeros for what is no regular file; -1 with
 * errno. Takes no lock: a record that is being written may count as damaged. */
int area_read(int lock, struct manifest_record *record, struct manifest_sizes *sizes);

/* Notes in the record which file the manifest is. Returns 0; -1 with errno. */
int area_note_own(int lock, struct manifest_record *record);

/* Returns 1 if the manifest is a copy of the one that the record was written to: a backup that was restored, or the upper layer of
 * an overlay; else 0; -1 with errno. */
int area_is_copy(int lock, const struct manifest_record *record);

/* Maps the records and words, for an access (folder_map()). Returns NULL with errno and a sentence: EUCLEAN if the manifest is
 * too short, ... fault_unmap() unmaps them. */
char *area_map_manifest(int lock, int access, const char *path, struct fault_target *faults);

/* Maps the area of a slot, with space for stores. `lock`: the manifest; `path`: its name in sentences. Returns NULL
 * with errno and a sentence: ENOSPC, ... */
char *area_map(int lock, unsigned slot, const char *path, struct fault_target *faults);
void area_unmap(char *area); /* may be NULL */

/* Returns true if the lanes of all slots count for nothing: in domain process none is flushed, and the machine was restarted
 * since, so half of one may be left. */
bool area_are_lost(const struct manifest_record *record);

/* Returns 1 if a slot names a journal, or has a lane that holds a commit, or is damaged; else 0; -1 with errno. */
int area_holds_commits(int lock, const struct manifest_record *record);

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
