/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Who reads and writes a database: libato, or SQLite's own VFS, the one below? The latter, if all of the database is in its
 * file, and the file has no mask (mask.h). That is so before the first write, in WAL mode and with a journal on the disk;
 * and where it is read eagerly, outside transactions.
 */
#ifndef ATO_SQLITE_DIRECT_H
#define ATO_SQLITE_DIRECT_H

#include <stdbool.h>

struct connection;

/* A transaction, or SHARED lock, begins: completes what dead processes were committing, and finds out who reads. An error
 * that is logged, or SQLITE_BUSY. */
int direct_settle(struct connection *c);

/* Brings all home: from now on it is the VFS's below. With the RESERVED lock. 0; -1 with errno and ato_errormsg(). */
int direct_go(struct connection *c);

/* The same at the end of a transaction, if others are to read what it wrote. What fails is logged; the next checkpoint tries
 * again, or the next transaction. */
void direct_leave(struct connection *c);

/* May the VFS below map the file? Only of a database that it alone makes shorter: it would not know of another cut, and
 * what lies behind the end of a file is SIGBUS. */
bool direct_maps_below(const struct connection *c);

#endif
