/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which VFS reads and writes a database: this one, through libato, or the VFS below, SQLite's own?
 *
 * The VFS below does ('direct') while all of the database is in its file and the file has no mask (mask.h): before the first
 * write, in WAL mode, with a rollback journal on the disk, and outside transactions of a database that is read eagerly.
 */
#ifndef ATO_SQLITE_DIRECT_H
#define ATO_SQLITE_DIRECT_H

#include <stdbool.h>

struct connection;

/* To be called when a connection has got SHARED, or begins a transaction without locks. Completes the commits of dead
 * processes and decides which VFS reads. Returns SQLITE_OK, SQLITE_BUSY, or an error that is logged. */
int direct_settle(struct connection *c);

/* Makes the connection direct: deploys the database and takes its mask off. The caller has RESERVED or mask_lock(). Returns
 * 0; -1 with errno and ato_errormsg(). */
int direct_go(struct connection *c);

/* Ends a transaction: makes the connection direct if the database is read eagerly or was switched to WAL mode. A failure is
 * logged; the next checkpoint or transaction tries again. */
void direct_leave(struct connection *c);

/* Returns whether the VFS below may map the file (xFetch). It may if nothing but that VFS makes the file shorter: it does
 * not learn of another truncation, and a load behind the end of a file raises SIGBUS. */
bool direct_maps_below(const struct connection *c);

#endif
