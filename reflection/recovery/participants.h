/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The files of one recovery: the file that is recovered, and those that committed lanes of the dead process's
 * journal name. All lie in one reflection folder. They are locked, and mapped by their descriptors.
 *
 * Attach locks are taken in ascending order of ids. A file takes part only if a slot of its manifest names the journal,
 * as a process that may write to the file has stored it there: other users' journals are not believed. The process in
 * that slot is dead, or dying.
 */
#ifndef ATO_REFLECTION_RECOVERY_PARTICIPANTS_H
#define ATO_REFLECTION_RECOVERY_PARTICIPANTS_H

#include "reflection/pairing/pairing.h"

struct participant {
    struct journal_file file;
    bool borrowed; /* the caller keeps `lock` */
    unsigned slot; /* of the dead process */
    char *area;    /* of that slot, if it was used and its lanes were replayed */
    int lock;      /* the manifest, with its attach lock */
    int reflection;
    char *map; /* the reflection; NULL: it is empty */
    uint64_t bytes;
    char *manifest; /* its first MANIFEST_BYTES */
    struct persist persist;
    struct manifest_record record;
    char path[PATH_MAX + 32]; /* of the reflection, for sentences */
};

struct participants {
    const struct pairing *
        own; /* of the file that is recovered; the others have the same folder, and writers like it */
    uint64_t journal;          /* number of the dead process's journal; 0: none */
    struct participant *files; /* sorted by id */
    size_t nfiles, room;
};

/* Adds a file. Returns 0; -1 with ENOMEM. */
int participants_add(struct participants *n, const struct journal_file *file);

/* Locks and maps all added files. Those that do not take part are dropped, with a warning: their words are skipped. Returns 0;
 * -1 with a sentence if one may take part and cannot be opened: then nothing may be retired. */
int participants_acquire(struct participants *n);

/* The same for one file, of whose manifest the caller has the attach lock, by `lock`, and the record. */
int participants_acquire_locked(struct participants *n, const struct manifest_record *record,
                                int lock);

/* Returns NULL if the file does not take part. */
struct participant *participants_find(const struct participants *n,
                                      const struct journal_file *file);

/* Closes all files, also after a failure. */
void participants_end(struct participants *n);

#endif
