/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The content of a file in memory: of a rollback journal or super-journal.
 *
 * It is allocated by malloc(), not by SQLite's allocator: a journal on a disk would not count against SQLite's heap limits
 * either. The caller makes one call at a time.
 */
#ifndef ATO_SQLITE_BYTES_H
#define ATO_SQLITE_BYTES_H

#include "api.h"

struct bytes {
    char *at;
    sqlite3_int64 size, room;
};

/* As xRead: SQLITE_IOERR_SHORT_READ if there are fewer than n bytes, with zeros for the rest. */
int bytes_read(const struct bytes *b, void *to, int n, sqlite3_int64 offset);

/* As xWrite: SQLITE_OK; SQLITE_IOERR_NOMEM, and nothing has changed. */
int bytes_write(struct bytes *b, const void *from, int n, sqlite3_int64 offset);

/* Cuts the content to a smaller size. Some of the memory is kept for the next use. */
void bytes_cut(struct bytes *b, sqlite3_int64 size);

void bytes_free(struct bytes *b);

#endif
