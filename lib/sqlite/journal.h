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

/* What there is on the disk under a journal's name: SQLite plays it back if it has a first byte, and that is not 0. */
enum journal_left {
    JOURNAL_NONE,
    JOURNAL_HOT,
    JOURNAL_COLD,
    JOURNAL_NO_FILE, /* a folder */
    JOURNAL_UNKNOWN, /* may not be looked at */
};

enum journal_left journal_on_disk(const char *name);

/* `its_own`: the journal's connection. What was `left` on the disk under its name is deleted. SQLITE_CANTOPEN, where that
 * is to be played back and cannot be deleted. */
int journal_open(struct journal *j, struct connection *its_own, sqlite3_vfs *below,
                 const char *name, enum journal_left left);

#endif
