/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A file's content that lies in memory: what rollback journals and super-journals are made of.
 *
 * From malloc(), and not SQLite's allocator: a journal on a disk would not count against its heap limits
 * either. One caller at a time.
 */
#ifndef ATO_SQLITE_BYTES_H
#define ATO_SQLITE_BYTES_H

#include "api.h"

struct bytes {
    char *at;
    sqlite3_int64 size, room;
};

/* SQLITE_OK or SQLITE_IOERR_SHORT_READ, and zeros where there is nothing: as a VFS reads. */
int bytes_read(const struct bytes *b, void *to, int n, sqlite3_int64 offset);

/* SQLITE_OK or SQLITE_IOERR_NOMEM, and nothing has changed. */
int bytes_write(struct bytes *b, const void *from, int n, sqlite3_int64 offset);

/* To a smaller size; keeps a little memory for the next use. */
void bytes_cut(struct bytes *b, sqlite3_int64 size);

void bytes_free(struct bytes *b);

#endif
