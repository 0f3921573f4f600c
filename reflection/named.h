/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The files that the lanes of a dead process's journal name: found in the journal's folder or in those of its
 * table, locked, and mapped.
 *
 * For replay.c and visible.c. The caller holds the journal's recovery byte. Attach locks are taken in
 * ascending order of ids. Changes nothing, except that named_targets() allocates space and
 * named_remove_pointers() removes pointers.
 */
#ifndef ATO_REFLECTION_NAMED_H
#define ATO_REFLECTION_NAMED_H

#include "linked.h"
#include "manifest.h"
#include "trust.h"

struct named_file {
    struct journal_file who;
    bool sized;              /* a lane has its size word */
    struct named_file *next; /* in the list of held ones */
    const struct folder *folder;
    dev_t device; /* of the manifest */
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

struct named {
    const struct linked *journal;
    const struct journal *table;
    struct named_file *files; /* sorted by id */
    size_t nfiles, room;
    struct named_file *held;      /* files that words are replayed to */
    struct named_folder *folders; /* of the table, opened when needed */
};

/* Returns 0; -1 with a sentence. named_end() follows in each case. */
int named_begin(struct named *n, const struct linked *journal, const struct journal *table);
void named_end(struct named *n);

/* Adds the files of a committed lane. Returns 0; -1 with a sentence. */
int named_add(struct named *n, const struct journal_view *v);

/* Locks and maps all added files. Skips, with a warning, files with a pairing that is gone. Returns 0.
 * Returns -1 with a sentence if a file, or its folder, may exist and cannot be opened, or the file's owner
 * gives the journal's maker no permission to write to it (any more): then nothing may be retired. */
int named_acquire(struct named *n);

/* Returns NULL if no added lane names the file. */
struct named_file *named_find(const struct named *n, const struct journal_file *who);

/* Where the words of a lane go for one of its files: to the bytes of its reflection, and to the size word of
 * its manifest. */
struct named_target {
    struct persist persist;
    char *reflection; /* NULL: the file is gone, its words are skipped */
    uint64_t bytes;
    uint64_t *size;            /* NULL: a size word is skipped */
    const char *folder, *name; /* of the reflection, for sentences */
    int fd;                    /* the reflection; 0: never sync all of it */
};

/* Fills `targets`, one for each file of a lane, and allocates space under the lane's words. Returns 0; -1 with
 * a sentence. */
int named_targets(struct named *n, const struct journal_view *v, struct named_target *targets);

/* Removes the pointers to the journal, which holds nothing any more, durably (J6). Returns 1 if all are gone;
 * 0 if one may still be there: then the journal stays. */
int named_remove_pointers(struct named *n);

#endif
