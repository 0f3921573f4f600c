/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Pages that SQLite reads without a copy (xFetch): they are brought home before, and stay there until the next write.
 */
#ifndef ATO_SQLITE_FETCH_H
#define ATO_SQLITE_FETCH_H

#include "api.h"

struct connection;

/* `*page`: the n bytes at offset; NULL: SQLite has to read them. SQLITE_OK, or as the VFS below has it. */
int fetch_page(struct connection *c, sqlite3_int64 offset, int n, void **page);

/* FCNTL_MMAP_SIZE: no page may lie behind this; the VFS below knows what limit there is to limits. */
int fetch_limit(struct connection *c, sqlite3_int64 *limit);

#endif
