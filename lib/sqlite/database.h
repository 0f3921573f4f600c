/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A database file in this process: its connections, and the mapping that they share (share.h says when there is one).
 *
 * A process loses all of its locks of fcntl(2) on a file when it closes any descriptor of that file. So no descriptor of a
 * database (libato's own included) is closed while the database has a connection.
 */
#ifndef ATO_SQLITE_DATABASE_H
#define ATO_SQLITE_DATABASE_H

#include "api.h"
#include "locks.h"
#include "mask.h"

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct connection;

struct database {
    struct database *next;
    /* Held by the thread that maps or unmaps it, which may take long: that deploys a file, or waits for another process. Taken after
     * a connection's in_call and before database_lock(). */
    pthread_mutex_t mapping;
    dev_t device;
    ino_t inode;
    bool gone; /* the process is about to end: it is unmapped for good */
    int fd;    /* for writing, if the process may write to the file; -1: of a parent's process */
    bool writable;      /* it may */
    bool memory;        /* it is shared in memory (atomic, for share_memory_begin()) */
    struct locks locks; /* then */
    unsigned below;     /* connections with a lock of the VFS below */
    int told;           /* errno of the mapping whose failure was logged last; 0 */
    uint64_t looked;    /* when database_check_outside() has looked. Atomic. */
    void *view;         /* the mapping; NULL: none. Atomic. */
    size_t view_length; /* for ato_munmap() */
    size_t reach;       /* bytes that the file may grow to in this view */
    /* Of one that was plain when it began to be shared in memory: a mapping for reading, until it is written; NULL: none. */
    void *plain;
    size_t plain_length;
    uint64_t plain_at; /* when its length was looked at. Atomic. */
    /* Transactions that began by the VFS below, since that time; and whether they were so many that it is time to share it in memory. */
    unsigned begun;
    uint64_t begun_at;
    bool is_busy;         /* atomic */
    bool committed_below; /* data_may_go_below() */
    struct connection *connections;
    size_t max_size;      /* the max_size that the view was asked for first */
    char *reflection_dir; /* as given for that view, absolute; NULL */
    bool had_view;
    bool guarded;     /* if it is masked, it is known to have a guard (mask.h) */
    bool overwritten; /* database_check_mask() has found that. Atomic. */
};

/* Finds the database of the connection, and lists the connection. c->writable becomes false if the process may not write to the
 * file. Returns SQLITE_OK with c->db, or an error that is logged. */
int database_open(struct connection *c);

/* Maps the database, unless it is. Returns 0; -1 with errno and ato_errormsg(). The caller holds db->mapping. */
int database_map(const struct connection *c);

/* The same for reading only, of a plain file that stays plain: db->plain. Without memory or address space there is none. */
void database_map_plain(const struct connection *c);
void database_unmap_plain(struct database *db);

/* Returns db->plain, if the file is still plain and as long as it was. Looks at most every 10 ms, so that a burst of transactions pays
 * nothing. */
char *database_plain(const struct connection *c);

/* Reports a failure of database_map(). It is logged once, although SQLite may try again and again. */
int database_fault_of_map(const struct connection *c, int code);

/* Unmaps the database, if it is mapped. makes_plain: makes the file plain, unless the process may not write to it or others have it
 * mapped; then this process has SQLite's PENDING lock, or mask_lock(), which the caller gives back. A failure is logged: false. The
 * caller holds db->mapping. */
bool database_unmap(struct connection *c, bool makes_plain);

/* Takes the connection off the list. The last one unmaps the file, and makes it plain unless c->wants.unmap_fast. A failure is
 * logged. */
void database_close(struct connection *c);

/* Returns whether the file has a reflection or a log, or it is not known whether it has one. */
bool database_is_paired(const struct connection *c);

/* Returns whether there is a manifest with the number of the file, or that is not known. It may be another file's; or its own, without the
 * attribute, after a removal that was cut. */
bool database_has_manifest(const struct connection *c);

/* Returns whether the file itself has a masked header. */
bool database_is_masked(const struct connection *c);

/* Returns whether the file is in a page cache, on a disk where syncs take their time, and would have its log there, too. */
bool database_is_on_disk(const struct database *db);

/* Returns whether only libato can tell the content: it is paired, or has a mask. */
bool database_needs_view(const struct connection *c);

/* To be called before RESERVED of a database that is not mapped yet. Returns SQLITE_OK; or SQLITE_READONLY_DIRECTORY, if the process may
 * not write to the folder in which the reflection would be made: SQLite gets the error then that the first write of its transaction
 * would get, at COMMIT. */
int database_check_folder(const struct connection *c);

/* Returns whether another file, or none, has the name of the database now. */
bool database_has_moved(const struct connection *c);

/* To be called before a commit. Returns SQLITE_OK, or an error that is logged: the name is another file's, or another program has changed
 * the length of the file, or removed its reflection. Looks at most every 10 ms, so that a burst of transactions pays nothing. */
int database_check_outside(const struct connection *c);

/* Returns SQLITE_OK, or an error that is logged: another program has overwritten the database while it is masked, or given it another
 * length. What is in the reflection must not be brought home any more. */
int database_check_mask(struct database *db, const char *name);

/* The same for what the connection stages. SQLite stages the pages of a commit in one go, the first page first: from then on it looks only
 * if the clock has moved since c->mask_seen, by a tick of 1 to 10 ms. Pages that do not fit in its cache are staged at any time before. */
int database_check_mask_again(struct connection *c);

/* Returns the length of the file itself; -1 if it cannot be found out. */
sqlite3_int64 database_length(const struct database *db);

/* Returns a connection of this process for which is_wanted() returns true with this key; NULL: there is none. The caller is the
 * thread of the connection, or only asks whether there is one. */
struct connection *database_find(bool (*is_wanted)(const struct connection *c, const void *key),
                                 const void *key);

/* The lock of the list of all connections, which is also taken around fork(). The child forgets its parent's connections. */
void database_lock(void);
void database_unlock(void);
void database_after_fork_in_child(void);

#endif
