/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The methods that SQLite calls on an open database, how it ends a transaction, and the PRAGMAs. Each call that uses the view
 * holds the connection's mutex.
 *
 * SQLite's handle is the one of the VFS below, with other methods: what needs no work here (shared memory, the size of a sector)
 * goes to that VFS at once.
 */
#ifndef ATO_SQLITE_METHODS_H
#define ATO_SQLITE_METHODS_H

#include "api.h"

/* xOpen of a database. */
int methods_open(sqlite3_vfs *below, const char *name, sqlite3_file *file, int flags,
                 int *out_flags);

#endif
