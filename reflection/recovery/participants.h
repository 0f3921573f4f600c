/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The files that the lanes of a dead process's journal name: found in the journal's folder, locked, and mapped.
 *
 * For replay.c and visible.c. The caller holds the journal's recovery byte. Attach locks are taken in
 * ascending order of ids. Changes nothing, except that participants_targets() allocates space.
 */
#ifndef ATO_REFLECTION_RECOVERY_PARTICIPANTS_H
#define ATO_REFLECTION_RECOVERY_PARTICIPANTS_H

#include "reflection/format/manifest.h"
#include "reflection/pairing/ownership.h"
#include "reflection/recovery/found.h"

struct participants_file {
    struct journal_file in_journal;
    bool sized;                     /* a lane has its size word */
    struct participants_file *next; /* in the list of held ones */
    dev_t device;                   /* of the manifest */
    ino_t inode;
    int lock; /* the manifest, with its attach lock */
    int reflection;
    char *map;
    uint64_t bytes;
    char *manifest; /* its mapping, if `sized` */
    struct persist persist;
    struct manifest_record record;
    struct trust owner;
    char name[32];
};

struct participants {
    const struct found_journal *journal;
    struct participants_file *files; /* sorted by id */
    size_t nfiles, room;
    struct participants_file *held; /* files that words are replayed to */
};

/* Adds the files of a committed lane. Returns 0; -1 with a sentence. */
int participants_add(struct participants *n, const struct journal_view *v);

/* Locks and maps all added files. Skips, with a warning, files with a pairing that is gone. Returns 0.
 * Returns -1 with a sentence if a file may exist and cannot be opened, or the file's owner
 * gives the journal's maker no permission to write to it (any more): then nothing may be retired. */
int participants_acquire(struct participants *n);

/* Returns NULL if no added lane names the file. */
struct participants_file *participants_find(const struct participants *n,
                                            const struct journal_file *in_journal);

/* Where the words of a lane go for one of its files: to the bytes of its reflection, and to the size word of
 * its manifest. */
struct participants_target {
    struct persist persist;
    char *reflection; /* NULL: the file is gone, its words are skipped */
    uint64_t bytes;
    uint64_t *size;            /* NULL: a size word is skipped */
    const char *folder, *name; /* of the reflection, for sentences */
    int fd;                    /* the reflection; 0: never sync all of it */
};

/* Fills `targets`, one for each file of a lane, and allocates space under the lane's words. Returns 0; -1 with
 * a sentence. */
int participants_targets(struct participants *n, const struct journal_view *v,
                         struct participants_target *targets);

/* Closes all files, also after a failure. */
void participants_end(struct participants *n);

#endif
