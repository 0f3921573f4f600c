/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a connection has written to its database and not committed: a transaction of libato, which only this connection sees.
 *
 * The first write or change of size begins it. SQLite may make each call from another thread, but makes one call on a connection
 * at a time. Calls return 0, or -1 with errno and ato_errormsg().
 */
#ifndef ATO_SQLITE_PENDING_H
#define ATO_SQLITE_PENDING_H

#include "api.h"
#include "ato_engine.h"

#include <stdbool.h>

struct pending {
    char *view;                 /* the mapping of the database; NULL */
    ato_tx *tx;                 /* NULL: nothing is staged */
    sqlite3_int64 size;         /* the staged size */
    sqlite3_int64 had;          /* the size before the transaction */
    sqlite3_int64 room;         /* the file has this length already; 0: as `had` */
    struct ato_promise promise; /* of the last commit, until it is known to be durable */
    bool owes;                  /* it has read what may not be durable */
    bool relaxed;               /* PRAGMA synchronous says normal or off */
};

/* Begins a transaction, unless there is one. So does each call that stages something. */
int pending_begin(struct pending *s);

int pending_write(struct pending *s, const void *from, int n, sqlite3_int64 offset);
int pending_read(struct pending *s, void *to, int n, sqlite3_int64 offset);
int pending_resize(struct pending *s, sqlite3_int64 size);

/* Prepares the file to grow to this size, if there is space. The staged size stays. */
int pending_hint(struct pending *s, sqlite3_int64 size);

enum pending_commit {
    PENDING_DURABLE, /* when the call returns */
    PENDING_EARLY, /* when pending_await() returns, which follows, after other connections may write */
    PENDING_RELAXED, /* later */
};

/* Commits what is staged. After a failure it is staged still. */
int pending_commit(struct pending *s, enum pending_commit when);

/* Before other connections may write: of a transaction that commits nothing, what it has read counts. */
void pending_note(struct pending *s);

/* Waits until the last commit is durable, or what was read instead; if it is relaxed, only shows that to readers. */
int pending_await(struct pending *s);

void pending_abort(struct pending *s);

#endif
