/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A rollback journal in memory. It serves ROLLBACK and ROLLBACK TO of the connection that wrote it, and is
 * gone when that closes it: after a crash there is nothing to roll back, since nothing of the transaction has
 * reached the database. Nobody else may see it: by xAccess() it is not there.
 */
#ifndef ATO_SQLITE_JOURNAL_H
#define ATO_SQLITE_JOURNAL_H

#include "bytes.h"

struct connection;

struct journal {
    sqlite3_file as_file; /* first */
    struct bytes bytes;
    /* Without locks: whose it is, and which outlives it, for SQLite closes the journal first. NULL: not known. */
    struct connection *connection;
};

/* c: database_writer() of `name`. */
void journal_open(struct journal *j, struct connection *c, const char *name);

#endif
