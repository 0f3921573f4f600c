/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A connection: an open database file as SQLite has it. share.h says how the database is shared, and so where its reads and
 * writes go. The first write or change of size with RESERVED or above begins to stage a transaction (a checkpoint writes with
 * less: it is not staged); methods.c says how it ends.
 *
 * Nothing is staged, and the VFS below writes, where something else can undo or repeat the writes:
 *
 *   WAL mode               the log has all pages until a checkpoint has written them
 *   a hot journal is       it stays on the disk until all of its pages are written; SQLite's own VFS plays it back before it
 *   played back            looks at the header, and may have to go on with it
 *   several databases      their journals are put on the disk before the commit (journals.h)
 *   a first commit         of a database on a disk, if it is small: so is its journal (data_may_go_below())
 *
 * So such a database has nothing in its reflection.
 */
#ifndef ATO_SQLITE_CONNECTION_H
#define ATO_SQLITE_CONNECTION_H

#include "parameters.h"
#include "pending.h"

#include <pthread.h>
#include <stddef.h>
#include <string.h>

struct database;
struct memory_file;

/* The size of SQLite's smallest pages. */
enum { LEAST_PAGE = 512 };

struct connection {
    sqlite3_io_methods methods;      /* those of SQLite's handle */
    sqlite3_vfs *vfs;                /* the VFS below */
    const sqlite3_io_methods *below; /* its methods: locks, direct reads and writes */
    sqlite3_file *file;              /* SQLite's handle, which is one of the VFS below */
    const char *name;                /* SQLite's: the parameters of the URI follow it in memory */
    const char *journal, *wal;       /* SQLite's names of these files */
    struct database *db;
    struct connection *next; /* of the same database */
    sqlite3 **user;          /* SQLite's connection that uses it now; NULL: not known */
    const sqlite3 *opener;   /* the one that opened it. Atomic. */
    struct parameters wants;
    struct pending pending;
    char *
        plain; /* what it reads through while the database is not mapped for writing (database.h); NULL */
    pthread_mutex_t in_call; /* held in a call: the view stays mapped (database.c, at_exit()) */
    int error;               /* errno when the call began */
    int lock;                /* SQLITE_LOCK_... */
    ato_snapshot *snapshot;  /* what it reads below RESERVED (share_memory.h); NULL */
    bool keeps_locks;        /* PRAGMA locking_mode=exclusive. Atomic. */
    bool committed;          /* since it got EXCLUSIVE */
    bool excludes_all;       /* its EXCLUSIVE in memory keeps those out who read snapshots */
    int line;                /* of its locks in memory (locks.h); -1: none yet */
    int (*busy)(void *);     /* SQLite's busy handler: is it to be tried again? NULL: not known */
    void *busy_arg;
    uint64_t mask_seen; /* when database_check_mask_again() has looked; 0: it has to */
    bool wrote;         /* its last transaction asked for RESERVED */
    bool in_advance; /* it has RESERVED in memory, and SQLite has not asked for it yet. Atomic. */
    bool gave_back;  /* its EXCLUSIVE, after a commit */
    unsigned char early; /* so many commits are early (methods.c) */
    bool writable;
    bool checkpoint; /* a checkpoint is under way */
    /* It ended a checkpoint, and has not asked whether its cache is up to date since: data_read() says it is not. */
    bool cache_is_old;
    enum {
        JOURNAL_NONE,
        JOURNAL_IN_MEMORY,
        JOURNAL_ON_DISK
    } rollback;                    /* its open journal (journals.h) */
    struct memory_file *in_memory; /* that journal; NULL */
    bool deletes_durably; /* the deletion of its journal is a commit that must not come back */
    bool commits; /* what is staged has the first page: the rest of the commit follows at once */
    bool becomes_wal; /* what is staged switches to WAL mode */
    bool wrote_below; /* by the VFS below, which has yet to sync it */
    /* The file is complete and has no mask, until this connection stages, begins a checkpoint or gives a lock back. SQLite may cut it
     * after a checkpoint, or a transaction whose journal was on the disk. */
    bool complete;
    sqlite3_int64
        counter; /* of the header, when it was last read by the VFS below, or written; -1: never */
    sqlite3_int64
        ends_at; /* the length that the staged header says; 0: no header is staged, or it does not say */
    int chunk; /* FCNTL_CHUNK_SIZE; 0 */
};

/* The pointer to the connection lies in SQLite's handle, behind what the VFS below has there. (A VFS above may replace the methods by a
 * copy that calls these.) */
extern size_t connection_offset; /* set once (vfs.c) */

/* Returns the connection of SQLite's handle. */
static inline struct connection *connection_of(const sqlite3_file *file)
{
    struct connection *c;
    memcpy(&c, (const char *)file + connection_offset, sizeof(c));
    return c;
}

/* Returns whether the connection has RESERVED or above. Any thread may ask. */
static inline bool connection_writes(const struct connection *c)
{
    return __atomic_load_n(&c->lock, __ATOMIC_RELAXED) >= SQLITE_LOCK_RESERVED;
}

/* Ends the snapshot that the connection reads, if it does. */
static inline void connection_unsee(struct connection *c)
{
    if (c->snapshot)
        (void)ato_snapshot_end(c->snapshot);
    c->snapshot = NULL;
}

/* Connections with keeps_locks. Atomic. */
extern unsigned connection_keepers;

/* Returns how many nanoseconds a lock is waited for, whatever the busy handler says. */
static inline uint64_t connection_wait(const struct connection *c)
{
    return c->wants.lock_wait_ms * 1000000ull;
}

/* xOpen of a database (methods.c). */
int methods_open(sqlite3_vfs *below, const char *name, sqlite3_file *file, int flags,
                 int *out_flags);

#endif
