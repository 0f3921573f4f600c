/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Finishes what a dead process has committed: stores the words of its lanes in all files that they name.
 *
 * These are the file that is recovered, and those that committed lanes of the dead process's journal name. All lie in one
 * reflection folder. They are locked, and mapped by their descriptors.
 *
 * Attach locks are taken in ascending order of ids. A file takes part only if a slot of its manifest names the journal,
 * as a process that may write to the file has stored it there: other users' journals are not believed. The process in
 * that slot is dead, or dying.
 */
#ifndef ATO_LIB_RECOVERY_REPLAY_H
#define ATO_LIB_RECOVERY_REPLAY_H

#include "lib/file/shared.h"
#include "reflection/pairing/pairing.h"

struct participant {
    struct journal_file file; /* the first member: by_id() */
    unsigned slot;            /* of the dead process */
    char *area;               /* of that slot, if it was used and its lanes were replayed */
    int lock;                 /* the manifest, with its attach lock */
    int reflection;
    char *map; /* the reflection; NULL: it is empty */
    uint64_t bytes;
    char *manifest;             /* its first MANIFEST_BYTES */
    struct fault_target faults; /* of all its views */
    struct persist persist;
    struct manifest_record record;
    char path[PATH_MAX + 32]; /* of the reflection, for sentences */
    char lanes[PATH_MAX + 48];
    /* What the dead process held in memory (takeover.c): */
    struct shared shared; /* .header NULL: no process has the file mapped */
    uint32_t holder;      /* as in page_state.holder */
    int original;         /* -1: this process does not have it open */
    struct dead_page *pages;
    uint64_t npages;
    bool unsettled; /* some words must be made durable */
    bool in_place;  /* words of the original, too */
};

struct participants {
    /* Of the file that is recovered; the others have the same folder, and writers like it. */
    const struct pairing *own;
    bool
        alone; /* no process has it mapped, and the caller has its attach lock: all slots are replayed */
    uint64_t journal;          /* number of the dead process's journal; 0: none */
    struct participant *files; /* sorted by id */
    size_t nfiles;
};

/* Adds a file. Returns 0; -1 with ENOMEM. */
int participants_add(struct participants *n, const struct journal_file *file);

/* Locks and maps all added files. Those that do not take part are dropped, with a warning: their words are skipped. Returns 0;
 * -1 with a sentence if one may take part and cannot be opened: then nothing may be retired. */
int participants_acquire(struct participants *n);

/* Returns NULL if the file does not take part. */
struct participant *participants_find(const struct participants *n,
                                      const struct journal_file *file);

/* Closes all files, also after a failure. */
void participants_end(struct participants *n);

/* The steps of finishing the commits in a dead process's lanes, each for all of them:
 *   collect  makes durable what is visible of the lanes, and adds the files of those with a commit to the participants,
 *            unless `n` is NULL
 *   apply    stores their words, durably; the files are acquired
 *   retire   retires them
 * Each can be repeated. */
enum replay_step { REPLAY_COLLECT, REPLAY_APPLY, REPLAY_RETIRE };

/* Does one step. `path`: of the journal or manifest, for sentences. Returns 0; -1 with a sentence, and no commit is lost:
 * EUCLEAN if a lane is damaged, EIO, ... */
int replay_lanes(const struct journal *j, enum replay_step step, struct participants *n,
                 const char *path);

/* Does all three for the lanes in the manifest of one file: those in the dead process's slot, or in all slots if the file is
 * alone. Keeps the area of the last one mapped as p->area. */
int replay_slots(struct participants *n, struct participant *p);

/* Applies the words of a committed lane; those of files that do not take part are skipped. Durable when it returns 0. -1 with EUCLEAN, with nothing stored, if a word does not lie in a meta page of its
 * reflection, or a size is not valid or more than the reflection has pages for. (If another process changes the lane
 * meanwhile, words before the bad one may be stored.) */
int replay_apply(const struct journal_view *v, const struct participants *n);

#endif
