/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The files that the lanes of a dead process's journal name: found in the journal's folder or in those of
 * its table, locked, and mapped.
 *
 * For replay.c, and visible.c: the caller holds the journal's recovery byte. Attach locks are taken in ascending
 * order of ids. Nothing is changed but what make_space gives, and the pointers at the end.
 */
#ifndef ATO_REFLECTION_NAMED_H
#define ATO_REFLECTION_NAMED_H

#include "linked.h"
#include "replay.h"

struct named_file {
    struct journal_file who;
    bool sized;              /* a lane says its logical size */
    struct named_file *next; /* of those that are held */
    const struct folder *folder;
    dev_t device; /* of the manifest */
    ino_t inode;
    int lock; /* manifest, attach lock held */
    int reflection;
    char *map;
    uint64_t bytes;
    char *manifest; /* its mapping, if sized */
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
    struct named_file *held;      /* those that there is something to replay to */
    struct named_folder *folders; /* of the table, as far as lanes name them */
};

/* 0; -1 with a sentence. named_end() follows in each case. */
int named_begin(struct named *n, const struct linked *journal, const struct journal *table);
void named_end(struct named *n);

/* The files of a committed lane. */
int named_add(struct named *n, const struct journal_view *v);

/* Locks and maps all of them. Those whose pairing is gone are passed over with a warning. -1 when one may
 * be there and cannot be had, or its folder, or is another user's by now, who gave the journal's maker no
 * permission to write to it: then nothing may be retired. */
int named_acquire(struct named *n);

/* NULL: no lane that was added names it. */
struct named_file *named_find(const struct named *n, const struct journal_file *who);

/* Where the words of a lane go, and space for them. -1 with a sentence. */
int named_targets(struct named *n, const struct journal_view *v, struct replay_target *targets);

/* Removes the pointers to the journal, which holds nothing any more, durably (J6). 1 all are gone; 0 one
 * may be there still: the journal stays. */
int named_remove_pointers(struct named *n);

#endif
