/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a connection has written to its database and not committed: a transaction of libato, which only this connection sees.
 *
 * The first write or change of size begins it. SQLite may make each call from another thread: that thread adopts the
 * transaction. Calls return 0, or -1 with errno and ato_errormsg().
 */
#ifndef ATO_SQLITE_STAGED_H
#define ATO_SQLITE_STAGED_H

#include "api.h"
#include "ato.h"

#include <stdbool.h>

struct staged {
    char *view;          /* the mapping of the database; NULL */
    ato_tx *tx;          /* NULL: nothing is staged */
    bool writes;         /* bytes are staged, not only a size */
    sqlite3_int64 begin; /* the committed size */
    sqlite3_int64 size;  /* the staged size */
    sqlite3_int64 room;  /* the size that the file is prepared to grow to */
};

int staged_write(struct staged *s, const void *from, int n, sqlite3_int64 offset);
int staged_read(struct staged *s, void *to, int n, sqlite3_int64 offset);
int staged_resize(struct staged *s, sqlite3_int64 size);

/* Prepares the file to grow to this size. The staged size stays. */
int staged_hint(struct staged *s, sqlite3_int64 size);

/* Commits what is staged. After a failure it is staged still. */
int staged_commit(struct staged *s);

/* Makes `other` a part of s. Both have something staged. After a failure both are as they were. */
int staged_join(struct staged *s, struct staged *other);

void staged_abort(struct staged *s);

#endif
