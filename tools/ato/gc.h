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

#include "progress.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum gc_fate {
    GC_KEPT,    /* a process uses it, or it cannot be told that none does; never removed */
    GC_UNSURE,  /* may hold content of a file that is elsewhere; --delete=all removes it */
    GC_USELESS, /* --delete removes it */
    GC_REMOVED,
    GC_FAILED, /* it could not be removed */
    GC_BLIND,  /* it could not be looked at */
};

enum gc_delete { GC_NOTHING, GC_THE_USELESS, GC_ALL };

struct gc {
    enum gc_delete delete;
    struct gc_item {
        const char *kind;
        char *path, *why;
        uint64_t bytes; /* of storage */
        enum gc_fate fate;
    } * items;
    size_t n, room;
    bool lost; /* no memory for another item */
    struct gc_id {
        uint8_t id[16];
        char *manifest; /* NULL: useless, or removed */
    } * ids;            /* of the pairings below the folder */
    size_t id_count, id_room;
    bool all_shared; /* /dev/shm is below the folder */
    struct progress progress;
    uint64_t done,
        total; /* of what gc_folders() looks at: names, then suspects; total 0: not known yet */
};

/* Notes an item. */
void gc_add(struct gc *gc, enum gc_fate fate, const char *kind, const char *path, uint64_t bytes,
            const char *format, ...) __attribute__((format(printf, 6, 7)));

/* Returns true if an item of this fate is to be removed. */
bool gc_wanted(const struct gc *gc, enum gc_fate fate);

/* Shows that one more is looked at. */
void gc_step(struct gc *gc);

/* Looks at all reflection folders below the folder `name`. */
void gc_folders(struct gc *gc, const char *name);

/* Looks at the shared memory in /dev/shm of the pairings that gc_folders() has found; or at all of libato's. */
void gc_shared(struct gc *gc);

/* Removes the memory in which processes that were killed had SQLite's locks of a database, which is open for writing. */
void gc_shared_locks(int database);

#endif
