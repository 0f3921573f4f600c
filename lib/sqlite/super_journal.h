/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Super-journals: transactions over several databases.
 *
 * SQLite writes the names of all rollback journals of the transaction to the super-journal, prepares each database
 * (FCNTL_SYNC with the super-journal's name), and deletes the super-journal: that is the commit. Here a database that is
 * prepared is bound to its super-journal, which is in memory. The deletion joins what the bound databases have staged to one
 * transaction of libato, and commits that.
 *
 * If SQLite rolls back instead, it does so database by database. For each it looks whether the super-journal still
 * exists: if not, it treats the transaction as committed. The last one deletes the super-journal, when SQLite finds no
 * journal that names it. So a super-journal that was given up exists for as long as one of its databases is being
 * written to, even if it was deleted.
 *
 * A super-journal that names a database of another VFS, or one whose journal is on the disk, has to be on the disk, where
 * recovery looks for it. None of its databases may have its journal in memory then.
 */
#ifndef ATO_SQLITE_SUPER_JOURNAL_H
#define ATO_SQLITE_SUPER_JOURNAL_H

#include "bytes.h"

#include <stdbool.h>

struct connection;
struct super;

/* An open handle of a super-journal. */
struct super_file {
    sqlite3_file as_file; /* first */
    struct super *super;  /* NULL: it is on the disk */
    sqlite3_vfs *below;
    const char *name;
    int flags;
    sqlite3_file *real; /* the handle of the VFS below, if it is on the disk */
};

/* xOpen of a super-journal. */
int super_open(struct super_file *f, sqlite3_vfs *below, const char *name, int flags,
               int *out_flags);

/* Returns whether a super-journal of this name is in memory. */
bool super_exists(const char *name);

/* xDelete of any file: *mine says whether it is a super-journal in memory. Commits what the databases bound to it have staged. */
int super_delete(const char *name, bool *mine);

/* Binds a prepared database. SQLITE_IOERR_FSYNC if it cannot take part: no super-journal of this name is in memory. */
int super_bind(struct connection *c, const char *name);

/* To be called around fork(). The child has no super-journals. */
void super_before_fork(void);
void super_after_fork(bool in_child);

/* If c is bound, its transaction is not going to be committed, nor any of the databases bound with it. */
void super_give_up(struct connection *c);

#endif
