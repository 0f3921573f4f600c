/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The bytes of a database: what SQLite reads and writes is translated (mask.h), staged (staged.h), or the VFS's below
 * (direct.h). All errors are logged.
 */
#ifndef ATO_SQLITE_DATA_H
#define ATO_SQLITE_DATA_H

#include "api.h"

#include <stdbool.h>

struct connection;

/* Are writes part of a transaction? */
bool data_stages(const struct connection *c);

/* xRead, xWrite and xTruncate. */
int data_read(struct connection *c, void *to, int n, sqlite3_int64 offset);
int data_write(struct connection *c, const void *from, int n, sqlite3_int64 offset);
int data_resize(struct connection *c, sqlite3_int64 size);

/* FCNTL_SIZE_HINT: it will be as large as that. */
int data_expect(struct connection *c, sqlite3_int64 size);

#endif
