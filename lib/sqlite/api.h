/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * SQLite's functions, by whatever way this copy of the code reaches them: called directly where it is linked
 * with SQLite (SQLITE_CORE), and through the table that a loaded extension is given. The second way has no
 * function before register.c was called.
 */
#ifndef ATO_SQLITE_API_H
#define ATO_SQLITE_API_H

#include <sqlite3ext.h>

#ifndef SQLITE_CORE
SQLITE_EXTENSION_INIT3
#endif

/* Oldest whose calls to a VFS are those that connection.c goes by. */
#define OLDEST_SQLITE 3034000

#endif
