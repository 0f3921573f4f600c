/* SPDX-License-Identifier: BSD-3-Clause */
#include "super_journal.h"

#include "connection.h"
#include "database.h"
#include "fault.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

struct super {
    struct super *next;
    char *name;
    struct bytes bytes;       /* names of journals, each with a NUL */
    unsigned handles;         /* open ones */
    struct connection *bound; /* databases, by next_bound */
    bool given_up;            /* SQLite rolls the transaction back */
    bool needs_memory;        /* it names a journal in memory */
};

static struct super *supers;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* ---- names ---- */

static bool is_open(const struct connection *c, const void *journal)
{
    return connection_has_journal(c, journal);
}

static bool is_being_written(const struct connection *c, const void *journal)
{
    return connection_writes(c) && connection_has_journal(c, journal);
}

/* Returns whether is() for a connection and a name in the super-journal. */
static bool any_name(const struct super *s,
                     bool (*is)(const struct connection *c, const void *journal))
{
    const char *at = s->bytes.at, *end = at + s->bytes.size;
    while (at < end) {
        const size_t n = strnlen(at, (size_t)(end - at));
        if (at + n < end && database_any(is, at))
            return true;
        at += n + 1;
    }
    return false;
}

/* ---- the list; the caller holds the lock ---- */

static void forget(struct super *s)
{
    struct super **at = &supers;
    while (*at != s)
        at = &(*at)->next;
    *at = s->next;
    bytes_free(&s->bytes);
    free(s->name);
    free(s);
}

static bool is_over(const struct super *s)
{
    return !s->handles && !s->bound && !any_name(s, is_being_written);
}

static struct super *find(const char *name)
{
    struct super *found = NULL;
    for (struct super *s = supers, *next; s; s = next) {
        next = s->next;
        if (is_over(s))
            forget(s);
        else if (strcmp(s->name, name) == 0)
            found = s;
    }
    return found;
}

static struct super *make(const char *name)
{
    struct super *s = calloc(1, sizeof(*s));
    char *copy = strdup(name);
    if (!s || !copy) {
        free(s);
        free(copy);
        return NULL;
    }
    *s = (struct super){.name = copy, .next = supers};
    supers = s;
    return s;
}

bool super_exists(const char *name)
{
    pthread_mutex_lock(&lock);
    const bool exists = supers && find(name);
    pthread_mutex_unlock(&lock);
    return exists;
}

/* ---- binding, commit ---- */

static void unbind_all(struct super *s)
{
    while (s->bound) {
        struct connection *c = s->bound;
        s->bound = c->next_bound;
        c->super = NULL;
    }
}

int super_bind(struct connection *c, const char *name)
{
    int r = SQLITE_OK;
    pthread_mutex_lock(&lock);
    struct super *s = find(name);
    if (!s)
        r = fault(SQLITE_IOERR_FSYNC,
                  "%s cannot be part of a transaction over several databases whose main database "
                  "uses another VFS, or has its journal on the disk: open all with vfs=ato, or all "
                  "with journal=file",
                  c->name);
    else if (c->super != s) {
        c->super = s;
        c->next_bound = s->bound;
        s->bound = c;
    }
    pthread_mutex_unlock(&lock);
    return r;
}

/* The caller holds the lock. */
static void give_up(struct super *s)
{
    s->given_up = true;
    unbind_all(s);
}

void super_give_up(struct connection *c)
{
    pthread_mutex_lock(&lock);
    if (c->super)
        give_up(c->super);
    pthread_mutex_unlock(&lock);
}

static int commit_all(struct super *s)
{
    struct pending *all[PENDING_MOST];
    int n = 0;
    for (struct connection *c = s->bound; c && n < PENDING_MOST; c = c->next_bound)
        if (c->pending.tx)
            all[n++] = &c->pending;
    if (pending_commit_all(all, n) == 0)
        return SQLITE_OK;
    return fault_of_libato(SQLITE_IOERR_FSYNC, "cannot make one commit to all databases of",
                           s->bound->name);
}

