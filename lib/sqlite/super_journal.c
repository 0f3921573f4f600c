/* SPDX-License-Identifier: BSD-3-Clause */
#include "super_journal.h"

#include "connection.h"
#include "database.h"
#include "fault.h"
#include "memory_file.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static struct connection *members; /* of all super-journals, by next_member */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static const char ending[] = "-journal";

void super_before_fork(void)
{
    pthread_mutex_lock(&lock);
}

void super_after_fork(void)
{
    pthread_mutex_unlock(&lock);
}

/* ---- members ---- */

/* Returns the first member of this super-journal from c on; NULL if there is none. The caller holds the lock. */
static struct connection *member(struct connection *c, const char *name)
{
    while (c && strcmp(c->super, name) != 0)
        c = c->next_member;
    return c;
}

bool super_exists(const char *name)
{
    pthread_mutex_lock(&lock);
    const bool exists = member(members, name);
    pthread_mutex_unlock(&lock);
    return exists;
}

void super_give_up(const char *name)
{
    if (!name)
        return;
    pthread_mutex_lock(&lock);
    for (struct connection *c = member(members, name); c; c = member(c->next_member, name))
        c->prepared = false;
    pthread_mutex_unlock(&lock);
}

void super_leave(struct connection *c)
{
    struct connection **at = &members;
    if (!c->super)
        return;
    super_give_up(c->super);
    pthread_mutex_lock(&lock);
    while (*at != c)
        at = &(*at)->next_member;
    *at = c->next_member;
    pthread_mutex_unlock(&lock);
    free(c->super);
    c->super = NULL;
}

static int join(struct connection *c, const char *name)
{
    super_leave(c);
    c->super = strdup(name);
    if (!c->super)
        return SQLITE_IOERR_NOMEM;
    pthread_mutex_lock(&lock);
    c->next_member = members;
    members = c;
    pthread_mutex_unlock(&lock);
    return SQLITE_OK;
}

/* ---- commit ---- */

int super_prepare(struct connection *c, const char *name)
{
    c->prepared = c->super && strcmp(c->super, name) == 0;
    return c->prepared
               ? SQLITE_OK
               : fault(SQLITE_IOERR_FSYNC,
                       "%s cannot be part of a transaction over several databases whose main "
                       "database uses another VFS, or has its journal on the disk: open all with "
                       "vfs=ato, or all with journal=file",
                       c->name);
}

/* Commits what the members have staged, as one transaction. After a failure nothing is staged. The connections are this
 * thread's, but other threads may be about to map their databases anew (database_renew()). */
static int commit(struct connection *const *all, int n)
{
    struct pending *staged[PENDING_MOST];
    int r = SQLITE_OK, have = 0;
    for (int i = 0; i < n; i++) {
        pthread_mutex_lock(&all[i]->in_call);
        if (all[i]->pending.tx)
            staged[have++] = &all[i]->pending;
    }
    if (pending_commit_all(staged, have) < 0)
        r = fault_of_libato(SQLITE_IOERR_FSYNC, "cannot make one commit to all databases of",
                            all[0]->name);
    for (int i = 0; i < n; i++) {
        pending_abort(&all[i]->pending);
        all[i]->prepared = false;
        pthread_mutex_unlock(&all[i]->in_call);
        if (r == SQLITE_OK)
            super_leave(all[i]);
    }
    return r;
}

int super_delete(const char *name, bool *mine)
{
    struct connection *all[PENDING_MOST];
    bool prepared = false;
    int n = 0;
    pthread_mutex_lock(&lock);
    for (struct connection *c = member(members, name); c && n < PENDING_MOST;
         c = member(c->next_member, name)) {
        prepared |= c->prepared;
        all[n++] = c;
    }
    pthread_mutex_unlock(&lock);
    *mine = n > 0;
    return prepared ? commit(all, n) : SQLITE_OK;
}

/* ---- as a file ---- */

/* Returns whether a database is a file. That is no journal's that SQLite names of a database in memory (:memory:, mode=memory,
 * vfs=memdb), which no crash leaves. */
static bool has_file(const char *journal)
{
    char name[PATH_MAX];
    struct stat st;
    (void)snprintf(name, sizeof(name), "%.*s", (int)(strlen(journal) - strlen(ending)), journal);
    return name[0] == '/' && (stat(name, &st) == 0 || errno != ENOENT);
}

/* SQLite writes one name per call. A database that cannot take part is refused here, before any journal names the super-journal:
 * otherwise the first database that is rolled back would delete the super-journal, and the next one would take the transaction
 * for committed. (Bytes that are no name come from a shim that simulates crashes.) */
static int before_write(const char *name, const void *from, int n)
{
    const char *journal = from;
    if (n < (int)sizeof(ending) ||
        memcmp(journal + n - sizeof(ending), ending, sizeof(ending)) != 0)
        return SQLITE_OK;
    struct connection *c = database_find(journal, true);
    if (c && connection_journals_in_memory(c))
        return join(c, name);
    /* SQLite also names databases in WAL mode, which commit by their log: no connection has RESERVED. */
    if (!c && (database_find(journal, false) || !has_file(journal)))
        return SQLITE_OK;
    return fault(
        SQLITE_IOERR_WRITE,
        "%s: in a transaction over several databases, all journals must be in memory or all on the "
        "disk: open all with vfs=ato and none with journal=file, or all with journal=file",
        journal);
}

/* Returns whether the main database's rollback journal is on the disk: SQLite adds 12 characters to its name. */
static bool is_on_disk(const char *name)
{
    char journal[PATH_MAX];
    (void)snprintf(journal, sizeof(journal), "%.*s%s", (int)strlen(name) - 12, name, ending);
    const struct connection *writer = database_find(journal, true);
    const struct connection *c = writer ? writer : database_find(journal, false);
    return c && (c->wants.journal_file || c->plays_back);
}

int super_open(sqlite3_vfs *below, const char *name, sqlite3_file *file, int flags, int *out_flags)
{
    const bool is_new = flags & SQLITE_OPEN_CREATE;
    if (is_new ? is_on_disk(name) : !super_exists(name))
        return below->xOpen(below, name, file, flags, out_flags);
    if (out_flags)
        *out_flags = flags;
    memory_file_open(file, name, is_new ? before_write : NULL);
    super_give_up(name); /* SQLite reads one only to find out whether a rollback needs it */
    return SQLITE_OK;
}
