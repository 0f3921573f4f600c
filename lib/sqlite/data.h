/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reads and writes of a database: they go to the VFS below, SQLite's own, or to libato, where writes are staged (pending.h) and the
 * header is masked (mask.h). All errors are logged.
 *
 * The VFS below does ('direct') while all of the database is in its file and the file has no mask (mask.h): before the first
 * write, in WAL mode, with a rollback journal on the disk, and outside transactions of a database that is read eagerly.
 *
 * How long is the database? While the file is masked it is as long as the view. Before, other programs and the VFS below may have
 * made the file longer or shorter than the view.
 */
#ifndef ATO_SQLITE_DATA_H
#define ATO_SQLITE_DATA_H

#include "api.h"

struct connection;

/* xRead, xWrite and xTruncate. */
int data_read(struct connection *c, void *to, int n, sqlite3_int64 offset);
int data_write(struct connection *c, const void *from, int n, sqlite3_int64 offset);
int data_resize(struct connection *c, sqlite3_int64 size);

/* To be called with RESERVED, before something is staged. Afterwards there is a view, as long as the file if that is plain. Returns
 * as direct_settle(). */
int data_reserve(struct connection *c);

/* FCNTL_SIZE_HINT: the database is going to have this size. */
int data_expect(struct connection *c, sqlite3_int64 size);

/* ---- which VFS ---- */

/* To be called when a connection has got SHARED. Completes the commits of dead processes, decides which VFS reads, and looks
 * whether the lengths of file and view fit. Returns SQLITE_OK, SQLITE_BUSY, or an error that is logged. */
int direct_settle(struct connection *c);

/* Drops the view of a plain file that has another length by now; the next transaction maps the file anew. */
void direct_follow(struct connection *c);

/* Ends a transaction: makes the connection direct if the database is read eagerly or was switched to WAL mode. A failure is
 * logged; the next checkpoint or transaction tries again. */
void direct_leave(struct connection *c);

/* ---- length ---- */

/* Returns the length that libato has; -1 if there is no view. */
sqlite3_int64 length_of_view(const struct connection *c);

/* Gives the length for SQLite, which includes what is staged. Returns SQLITE_OK, or an error that is logged. */
int length_get(struct connection *c, sqlite3_int64 *size);

#endif
