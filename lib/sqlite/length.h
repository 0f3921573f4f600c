/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The length of a database. While the file is masked it is the length of the view. Before, other programs may have made the
 * file longer or shorter than the view.
 */
#ifndef ATO_SQLITE_LENGTH_H
#define ATO_SQLITE_LENGTH_H

#include "api.h"

#include <stdbool.h>

struct connection;

/* Returns the length that libato has; -1 if there is no view. */
sqlite3_int64 length_of_view(const struct connection *c);

/* Returns the same without what other programs have cut off: a load behind the end of the file raises SIGBUS. */
sqlite3_int64 length_committed(const struct connection *c);

/* Gives the length for SQLite, which includes what is staged. Returns SQLITE_OK, or an error that is logged. */
int length_get(struct connection *c, sqlite3_int64 *size);

/* Notes what other programs have cut off, unless the connection is direct: then it does not go by the view. Returns whether the file has another length than the view, and that was not dealt
 * with before. */
bool length_look(struct connection *c);

/* The same, and maps a plain file anew, so that the view gets the length of the file. */
void length_find(struct connection *c);

/* Returns SQLITE_OK if view and file have the same length, else `code`, which is logged. */
int length_require(struct connection *c, int code);

/* Cuts a file whose database got shorter: libato cuts it only when it is unmapped. */
void length_cut(struct connection *c);

#endif
