/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Pages that SQLite reads without a copy (xFetch): they are deployed first, and stay valid in the file until the next write.
 */
#ifndef ATO_SQLITE_FETCH_H
#define ATO_SQLITE_FETCH_H

#include "api.h"

struct connection;

/* Points `*page` at the n bytes at `offset`, or sets it to NULL: SQLite has to read them then. Returns SQLITE_OK, or an error of
 * the VFS below. */
int fetch_page(struct connection *c, sqlite3_int64 offset, int n, void **page);

/* FCNTL_MMAP_SIZE: no page is given out behind *limit, which the VFS below may lower. Gives the earlier limit. */
int fetch_limit(struct connection *c, sqlite3_int64 *limit);

#endif
