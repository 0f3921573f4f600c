/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The file of a redo journal: `journal-<number>` in a reflection folder, which holds the journal from its first byte to
 * its last (journal.h). A file that is not complete holds nothing: no manifest names it yet.
 *
 * Two byte locks on the file (open file description locks, dropped by the kernel when the process dies):
 *   byte 0   the owner: held while the process that commits through the journal lives (redo_sweep())
 *   byte 1   recovery: held by a process that replays the journal, after the owner died
 *
 * The number is random. Manifests name the journal by it (area.h).
 */
#ifndef ATO_REFLECTION_RECOVERY_REDO_H
#define ATO_REFLECTION_RECOVERY_REDO_H

#include "reflection/format/journal.h"
#include "reflection/media/window.h"
#include "reflection/pairing/folder.h"
#include "reflection/pairing/ownership.h"

#define REDO_PREFIX "journal-"

/* Returns true if a name in a reflection folder is that of a journal: `journal-` and 12 hex digits, its number. */
bool redo_name_of(const char *name, uint64_t *number); /* `number` may be NULL */

enum { REDO_NAME_BYTES = 32 };
void redo_name(char name[REDO_NAME_BYTES], uint64_t number);

struct redo {
    struct window map; /* of the whole file; the owner's grows with it (redo_grow()) */
    struct fault_target faults;
    struct journal journal;
    uint64_t number;
    int lock;
    char name[REDO_NAME_BYTES];
    char path[PATH_MAX + REDO_NAME_BYTES]; /* for sentences */
};

/* Makes a new journal in `f` and locks it as its owner. It gets the given owner, group and mode, as far as the caller may.
 * Returns 0; -1 with a sentence: ENOSPC, EACCES, ... */
int redo_create(struct redo *r, const struct folder *f, const struct persist *p,
                const struct trust *like);

/* Makes the large lane longer, where it is: then it holds `words` words (at most JOURNAL_MAX_WORDS) beside any number of files.
 * No commit uses it meanwhile. Returns 0; -1 with a sentence: ENOSPC, ... */
int redo_grow(struct redo *r, uint64_t words);

/* Opens the journal `number` of a dead process and locks it for recovery. Its maker must be trusted for `file`. Returns
 * 0; -1 with a sentence: EUCLEAN if it is damaged, ...; ENOENT without one if there is none. */
int redo_open(struct redo *r, const struct folder *f, uint64_t number, const struct trust *file);

/* Unmaps, unlocks and closes a journal; keeps errno. `remove`: removes its file first; the caller has checked that no lane
 * holds a commit. If it cannot be removed, it is swept up some time. */
void redo_close(struct redo *r, const struct folder *f, bool remove);

/* Removes what dead processes left in a reflection folder: journals that no manifest names (any more), which hold no commit
 * that counts; unfinished journals and manifests. What cannot be looked at, or removed, stays. */
void redo_sweep(const struct folder *f);

#endif
