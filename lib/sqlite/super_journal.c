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

struct super {
    struct super *next;
    bool is_open;               /* SQLite writes names to it */
    bool prepared;              /* a member is, and SQLite does not roll back */
    struct connection *members; /* by next_member */
    char name[];
};

static struct super *supers;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static const char ending[] = "-journal";

/* ---- the list, and the members; the caller holds the lock ---- */

static struct super *find(const char *name)
{
    struct super *s = supers;
    while (s && strcmp(s->name, name) != 0)
        s = s->next;
    return s;
}

static struct super *make(const char *name)
{
    struct super *s = calloc(1, sizeof(*s) + strlen(name) + 1);
    if (!s)
        return NULL;
    strcpy(s->name, name);
    s->is_open = true;
    s->next = supers;
    supers = s;
    return s;
}

static void forget_unused(struct super *s)
{
    struct super **at = &supers;
    if (s->is_open || s->members)
        return;
    while (*at && *at != s)
        at = &(*at)->next;
    if (*at) /* the list of a forked child lacks its parent's */
        *at = s->next;
    free(s);
}

static void leave(struct connection *c)
{
    struct super *s = c->super;
    struct connection **at = &s->members;
    while (*at != c)
        at = &(*at)->next_member;
    *at = c->next_member;
    c->super = NULL;
    forget_unused(s);
}

static void join(struct connection *c, struct super *s)
{
    if (c->super == s)
        return;
    if (c->super)
        leave(c);
    c->super = s;
    c->next_member = s->members;
    s->members = c;
}

/* ---- commit ---- */

static int commit_all(const struct super *s)
{
    struct pending *all[PENDING_MOST];
    int n = 0;
    for (struct connection *c = s->members; c && n < PENDING_MOST; c = c->next_member)
        if (c->pending.tx)
            all[n++] = &c->pending;
    if (pending_commit_all(all, n) == 0)
        return SQLITE_OK;
    return fault_of_libato(SQLITE_IOERR_FSYNC, "cannot make one commit to all databases of",
                           s->members->name);
}

/* Commits what the members have staged, as one transaction. After a failure nothing is staged. The connections are this
 * thread's, but other threads may be about to map their databases anew (database_renew()). */
static int commit(struct super *s)
{
    for (struct connection *c = s->members; c; c = c->next_member)
        pthread_mutex_lock(&c->in_call);
    const int r = commit_all(s);
    for (struct connection *c = s->members; c; c = c->next_member)
        pending_abort(&c->pending);
    for (struct connection *c = s->members; c; c = c->next_member)
        pthread_mutex_unlock(&c->in_call);
    s->prepared = false;
    for (struct connection *c = s->members, *next; r == SQLITE_OK && c; c = next) {
        next = c->next_member;
        leave(c);
    }
    return r;
}

/* ---- SQLite's calls ---- */

bool super_exists(const char *name)
{
    pthread_mutex_lock(&lock);
    const bool exists = find(name);
    pthread_mutex_unlock(&lock);
    return exists;
}

int super_delete(const char *name, bool *mine)
{
    pthread_mutex_lock(&lock);
    struct super *s = find(name);
    *mine = s;
    const int r = s && s->prepared ? commit(s) : SQLITE_OK;
    pthread_mutex_unlock(&lock);
    return r;
}

int super_prepare(struct connection *c, const char *name)
{
    pthread_mutex_lock(&lock);
    struct super *s = find(name);
    if (s) {
        join(c, s);
        s->prepared = true;
    }
    pthread_mutex_unlock(&lock);
    return s ? SQLITE_OK
             : fault(SQLITE_IOERR_FSYNC,
                     "%s cannot be part of a transaction over several databases whose main "
                     "database uses another VFS, or has its journal on the disk: open all with "
                     "vfs=ato, or all with journal=file",
                     c->name);
}

bool super_holds(const struct connection *c)
{
    return c->super && c->super->prepared;
}

static void give_up(struct connection *c, bool leaves)
{
    if (!c->super)
        return;
    pthread_mutex_lock(&lock);
    c->super->prepared = false;
    if (leaves)
        leave(c);
    pthread_mutex_unlock(&lock);
}

void super_give_up(struct connection *c)
{
    give_up(c, false);
}

void super_leave(struct connection *c)
{
    give_up(c, true);
}

void super_before_fork(void)
{
    pthread_mutex_lock(&lock);
}

void super_after_fork(bool in_child)
{
    if (in_child)
        supers = NULL;
    pthread_mutex_unlock(&lock);
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
static int before_write(void *super, const void *from, int n)
{
    const char *journal = from;
    if (n < (int)sizeof(ending) ||
        memcmp(journal + n - sizeof(ending), ending, sizeof(ending)) != 0)
        return SQLITE_OK;
    struct connection *c = database_find(journal, true);
    if (c && connection_journals_in_memory(c)) {
        pthread_mutex_lock(&lock);
        join(c, super);
        pthread_mutex_unlock(&lock);
        return SQLITE_OK;
    }
    /* SQLite also names databases in WAL mode, which commit by their log: no connection has RESERVED. */
    if (!c && (database_find(journal, false) || !has_file(journal)))
        return SQLITE_OK;
    return fault(
        SQLITE_IOERR_WRITE,
        "%s: in a transaction over several databases, all journals must be in memory or all on the "
        "disk: open all with vfs=ato and none with journal=file, or all with journal=file",
        journal);
}

static void at_close(void *super)
{
    pthread_mutex_lock(&lock);
    ((struct super *)super)->is_open = false;
    forget_unused(super);
    pthread_mutex_unlock(&lock);
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
    const bool on_disk = is_new && is_on_disk(name);
    pthread_mutex_lock(&lock);
    struct super *s = find(name);
    if (s)
        s->prepared = false; /* SQLite only reads it to find out whether a rollback needs it */
    else if (is_new && !on_disk)
        s = make(name);
    pthread_mutex_unlock(&lock);
    if (!s)
        return is_new && !on_disk ? SQLITE_IOERR_NOMEM
                                  : below->xOpen(below, name, file, flags, out_flags);
    if (out_flags)
        *out_flags = flags;
    memory_file_open(file);
    if (is_new) {
        struct memory_file *f = (struct memory_file *)file;
        f->owner = s;
        f->before_write = before_write;
        f->at_close = at_close;
    }
    return SQLITE_OK;
}
