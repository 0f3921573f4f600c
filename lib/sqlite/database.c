/* SPDX-License-Identifier: BSD-3-Clause */
#include "database.h"

#include "ato.h"
#include "connection.h"
#include "fault.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* Address space, for each of two mappings and the reflection: what a file may grow to, where nobody says. */
#define DEFAULT_MAX_SIZE (64ull << 30)
/* If there is not so much of it, then what lets the file grow at least so many times. */
enum { LEAST_GROWTH = 4 };

/* Of an empty file. */
enum { LEAST_LENGTH = 4096 };

struct kept_descriptor {
    struct kept_descriptor *next;
    int fd;
};

static struct database *databases;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

bool database_any(bool (*is)(const struct connection *c, const void *arg), const void *arg)
{
    bool any = false;
    pthread_mutex_lock(&lock);
    for (const struct database *db = databases; db && !any; db = db->next)
        for (const struct connection *c = db->connections; c && !any; c = c->next)
            any = is(c, arg);
    pthread_mutex_unlock(&lock);
    return any;
}

/* Whose rollback journal has this name, and lies in memory. With the lock held. */
static struct database *find_by_journal(const char *name)
{
    for (struct database *db = databases; db; db = db->next)
        for (const struct connection *c = db->connections; c; c = c->next)
            if (!c->journal_file && connection_writes(c) && connection_has_journal(c, name))
                return db;
    return NULL;
}

bool database_make_journal(const char *name)
{
    pthread_mutex_lock(&lock);
    struct database *db = find_by_journal(name);
    if (db)
        db->journal = true;
    pthread_mutex_unlock(&lock);
    return db;
}

bool database_delete_journal(const char *name, bool *needless)
{
    pthread_mutex_lock(&lock);
    struct database *db = find_by_journal(name);
    const bool was_there = db && db->journal;
    if (db)
        db->journal = false;
    pthread_mutex_unlock(&lock);
    *needless = db;
    return was_there;
}

static struct database *find(const struct stat *st)
{
    struct database *db = databases;
    while (db && (db->device != st->st_dev || db->inode != st->st_ino))
        db = db->next;
    return db;
}

static struct database *find_or_make(const struct stat *st)
{
    struct database *db = find(st);
    if (db)
        return db;
    db = calloc(1, sizeof(*db));
    if (!db)
        return NULL;
    *db = (struct database){.device = st->st_dev, .inode = st->st_ino, .next = databases};
    databases = db;
    return db;
}

/* What has no connection goes, with its mappings and descriptors. */
static void forget_unused(struct database *db)
{
    if (db->connections)
        return;
    while (db->kept) {
        struct kept_descriptor *first = db->kept;
        db->kept = first->next;
        close(first->fd);
        free(first);
    }
    struct database **at = &databases;
    while (*at != db)
        at = &(*at)->next;
    *at = db->next;
    free(db);
}

/* Without the counting. */
static bool reaches_medium(void *view)
{
    struct ato_stat st = {.struct_size = offsetof(struct ato_stat, slices_in_reflection)};
    return ato_stat(view, &st) == 0 && st.domain != ATO_DOMAIN_PROCESS;
}

/* All of the file, which grows. */
static struct view map(int fd, const struct database_wish *wish, const struct stat *st)
{
    struct view v = {.length = st->st_size ? (size_t)st->st_size : LEAST_LENGTH};
    struct ato_options o = {
        .struct_size = sizeof(o), .max_size = wish->max_size, .flags = wish->flags};
    const size_t least = (size_t)st->st_size * LEAST_GROWTH;
    /* See database.h: no descriptor of the file may be closed. */
    o.flags |= ATO_BORROW_FD;
    /* SQLite keeps pages that it has read: deploying for the sake of the next read would not pay. */
    o.read_policy = getenv("ATO_READ_POLICY") ? ATO_READ_LAZY : ATO_READ_GATHER;
    if (!o.max_size)
        o.max_size = least > DEFAULT_MAX_SIZE ? least : DEFAULT_MAX_SIZE;
    v.at = ato_mmap_opt(v.length, fd, 0, &o);
    if (v.at == MAP_FAILED && errno == ENOMEM && !wish->max_size) {
        o.max_size = least;
        v.at = ato_mmap_opt(v.length, fd, 0, &o);
    }
    /* Another process has mapped it with less: then this one does, too. Who does not say how far the file is to
     * grow has to have all of it, for it to grow with the file. */
    while (v.at == MAP_FAILED && errno == EFBIG) {
        o.max_size = 0;
        v.at = ato_mmap_opt(v.length, fd, 0, &o);
        const off_t size = v.at == MAP_FAILED ? 0 : ato_size(v.at);
        if (size <= (off_t)v.length)
            break;
        (void)ato_munmap(v.at, v.length, ATO_UNMAP_FAST);
        v.length = (size_t)size;
        v.at = MAP_FAILED;
        errno = EFBIG;
    }
    if (v.at == MAP_FAILED)
        v.at = NULL;
    return v;
}

/* Who may only read may use what those who write have. */
static void *view_for(const struct database *db, bool writable)
{
    return db->views[1].at || writable ? db->views[1].at : db->views[0].at;
}

