/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The parts of a manifest (manifest.h): its records, the areas with the small lanes of each slot, and the long lane, which
 * comes behind them and counts as that of slot MANIFEST_SLOTS. `lock`: the manifest.
 */
#ifndef ATO_REFLECTION_PAIRING_AREA_H
#define ATO_REFLECTION_PAIRING_AREA_H

#include "reflection/format/lane.h"
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

/* Maps the area of a slot, with space for stores. `path`: its name in sentences. Returns NULL with errno and a sentence: ENOSPC, ... */
char *area_map(int lock, unsigned slot, const char *path, struct fault_target *faults);
void area_unmap(char *area); /* may be NULL */

/* Maps the long lane into *lane, with space for stores and for so many words. Of an empty lane (.at NULL) or of one that is shorter,
 * which is unmapped then; no commit uses it. Returns 0; -1 with errno and a sentence, and the lane as it was: ENOSPC, ... */
int area_map_long(int lock, uint64_t words, enum persist_domain domain, const char *path,
                  struct fault_target *faults, struct lane *lane);

/* The same for what is there of it, at least so many bytes as an empty lane has. */
int area_map_found(int lock, const char *path, struct fault_target *faults, struct lane *lane);
void area_unmap_long(struct lane *lane);

/* Cuts off all areas but the first and the long lane, if there is more than these. No process uses the file, and no lane holds a
 * commit. Returns 0; -1 with errno. */
int area_cut(int lock);

/* Returns true if all lanes count for nothing: in domain process none is flushed, and the machine was restarted
 * since, so half of one may be left. */
bool area_are_lost(const struct manifest_record *record);

/* Reads the lanes of a slot, 1 or LANE_SMALL of them, as they are: zeros behind the end of the file; so much of a long lane as its commit
 * line asks for. Returns memory that the caller frees; NULL with errno. */
char *area_copy_lanes(int lock, unsigned slot, struct lane lanes[LANE_SMALL], unsigned *n);

/* Returns 1 if a lane holds a commit, or is damaged; else 0; -1 with errno. */
int area_holds_commits(int lock, const struct manifest_record *record);

/* Returns the first slot in [slot, MANIFEST_SLOTS] whose area, or for MANIFEST_SLOTS the long lane, may hold anything but zeros;
 * AREA_END: none. */
enum { AREA_END = MANIFEST_SLOTS + 1 };
unsigned area_next(int lock, unsigned slot);

#endif
