/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Keeps an SQLite database as it is while it is copied, as far as libato cannot: programs that use SQLite's own VFS write to the
 * file without libato, and a journal or a write-ahead log on the disk is a part of the database.
 *
 * It uses the locks that these programs use, by a lock of the open file description, which is given back when that is closed:
 *
 *   SHARED   such programs read on, and do not commit; a process that opens the database through `ato` waits
 *   a door   (lib/sqlite/locks.h) processes have it open through `ato`: they read and write on, in one transaction of libato each
 *   all      nobody has it open, and nobody opens it: for a database in WAL mode, or one that is not plain
 */
#ifndef ATO_TOOLS_SQLITE_HOLD_H
#define ATO_TOOLS_SQLITE_HOLD_H

#include <stdbool.h>

struct sqlite_hold {
    int fd; /* of the database; open for writing, unless only SHARED is possible */
    bool writable;
    const char *path;
    bool held, all; /* held at all; held so */
};

/* Returns whether a file that begins with these bytes is a database. The mask (lib/sqlite/mask.h) makes no difference. */
bool sqlite_is_header(const void *header);

/* Waits up to five seconds for a writer. `header`: MASK_HEADER bytes of the database: first as they are in the file, and once the file
 * is mapped, as libato has them. is_plain: it has no reflection. Returns
 * 0; -1 with errno and report_sentence(): EBUSY (a program has it open, or writes to it), ENOTSUP (a part of it is in
 * another file). */
int sqlite_hold(struct sqlite_hold *h, const void *header, bool is_plain);

/* To be called with the header of the copy, while the database is held: was it held rightly? Returns as sqlite_hold(). */
int sqlite_was_held(const struct sqlite_hold *h, const void *header);

/* Returns 0 if no file lies beside `path` that SQLite would take for a part of a database of that name; -1 as above. */
int sqlite_has_no_parts(const char *path);

#endif
