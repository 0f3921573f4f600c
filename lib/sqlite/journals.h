/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A rollback journal: in memory, or on the disk.
 *
 * SQLite uses the one in memory for ROLLBACK and ROLLBACK TO, and it goes when the connection closes it. After a crash there is
 * nothing to roll back: nothing of the transaction has reached the database. Other connections must not see it, so that
 * xAccess() says it does not exist.
 *
 * A journal is on the disk if another process left it there. And with a transaction over several databases, which SQLite commits by
 * its super-journal: SQLite writes the names of all rollback journals to the super-journal, and syncs that; then, for one database
 * after the other, it writes the super-journal's name to the rollback journal, syncs that, and writes the database. The deletion of the super-journal is the commit. A journal with its name, found later, is played back if
 * the super-journal is there, by whatever VFS.
 *
 * So with this name a journal leaves the memory for the disk, durably, before the database is changed. Before that the database is
 * made complete, and loses its mask: SQLite's own VFS plays a journal back without a look at the header. From then on the VFS below
 * writes, also what was staged when SQLite's cache was too small. When the journal ends, it is deleted.
 *
 * So does the journal of a short transaction that goes below (data_may_go_below()). Its content is durable before its header says how much
 * there is (persist-order Q1; reader: SQLite's play-back, for which a header that begins with zeros is none), the header before the
 * database is written (Q2), that before the journal is deleted (Q3), which is the commit, and the deletion before COMMIT returns (Q4).
 */
#ifndef ATO_SQLITE_JOURNALS_H
#define ATO_SQLITE_JOURNALS_H

#include "api.h"

#include <stdbool.h>

struct connection;

/* A journal in memory. Its content is allocated by malloc(), not by SQLite's allocator: a journal on a disk would not count
 * against SQLite's heap limits either. The caller makes one call at a time. */
struct memory_file {
    sqlite3_file as_file; /* first */
    char *at;
    sqlite3_int64 size, room;
    const char *name; /* SQLite's, which stays until the file is closed */
    struct connection *c;
    sqlite3_file *disk; /* the file on the disk, with the same content; NULL */
    bool is_synced;     /* SQLite has synced what it wrote: it does not with synchronous=OFF */
};

extern const sqlite3_io_methods memory_file_methods;

/* xOpen and xDelete of a journal. */
int rollback_journal_open(sqlite3_vfs *below, const char *name, sqlite3_file *file, int flags,
                          int *out_flags);
int rollback_journal_delete(sqlite3_vfs *below, const char *name, int sync);

/* To be called before a commit that data_may_go_below(): puts its journal on the disk, durably, if SQLite has synced it; else, or where
 * that fails, the commit is staged. Returns SQLITE_OK; an error, if a journal may be left that must not be played back later. */
int rollback_journal_put(struct connection *c);

#endif
