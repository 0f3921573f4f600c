/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * An open database: what SQLite's calls on it mean for what is staged.
 *
 *   begin     the first write or change of size under a RESERVED lock or above; without one (a checkpoint)
 *             writes are committed one by one
 *   commit    FCNTL_SYNC without a name; xSync with something staged; COMMIT_PHASETWO, of a new size that
 *             comes after the commit, and of what a VFS above holds back for so long
 *   prepare   FCNTL_SYNC with the name of a super-journal (super.h)
 *   abort     the lock drops below RESERVED, or the database is closed
 *
 * With ?journal=file nothing is staged: rollback journal and database are the VFS's below. So is a database in WAL mode,
 * whose log makes a checkpoint's writes safe: nothing of it is in the reflection, and SQLite's own VFS may share it. So are
 * the pages that a rollback journal on the disk gives back: it is there until all are home, and SQLite's own VFS, which
 * plays it back before it looks at the header, may have to go on with it.
 */
#ifndef ATO_SQLITE_CONNECTION_H
#define ATO_SQLITE_CONNECTION_H

#include "staged.h"

#include <pthread.h>

struct database;
struct super;

/* What SQLite has. It counts the memory of its handles as a database's: they are no larger than those of the
 * VFS below. */
struct connection_file {
    sqlite3_file as_file; /* first */
    struct connection *connection;
};

/* Of a page that xFetch gave out. */
enum { NEIGHBOURHOOD = 1 << 20 };
struct neighbours {
    sqlite3_int64 which; /* and 1; 0: none */
    bool home;           /* all were brought there since the database was changed last */
};

struct connection {
    sqlite3_file *real;      /* of the VFS below: locks, shared memory of WAL */
    const char *name;        /* SQLite's, with the parameters of its URI behind it */
    struct database *db;     /* with its list of connections: */
    struct connection *next; /* of the same database */
    struct super *super;     /* that it is bound to; NULL */
    struct connection *next_bound;
    struct staged staged;
    pthread_mutex_t in_call; /* the view stays where it is (database_renew()) */
    int error;               /* errno, when the call began */
    int lock;                /* SQLITE_LOCK_... */
    bool writable;
    int denied;         /* it was opened for writing, and writing is this error */
    bool without_locks; /* ?nolock=1: xLock is not called */
    bool checkpoint;    /* is being made */
    bool checkpointed; /* one was, since then no lock was given back, nor a transaction committed */
    bool batch;        /* BEGIN_ATOMIC_WRITE */
    bool journal_file; /* ?journal=file: its rollback journal lies on the disk */
    bool journaled;    /* its rollback journal lay in memory when it was opened last */
    bool plays_back;   /* a rollback journal on the disk is open, which others left */
    bool takes_file;   /* ?prefer=file */
    bool refused;      /* to be prepared: what is staged is never committed */
    bool direct;       /* the VFS below reads and writes it, for the file by itself is right */
    bool unguarded; /* what is staged is a new file's header, whose guard is not set yet (mask.h) */
    bool has_staged;  /* and has not left the database to others yet, if it is to */
    bool becomes_wal; /* what is staged turns WAL mode on */
    bool shorter;     /* its file is, than it was when it was mapped */
    bool unmap_fast;
    int chunk;                 /* FCNTL_CHUNK_SIZE; 0 */
    sqlite3_int64 fetch_limit; /* FCNTL_MMAP_SIZE */
    int fetched;               /* pages that xFetch gave out */
    struct neighbours neighbours[64];
    char counter[16];        /* SQLite's, in the file, and what comes behind it */
    sqlite3_int64 reach;     /* of the view, if the file does */
    sqlite3_int64 looked_at; /* length of the file that was another than the database's */
    sqlite3_int64 cut_to; /* 1 and the bytes that others have left of the file; 0: they have not */
};

/* xOpen. */
int connection_open(struct connection_file *f, sqlite3_vfs *below, const char *name, int flags,
                    int *out_flags);

/* Its rollback journal in memory is closed, by its own thread; c has no locks. Where SQLite takes no locks (nolock=1) that is how it
 * gives up after an error: after a commit nothing is staged by then. */
void connection_lose_journal(struct connection *c);

/* Does it hold the lock of who writes? To be asked of any connection. */
bool connection_writes(const struct connection *c);

/* Is it the connection's rollback journal that has this name? */
bool connection_has_journal(const struct connection *c, const char *journal);

/* Does that name lie where SQLite keeps it for this connection, and no other? */
bool connection_owns_name(const struct connection *c, const char *journal);

#endif
