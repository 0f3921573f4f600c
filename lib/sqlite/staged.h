/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a connection has written to its database and not committed: a transaction of libato.
 *
 * Begun by the first write or change of size. Only this connection sees it. SQLite may call from another thread
 * each time: that thread takes it over. Errors are errno's, with a sentence in ato_errormsg().
 */
#ifndef ATO_SQLITE_STAGED_H
#define ATO_SQLITE_STAGED_H

#include "api.h"
#include "ato.h"

#include <stdbool.h>

struct staged {
    char *view;          /* of the database */
    ato_tx *tx;          /* NULL: nothing is staged */
    bool writes;         /* not only a size */
    sqlite3_int64 begin; /* size of the file for others */
    sqlite3_int64 size;  /* for this connection */
    sqlite3_int64 room;  /* that the file may grow to without more ado */
};

int staged_write(struct staged *s, const void *from, int n, sqlite3_int64 offset);
int staged_read(struct staged *s, void *to, int n, sqlite3_int64 offset);
int staged_resize(struct staged *s, sqlite3_int64 size);

/* The file is going to have so many bytes, at least: is made ready for that at once. Its size stays. */
int staged_hint(struct staged *s, sqlite3_int64 size);

/* Nothing is staged afterwards, unless it fails. */
int staged_commit(struct staged *s);

/* `other` becomes part of s, which has something staged. On failure both are as they were. */
int staged_join(struct staged *s, struct staged *other);

void staged_abort(struct staged *s);

#endif
