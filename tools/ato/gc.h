/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What `ato gc` finds, and removes if it is told to.
 *
 * A thing that a living process uses, or may be about to use, is never removed: pairings are removed with their attach lock and
 * all slots locked, as the library does it, and shared memory only if the kernel says that
 * no other process has it open.
 */
#ifndef ATO_TOOLS_GC_H
#define ATO_TOOLS_GC_H

#include "json.h"

#include <limits.h>

enum gc_fate {
    GC_KEPT,    /* a process uses it, or it cannot be told that none does; never removed */
    GC_UNSURE,  /* may hold content of a file that is elsewhere; --delete=all removes it */
    GC_USELESS, /* --delete removes it */
    GC_REMOVED,
    GC_FAILED, /* it could not be removed */
    GC_BLIND,  /* it could not be looked at */
    GC_FATES
};

struct gc {
    unsigned delete; /* of --delete */
    struct json json;
    uint64_t count[GC_FATES], bytes[GC_FATES];
    struct gc_id {
        struct gc_id *next;
        uint8_t id[16];
        bool stays;
        char manifest[]; /* its path */
    } * ids;             /* of the pairings below the folder */
    bool all_shared;     /* /dev/shm is below the folder */
};

/* Shows an item. */
void gc_add(struct gc *gc, enum gc_fate fate, const char *kind, const char *path, uint64_t bytes,
            const char *format, ...) __attribute__((format(printf, 6, 7)));

/* Returns true if an item of this fate is to be removed. */
bool gc_wanted(const struct gc *gc, enum gc_fate fate);

/* Shows an item that was removed if it is wanted: 0; -1 with errno: it could not; 1: a process is just using it. */
void gc_settle(struct gc *gc, enum gc_fate fate, const char *kind, const char *path, uint64_t bytes,
               int removed, const char *why);

/* Looks at all reflection folders below the folder `name`. */
void gc_folders(struct gc *gc, const char *name);

/* Looks at the shared memory in /dev/shm of the pairings that gc_folders() has found; or at all of libato's. */
void gc_shared(struct gc *gc);

/* Removes the memory in which processes that were killed had SQLite's locks of a database, which is open for writing. */
void gc_shared_locks(int database);

#endif
