/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The parts of a manifest (manifest.h): its records, the areas with the small lanes of each slot, and the long lane, which
 * comes behind them and counts as the area of slot MANIFEST_SLOTS. `lock`: the manifest.
 */
#ifndef ATO_REFLECTION_PAIRING_AREA_H
#define ATO_REFLECTION_PAIRING_AREA_H

#include "reflection/format/lane.h"
#include "reflection/pairing/pairing.h"

/* Reads the record that holds, in *copy, and *sizes, of which the damaged are all 0; both may be NULL. Returns manifest_read()'s result, as of
 * zeros for what is no regular file; -1 with errno. Takes no lock: a record that is being written may count as damaged. */
int area_read(int lock, struct manifest_record *record, struct manifest_sizes *sizes, int *copy);

/* The same of a manifest in a folder; -1 with errno also if it cannot be opened. */
int area_read_at(const struct folder *f, const char *manifest, struct manifest_record *record);

/* Notes in the record which file the manifest is. Returns 0; -1 with errno. */
int area_note_own(int lock, struct manifest_record *record);

/* Returns 1 if the manifest is a copy of the one that the record was written to: a backup that was restored, or the upper layer of
 * an overlay; else 0; -1 with errno. */
int area_is_copy(int lock, const struct manifest_record *record);

/* Maps n bytes from the area of a slot on, or of the long lane, with space for stores, as *area: an empty one (.at NULL), or a shorter one,
 * which is unmapped then; no commit uses it. Returns 0; -1 with errno and a sentence, and *area as it was: ENOSPC, ... fault_unmap()
 * unmaps it. */
int area_map(struct pairing *pr, unsigned slot, uint64_t n, struct lane *area);

/* Gives space to the first n bytes of an area. In a copy of the manifest there may be holes instead of zeros; on a full tmpfs even a load from
 * a hole is SIGBUS. Returns 0; -1 with errno. */
int area_make_space(int lock, unsigned slot, uint64_t n);

/* Returns true if all lanes count for nothing: in domain process none is flushed, and the machine was restarted
 * since, so half of one may be left. */
bool area_are_lost(const struct manifest_record *record);

/* Returns how many bytes of an area matter, in a manifest of that length: of the long lane as many as its commit line asks for, if there are so
 * many. -1 with errno. */
int64_t area_bytes(int lock, unsigned slot, uint64_t length);

/* Notes the lanes in so many bytes, which are at `at`: a lane that was cut off with the end of the manifest has fewer bytes than its commit
 * needs, and counts as damaged. Returns how many there are. */
unsigned area_lanes(unsigned slot, char *at, uint64_t bytes, struct lane lanes[LANE_SMALL]);

/* Reads the lanes of a slot, *n of them, as they are. Returns memory that the caller frees; NULL with errno. */
char *area_copy_lanes(int lock, unsigned slot, struct lane lanes[LANE_SMALL], unsigned *n);

/* Returns 1 if a lane holds a commit, or is damaged; else 0; -1 with errno. */
int area_holds_commits(int lock, const struct manifest_record *record);

/* Returns the first slot in [slot, MANIFEST_SLOTS] whose area, or for MANIFEST_SLOTS the long lane, may hold anything but zeros;
 * AREA_END: none. */
enum { AREA_END = MANIFEST_SLOTS + 1 };
unsigned area_next(int lock, unsigned slot);

#endif
