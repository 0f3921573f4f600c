/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The methods that SQLite calls on an open database. Each of them takes the connection's mutex, and does its work by the other
 * modules.
 */
#ifndef ATO_SQLITE_METHODS_H
#define ATO_SQLITE_METHODS_H

#include "api.h"

struct connection;

/* SQLite's handle. It is no larger than one of the VFS below, since SQLite counts the memory of handles as a database's. */
struct connection_file {
    sqlite3_file as_file; /* first */
    struct connection *connection;
};

/* xOpen of a database. */
int methods_open(struct connection_file *f, sqlite3_vfs *below, const char *name, int flags,
                 int *out_flags);

#endif