/* Commits what the bound databases have staged, as one transaction. After a failure nothing is staged. The connections are this
 * thread's, but other threads may be about to map their databases anew (database_renew()). */
static int commit(struct super *s)
{
    for (struct connection *c = s->bound; c; c = c->next_bound)
        pthread_mutex_lock(&c->in_call);
    const int r = commit_all(s);
    for (struct connection *c = s->bound; c; c = c->next_bound)
        pending_abort(&c->pending);
    for (struct connection *c = s->bound; c; c = c->next_bound)
        pthread_mutex_unlock(&c->in_call);
    return r;
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

int super_delete(const char *name, bool *mine)
{
    int r = SQLITE_OK;
    pthread_mutex_lock(&lock);
    struct super *s = supers ? find(name) : NULL;
    *mine = s;
    if (s && !s->given_up) {
        r = commit(s);
        if (r != SQLITE_OK) {
            give_up(s);
        } else {
            unbind_all(s);
            if (!s->handles)
                forget(s);
        }
    }
    pthread_mutex_unlock(&lock);
    return r;
}

/* ---- as a file ---- */

static int close_real(struct super_file *f)
{
    const int r = f->real->pMethods->xClose(f->real);
    free(f->real);
    f->real = NULL;
    return r;
}

static int super_close(sqlite3_file *file)
{
    struct super_file *f = (struct super_file *)file;
    pthread_mutex_lock(&lock);
    if (f->super)
        f->super->handles--;
    pthread_mutex_unlock(&lock);
    return f->real ? close_real(f) : SQLITE_OK;
}

static int super_read(sqlite3_file *file, void *to, int n, sqlite3_int64 offset)
{
    const struct super_file *f = (struct super_file *)file;
    return f->super ? bytes_read(&f->super->bytes, to, n, offset)
                    : f->real->pMethods->xRead(f->real, to, n, offset);
}

static int open_real(struct super_file *f, int *out_flags)
{
    f->real = calloc(1, (size_t)f->below->szOsFile);
    if (!f->real)
        return SQLITE_NOMEM;
    int r = f->below->xOpen(f->below, f->name, f->real, f->flags, out_flags);
    if (r == SQLITE_OK)
        return r;
    free(f->real);
    f->real = NULL;
    return r;
}

/* Writes what the super-journal holds so far to a file, which replaces it. */
static int move_to_disk(struct super_file *f)
{
    const struct bytes *b = &f->super->bytes;
    int r = open_real(f, NULL);
    if (r != SQLITE_OK)
        return r;
    if (b->size)
        r = f->real->pMethods->xWrite(f->real, b->at, (int)b->size, 0);
    if (r != SQLITE_OK) {
        (void)close_real(f);
        (void)f->below->xDelete(f->below, f->name, 0);
        return r;
    }
    pthread_mutex_lock(&lock);
    f->super->handles--;
    forget(f->super);
    f->super = NULL;
    pthread_mutex_unlock(&lock);
    return SQLITE_OK;
}

static bool is_name(const void *from, int n)
{
    static const char ending[] = "-journal";
    const char *name = from;
    return n >= (int)sizeof(ending) &&
           memcmp(name + n - sizeof(ending), ending, sizeof(ending)) == 0;
}

/* SQLite also names the journals of databases in memory (:memory:, mode=memory, vfs=memdb), which no crash leaves:
 * there is no file of the database's name. Returns true if that cannot be found out. */
static bool has_file(const char *journal, size_t n)
{
    char name[PATH_MAX];
    struct stat st;
    const size_t length = n - sizeof("-journal");
    if (length >= sizeof(name))
        return true;
    memcpy(name, journal, length);
    name[length] = 0;
    return name[0] == '/' && (stat(name, &st) == 0 || errno != ENOENT);
}

/* SQLite writes one name per call. A database that cannot take part is refused here, before any journal names the super-journal:
 * otherwise the first database that is rolled back would delete the super-journal, and the next one would take the transaction
 * for committed. (Bytes that are no name come from a shim that simulates crashes.) */
static int super_write(sqlite3_file *file, const void *from, int n, sqlite3_int64 offset)
{
    struct super_file *f = (struct super_file *)file;
    const bool named = is_name(from, n), in_memory = named && database_journals_in_memory(from);
    /* SQLite also names databases in WAL mode, which commit by their log: no connection has RESERVED. */
    const bool is_log =
        named && database_any(is_open, from) && !database_any(is_being_written, from);
    const bool on_disk = named && !in_memory && !is_log && has_file(from, (size_t)n);
    if (f->super ? on_disk && f->super->needs_memory : in_memory)
        return fault(
            SQLITE_IOERR_WRITE,
            "%s: in a transaction over several databases, all journals must be in memory or all on "
            "the disk: open all with vfs=ato and none with journal=file, or all with journal=file",
            (const char *)from);
    if (f->super && on_disk) {
        int r = move_to_disk(f);
        if (r != SQLITE_OK)
            return r;
    }
    if (!f->super)
        return f->real->pMethods->xWrite(f->real, from, n, offset);
    f->super->needs_memory |= in_memory;
    return bytes_write(&f->super->bytes, from, n, offset);
}

static int super_truncate(sqlite3_file *file, sqlite3_int64 size)
{
    struct super_file *f = (struct super_file *)file;
    if (!f->super)
        return f->real->pMethods->xTruncate(f->real, size);
    bytes_cut(&f->super->bytes, size);
    return SQLITE_OK;
}

static int super_sync(sqlite3_file *file, int flags)
{
    struct super_file *f = (struct super_file *)file;
    return f->super ? SQLITE_OK : f->real->pMethods->xSync(f->real, flags);
}

static int super_size(sqlite3_file *file, sqlite3_int64 *size)
{
    struct super_file *f = (struct super_file *)file;
    if (!f->super)
        return f->real->pMethods->xFileSize(f->real, size);
    *size = f->super->bytes.size;
    return SQLITE_OK;
}

static int super_lock(sqlite3_file *file, int level)
{
    (void)file, (void)level;
    return SQLITE_OK;
}

static int super_reserved(sqlite3_file *file, int *reserved)
{
    (void)file;
    *reserved = 0;
    return SQLITE_OK;
}

static int super_control(sqlite3_file *file, int what, void *arg)
{
    (void)file, (void)what, (void)arg;
    return SQLITE_NOTFOUND;
}

static int super_none(sqlite3_file *file)
{
    (void)file;
    return 0;
}

static const sqlite3_io_methods methods = {
    .iVersion = 1,
    .xClose = super_close,
    .xRead = super_read,
    .xWrite = super_write,
    .xTruncate = super_truncate,
    .xSync = super_sync,
    .xFileSize = super_size,
    .xLock = super_lock,
    .xUnlock = super_lock,
    .xCheckReservedLock = super_reserved,
    .xFileControl = super_control,
    .xSectorSize = super_none,
    .xDeviceCharacteristics = super_none,
};

int super_open(struct super_file *f, sqlite3_vfs *below, const char *name, int flags,
               int *out_flags)
{
    *f = (struct super_file){.below = below, .name = name, .flags = flags};
    pthread_mutex_lock(&lock);
    f->super = find(name);
    if (f->super)
        give_up(f->super); /* SQLite only reads it to find out whether a rollback needs it */
    else if (flags & SQLITE_OPEN_CREATE)
        f->super = make(name);
    if (f->super)
        f->super->handles++;
    pthread_mutex_unlock(&lock);
    int r = SQLITE_OK;
    if (!f->super)
        r = flags & SQLITE_OPEN_CREATE ? SQLITE_IOERR_NOMEM : open_real(f, out_flags);
    else if (out_flags)
        *out_flags = flags;
    if (r != SQLITE_OK)
        return r;
    f->as_file.pMethods = &methods;
    return SQLITE_OK;
}
