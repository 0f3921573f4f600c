/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reads and writes of a database: they go to the VFS below (direct.h) or to libato, where writes are staged (pending.h) and the
 * header is masked (mask.h). All errors are logged.
 */
#ifndef ATO_SQLITE_DATA_H
#define ATO_SQLITE_DATA_H

#include "api.h"

#include <stdbool.h>

struct connection;

/* Returns whether writes are part of a transaction of libato. */
bool data_stages(const struct connection *c);

/* xRead, xWrite and xTruncate. */
int data_read(struct connection *c, void *to, int n, sqlite3_int64 offset);
int data_write(struct connection *c, const void *from, int n, sqlite3_int64 offset);
int data_resize(struct connection *c, sqlite3_int64 size);

/* xFetch: points `*page` at the n bytes at `offset`, which are deployed first and stay valid in the file until the next write; or
 * sets it to NULL: SQLite has to read them then. Returns SQLITE_OK, or an error of the VFS below. */
int data_fetch(struct connection *c, sqlite3_int64 offset, int n, void **page);

/* FCNTL_MMAP_SIZE: no page is given out behind *limit, which the VFS below may lower. Gives the earlier limit. */
int data_fetch_limit(struct connection *c, sqlite3_int64 *limit);

/* FCNTL_SIZE_HINT: the database is going to have this size. */
int data_expect(struct connection *c, sqlite3_int64 size);

#endif
