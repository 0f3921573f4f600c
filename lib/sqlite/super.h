/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Super-journals: transactions over several databases.
 *
 * SQLite writes the names of all journals of the transaction to the super-journal, then prepares each
 * database (FCNTL_SYNC with the super-journal's name), and deletes the super-journal: that is the commit. So a
 * database that is prepared is bound to its super-journal here, and the deletion joins what the bound ones have
 * staged to one transaction of libato and commits that. The super-journal is memory.
 *
 * If SQLite rolls back instead, it does so database by database, and each looks whether its super-journal is
 * there still, for else it would take the transaction for committed; the last to finish deletes it, by looking
 * for journals that name it, of which it finds none. So a super-journal that was given up is there for
 * as long as one of its databases is being written to, deleted or not.
 *
 * A super-journal that names a database of another VFS, or one with its journal on the disk, has to lie on the
 * disk, for whoever recovers that: then none of its databases may have its journal in memory.
 */
#ifndef ATO_SQLITE_SUPER_H
#define ATO_SQLITE_SUPER_H

#include "bytes.h"

#include <stdbool.h>

struct connection;
struct super;

/* An open handle of one. */
struct super_file {
    sqlite3_file as_file; /* first */
    struct super *super;  /* NULL: it lies on the disk */
    sqlite3_vfs *below;
    const char *name;
    int flags;
    sqlite3_file *real; /* of the VFS below; NULL */
};

/* xOpen. */
int super_open(struct super_file *f, sqlite3_vfs *below, const char *name, int flags,
               int *out_flags);

bool super_exists(const char *name);

/* xDelete: *mine says whether there was one in memory. The commit, if it has databases that are bound to it. */
int super_delete(const char *name, bool *mine);

/* The database is prepared. SQLITE_IOERR_FSYNC: it cannot take part, or there is none of this name. */
int super_bind(struct connection *c, const char *name);

/* Around fork(). In the child there are none. */
void super_before_fork(void);
void super_after_fork(bool in_child);

/* One that is bound is not going to be committed with the others: so none of them is. */
void super_give_up(struct connection *c);

#endif
