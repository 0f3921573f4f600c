/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * SQLite's functions: called directly in the library that is linked with SQLite (SQLITE_CORE), and through the table that
 * SQLite gives an extension when it loads it. In an extension no function may be called before extension.c has that table.
 */
#ifndef ATO_SQLITE_API_H
#define ATO_SQLITE_API_H

#include <sqlite3ext.h>

#ifndef SQLITE_CORE
SQLITE_EXTENSION_INIT3
#endif

/* The oldest SQLite whose order of calls methods.c knows. */
#define OLDEST_SQLITE 3034000

#endif
