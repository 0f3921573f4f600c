/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A database file as this process has it: one mapping for all connections that write, one for those that may
 * only read, and the list of the connections.
 *
 * One of each, because of the locks: the VFS beneath takes locks of fcntl(2), which a process loses on a file
 * when it closes any descriptor of that file. So no descriptor of a database, libato's own among them, may
 * be closed while one of its connections is open: mappings are made by the first that needs them, and go
 * with the last connection.
 */
#ifndef ATO_SQLITE_DATABASE_H
#define ATO_SQLITE_DATABASE_H

#include "api.h"
#include "ato.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct connection;
struct kept_descriptor;

/* What ato_munmap() takes; at: NULL if there is none. */
struct view {
    void *at;
    size_t length;
    size_t max_size; /* how far it reaches, if the file does */
};

struct database {
    struct database *next;
    unsigned process; /* of how many forks */
    bool lost;        /* could not be mapped again */
    bool busy;        /* somebody maps or unmaps it, without the lock */
    dev_t device;
    ino_t inode;
    struct view views[2]; /* [may write] */
    struct kept_descriptor *kept;
    struct connection *connections;
    int fd;          /* one of them, to look at the file */
    size_t max_size; /* as the view that may write was made */
    int domain;      /* ATO_DOMAIN_... */
    int policy;      /* how the view was read that was mapped last (ATO_READ_...); -1 */
    bool guarded;    /* it is known to have a guard, if it has a mask (mask.h) */
    bool whole;      /* its reflection held nothing, when it was looked at */
    bool unmap_fast; /* by what the connection said that closed last */
};

struct database_wish {
    const char *path;
    bool writable;
    size_t max_size; /* bytes that it may grow to; 0: the default */
    unsigned flags;  /* ato_options.flags */
};

/* For a connection that is to be listed. NULL with errno, and ato_errormsg() or `*by_system`. */
struct database *database_open(const struct database_wish *wish, struct connection *c,
                               bool *by_system);

/* The connection is gone; the last one unmaps the file, and makes it plain unless `unmap_fast`. `name`: for
 * the sentence, if that fails. */
void database_close(struct database *db, struct connection *c, const char *name);

/* Reads the first n bytes of the file, without its reflection. False: it is shorter; what it has is read. */
bool database_read_header(const struct database *db, void *to, size_t n);

/* How long the file is for everybody; -1. */
sqlite3_int64 database_length(const struct database *db);

/* Does its domain reach the medium? */
static inline bool database_is_durable(const struct database *db)
{
    return db->domain != ATO_DOMAIN_PROCESS;
}

/* Do many pages take as long to flush as one? */
static inline bool database_flushes_by_calls(const struct database *db)
{
    return db->domain == ATO_DOMAIN_MSYNC;
}

/* Maps the file anew, unless somebody is in it: so a file that got shorter is cut, which waits until nobody
 * has it mapped, and all of one that others made longer than the view goes is within reach. `self`: whose call it
 * is; the others are kept out. `prefer_file`: only if all is home, and the file may have been given another length by
 * other means: it is right as it is, and not mapped for as long as other processes have it mapped with the old one. Where it cannot be mapped again its connections fail from then on;
 * `name` is for the sentence. */
void database_renew(struct database *db, const struct connection *self, bool prefer_file,
                    const char *name);

/* Does a connection of this process write, whose rollback journal has this name and lies in memory? */
bool database_journals_in_memory(const char *journal);

/* SQLite opens it. Does it lie in memory, as far as `may_be`? `*its_own`: then, whose it is, if that has no locks and the
 * name is its own; NULL. */
bool database_opens_journal(const char *journal, bool may_be, struct connection **its_own);

/* SQLite deletes it. Did it lie in memory when it was opened last? */
bool database_deletes_journal(const char *journal);

/* At the exit of the process: what is open is left as the last close would leave it, as far as that takes no more than some
 * seconds. What another thread is in stays as it is. */
void database_at_exit(void);

/* Is that so of one of the connections of this process? */
bool database_any(bool (*is)(const struct connection *c, const void *arg), const void *arg);

/* In a forked child: its parent's connections are not its own. Around fork(): nobody is in here. */
void database_before_fork(void);
void database_after_fork(bool in_child);

#endif
