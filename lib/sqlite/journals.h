/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A rollback journal: in memory, or on the disk.
 *
 * SQLite uses the one in memory for ROLLBACK and ROLLBACK TO, and it goes when the connection closes it. After a crash there is
 * nothing to roll back: nothing of the transaction has reached the database. Other connections must not see it, so that
 * xAccess() says it does not exist.
 *
 * A journal is on the disk with ?journal=file, or if another process left it there.
 *
 * SQLite writes the header of the journal just before a transaction changes the first page of a database. The transaction is
 * refused there, by an error of the statement, if it has begun to change another database and libato cannot commit both
 * together. A lock would be too early: BEGIN IMMEDIATE takes RESERVED of all databases, also of those that are only read.
 *
 * Super-journals: transactions over several databases.
 *
 * SQLite writes the names of all rollback journals of the transaction to the super-journal, prepares each database
 * (FCNTL_SYNC with the super-journal's name), and deletes the super-journal: that is the commit. Here the super-journal is in
 * memory, and a database that it names is its member. The deletion joins what the members have staged to one transaction of
 * libato, and commits that.
 *
 * If SQLite rolls back instead, it does so database by database. For each it looks whether the super-journal still
 * exists: if not, it treats the transaction as committed. The last one deletes the super-journal, when SQLite finds no
 * journal that names it. So a super-journal exists for as long as it has members, even if it was deleted. For SQLite, which then
 * reads it, it is empty.
 *
 * A main database with its rollback journal on the disk has its super-journal there, where recovery looks for it. A database
 * whose journal is in memory cannot be prepared then.
 */
#ifndef ATO_SQLITE_JOURNALS_H
#define ATO_SQLITE_JOURNALS_H

#include "api.h"

#include <stdbool.h>

struct connection;

/* A journal or super-journal in memory. Its content is allocated by malloc(), not by SQLite's allocator: a journal on a disk
 * would not count against SQLite's heap limits either. The caller makes one call at a time. */
struct memory_file {
    sqlite3_file as_file; /* first */
    char *at;
    sqlite3_int64 size, room;
    const char *name;     /* SQLite's, which stays until the file is closed */
    struct connection *c; /* of a rollback journal; else NULL */
};

extern const sqlite3_io_methods memory_file_methods;

/* xOpen and xDelete of a journal. */
int rollback_journal_open(sqlite3_vfs *below, const char *name, sqlite3_file *file, int flags,
                          int *out_flags);
int rollback_journal_delete(sqlite3_vfs *below, const char *name, int sync);

/* xOpen of a super-journal. */
int super_open(sqlite3_vfs *below, const char *name, sqlite3_file *file, int flags, int *out_flags);

/* Returns whether a super-journal of this name is in memory. */
bool super_exists(const char *name);

/* xDelete of a super-journal in memory. Commits what its members have staged if they are prepared. */
int super_delete(const char *name);

/* The transaction of the members of this super-journal (NULL: of none) is not going to be committed. */
void super_give_up(const char *name);

/* If c is a member: gives up the transaction of its super-journal, and c is a member no longer, since its part is rolled back. */
void super_leave(struct connection *c);

#endif