/* With the lock held. A descriptor that was opened is closed only if nobody else has the file open. */
static struct database *open_and_map(const struct database_wish *wish, bool *by_system)
{
    struct stat st;
    *by_system = true;
    /* The view may be there; to look is not to open. */
    struct database *db = stat(wish->path, &st) == 0 ? find(&st) : NULL;
    if (db && view_for(db, wish->writable))
        return db;
    struct kept_descriptor *d = calloc(1, sizeof(*d));
    if (!d)
        return NULL;
    d->fd = open(wish->path, (wish->writable ? O_RDWR : O_RDONLY) | O_CLOEXEC | O_NOFOLLOW);
    if (d->fd < 0) {
        free(d);
        return NULL;
    }
    db = fstat(d->fd, &st) == 0 ? find_or_make(&st) : NULL;
    if (!db) {
        close(d->fd);
        free(d);
        return NULL;
    }
    d->next = db->kept;
    db->kept = d;
    if (!view_for(db, wish->writable)) {
        *by_system = false;
        db->views[wish->writable] = map(d->fd, wish, &st);
        if (db->views[wish->writable].at) {
            db->fd = d->fd;
            db->max_size = wish->max_size;
            db->durable = reaches_medium(db->views[wish->writable].at);
        }
    }
    if (view_for(db, wish->writable))
        return db;
    const int saved = errno;
    forget_unused(db);
    errno = saved;
    return NULL;
}

sqlite3_int64 database_length(const struct database *db)
{
    struct stat st;
    return fstat(db->fd, &st) == 0 ? (sqlite3_int64)st.st_size : -1;
}

struct database *database_open(const struct database_wish *wish, struct connection *c,
                               bool *by_system)
{
    pthread_mutex_lock(&lock);
    struct database *db = open_and_map(wish, by_system);
    if (db) {
        c->staged.view = view_for(db, wish->writable);
        c->next = db->connections;
        db->connections = c;
    }
    pthread_mutex_unlock(&lock);
    return db;
}

static void let_in(struct database *db, const struct connection *self, const struct connection *end)
{
    for (struct connection *c = db->connections; c != end; c = c->next)
        if (c != self)
            pthread_mutex_unlock(&c->in_call);
}

/* Keeps all connections but one out of their views. False: one is in a call, or has pages of xFetch. */
static bool keep_out(struct database *db, const struct connection *self)
{
    for (struct connection *c = db->connections; c; c = c->next) {
        if (c != self && pthread_mutex_trylock(&c->in_call) != 0) {
            let_in(db, self, c);
            return false;
        }
        if (c->fetched || c->staged.tx) {
            let_in(db, self, c->next);
            return false;
        }
    }
    return true;
}

/* What is left of a mapping that could not be taken back as it should is none. */
static bool unmap_fast(const struct view *v)
{
    return ato_munmap(v->at, v->length, ATO_UNMAP_FAST) == 0 || ato_size(v->at) < 0;
}

static struct view map_again(const struct database *db, bool prefer_file, const char *name)
{
    struct stat st;
    struct database_wish wish = {.max_size = db->max_size};
    if (fstat(db->fd, &st) < 0)
        return (struct view){0};
    struct view v = map(db->fd, &wish, &st);
    if (!v.at && errno == ESTALE && prefer_file) {
        fault_ignored("was written by other means, and is taken as it is:", name);
        wish.flags = ATO_PREFER_FILE;
        v = map(db->fd, &wish, &st);
    }
    if (!v.at)
        (void)fault_of_libato(SQLITE_IOERR, "cannot map once more", name);
    return v;
}

static bool is_plain(void *view)
{
    struct ato_stat st = {.struct_size = sizeof(st)};
    return ato_stat(view, &st) == 0 && st.slices_in_reflection == 0;
}

void database_renew(struct database *db, const struct connection *self, bool prefer_file,
                    const char *name)
{
    pthread_mutex_lock(&lock);
    if (db->views[1].at && !db->views[0].at && keep_out(db, self)) {
        prefer_file = prefer_file && is_plain(db->views[1].at);
        if (unmap_fast(&db->views[1])) {
            db->views[1] = map_again(db, prefer_file, name);
            for (struct connection *c = db->connections; c; c = c->next)
                c->staged.view = db->views[1].at;
        }
        let_in(db, self, NULL);
    }
    pthread_mutex_unlock(&lock);
}

static void unmap(const struct database *db, const char *name)
{
    for (int writable = 0; writable < 2; writable++) {
        const struct view *v = &db->views[writable];
        if (!v->at)
            continue;
        const int mode = db->unmap_fast || !writable ? ATO_UNMAP_FAST : ATO_UNMAP_SPATIAL;
        if (ato_munmap(v->at, v->length, mode) < 0) {
            fault_ignored("cannot make plain", name);
            /* No space to bring it home, perhaps: nothing is lost, it is only not plain. Where this fails as
             * well the mapping is gone, and what is left will be completed by who maps it next. */
            (void)ato_munmap(v->at, v->length, ATO_UNMAP_FAST);
        }
    }
}

void database_close(struct database *db, struct connection *c, const char *name)
{
    pthread_mutex_lock(&lock);
    struct connection **at = &db->connections;
    while (*at != c)
        at = &(*at)->next;
    *at = c->next;
    if (c->writable)
        db->unmap_fast = c->unmap_fast;
    if (!db->connections)
        unmap(db, name);
    forget_unused(db);
    pthread_mutex_unlock(&lock);
}
