/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A rollback journal: in memory, or on the disk.
 *
 * SQLite uses the one in memory for ROLLBACK and ROLLBACK TO, and it goes when the connection closes it. After a crash there is
 * nothing to roll back: nothing of the transaction has reached the database. Other connections must not see it, so that
 * xAccess() says it does not exist.
 *
 * A journal is on the disk with ?journal=file, or if another process left it there.
 */
#ifndef ATO_SQLITE_ROLLBACK_JOURNAL_H
#define ATO_SQLITE_ROLLBACK_JOURNAL_H

#include "api.h"

/* xOpen and xDelete of a journal. */
int rollback_journal_open(sqlite3_vfs *below, const char *name, sqlite3_file *file, int flags,
                          int *out_flags);
int rollback_journal_delete(sqlite3_vfs *below, const char *name, int sync);

#endif
