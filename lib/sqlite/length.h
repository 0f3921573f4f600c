/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How long is a database, whatever others made of its file? While it is masked all goes by the view; others may have made
 * the file longer or shorter before.
 */
#ifndef ATO_SQLITE_LENGTH_H
#define ATO_SQLITE_LENGTH_H

#include "api.h"

#include <stdbool.h>

struct connection;

/* Bytes of the database, as libato has it; -1: there is no view. */
sqlite3_int64 length_of_view(const struct connection *c);

/* The same, without what others have cut off: what lies behind the end of the file is SIGBUS. */
sqlite3_int64 length_committed(const struct connection *c);

/* As SQLite is told it, with what is staged. SQLITE_OK; an error that is logged. */
int length_get(struct connection *c, sqlite3_int64 *size);

/* Sees what others have cut off. Has the file another length than the view, which is not known yet? */
bool length_look(struct connection *c);

/* The same, and maps the file anew where all was home, so that it is taken for what it is. */
void length_find(struct connection *c);

/* Is the view as long as the file? If not, this error, which is logged. */
int length_require(struct connection *c, int code);

/* Cuts a file off that got shorter: it keeps its length while it is mapped. */
void length_cut(struct connection *c);

#endif
