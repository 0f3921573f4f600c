/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A database file in this process: its connections, and the mapping that they share. It is one for writing if the process may
 * write to the file, also for connections that only read.
 *
 * The connections share a mapping because of SQLite's locks: they are locks of fcntl(2), and a process loses all of its
 * locks on a file when it closes any descriptor of that file. So no descriptor of a database (libato's own included) is
 * closed while the database has a connection: the first connection that needs a mapping makes it, and the last
 * connection removes it. A mapping is needed to write, and to read a file that has a reflection: a database that is only read
 * gets none.
 */
#ifndef ATO_SQLITE_DATABASE_H
#define ATO_SQLITE_DATABASE_H

#include "api.h"
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
    int fd; /* for writing, if the process may write to the file; -1: of a parent's process */
    bool writable;      /* it may */
    void *view;         /* the mapping; NULL: none */
    size_t view_length; /* for ato_munmap() */
    size_t reach;       /* bytes that the file may grow to in this view */
    struct connection *connections;
    size_t max_size;      /* the max_size that the view was asked for first */
    char *reflection_dir; /* as given for that view, absolute; NULL */
    int domain;           /* ATO_DOMAIN_...; 0: there was no view yet */
    int policy;           /* ATO_READ_... of the view */
    bool guarded;         /* if it is masked, it is known to have a guard (mask.h) */
    bool whole;           /* the reflection of the file without a mask was seen to hold nothing */
};

/* Finds the database of the connection, lists the connection, and maps the file if it has a reflection. c->writable becomes false if
 * the process may not write to the file. Returns SQLITE_OK with c->db, or an error that is logged. */
int database_open(struct connection *c);

/* Maps the database for a connection without a view, if need be. TO_WRITE: the caller has RESERVED, and no more; if the file
 * gets its reflection now, it gets its mask with it. Returns 0; -1 with errno and ato_errormsg(), and the connection has no view. */
enum database_need { IF_PAIRED, ALWAYS, TO_WRITE };
int database_map(struct connection *c, enum database_need need);

/* Takes the connection off the list. The last one unmaps the file, and makes it plain unless c->wants.unmap_fast. A failure is
 * logged. */
void database_close(struct connection *c);

/* Reads the header of the file itself, without its reflection. Returns false if the file is shorter: then `header` has what
 * there is. */
bool database_read_header(const struct database *db, char header[MASK_HEADER]);

/* Returns the length of the file itself; -1 if it cannot be found out. */
sqlite3_int64 database_length(const struct database *db);

/* Maps the file anew, unless another connection of this process is in a call or has something staged. That cuts a file that got
 * shorter (libato cuts it when the last mapping goes), and makes all of a file usable that another process made longer than the
 * view reaches. `drop_plain`: only unmaps it, and only if it is plain; all connections are direct then. libato keeps a length for as
 * long as any process has the file mapped, so that other programs may change it only where no view stays. If mapping fails the
 * connections fail until one of them maps it (database_map()); that is logged. */
void database_renew(struct connection *self, bool drop_plain);

/* Returns a connection of this process for which is_wanted() returns true with this key; NULL: there is none. The caller is the
 * thread of the connection, or only asks whether there is one. */
struct connection *database_find(bool (*is_wanted)(const struct connection *c, const void *key),
                                 const void *key);

/* The lock of the list of all connections, which is also taken around fork(). The child forgets its parent's connections. */
void database_lock(void);
void database_unlock(void);
void database_after_fork_in_child(void);

#endif
