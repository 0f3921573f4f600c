/* SPDX-License-Identifier: BSD-3-Clause */
#include "database.h"

#include "connection.h"
#include "fault.h"
#include "mask.h"
#include "view.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

static struct database *databases;
static unsigned forks; /* from the first process to this one */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t idle = PTHREAD_COND_INITIALIZER; /* a database is no longer busy */

/* Mapping and unmapping may take long: they deploy a file, or wait for another process. The lock is given back meanwhile, and
 * `busy` makes other threads wait that are about to map, unmap or list a connection of the same database. */
static void begin_long_work(struct database *db)
{
    db->busy = true;
    pthread_mutex_unlock(&lock);
}

static void end_long_work(struct database *db)
{
    pthread_mutex_lock(&lock);
    db->busy = false;
    pthread_cond_broadcast(&idle);
}

/* The caller has a connection, which keeps the database from going. */
static void wait_until_idle(const struct database *db)
{
    while (db->busy)
        pthread_cond_wait(&idle, &lock);
}

static bool has_journal(const struct connection *c, const char *journal)
{
    const size_t n = strlen(c->name);
    return strncmp(c->name, journal, n) == 0 && strcmp(journal + n, "-journal") == 0;
}

struct connection *database_find(const char *journal, bool writes)
{
    struct connection *found = NULL;
    pthread_mutex_lock(&lock);
    for (const struct database *db = databases; db && !found; db = db->next)
        for (struct connection *c = db->connections; c && !found; c = c->next)
            if (has_journal(c, journal) && (!writes || connection_writes(c)))
                found = c;
    pthread_mutex_unlock(&lock);
    return found;
}

static void close_all(struct database *db)
{
    for (int i = 0; i < 2; i++) {
        if (db->fds[i] >= 0)
            close(db->fds[i]);
        db->fds[i] = -1;
    }
}

void database_before_fork(void)
{
    pthread_mutex_lock(&lock);
}

void database_after_fork(void)
{
    pthread_mutex_unlock(&lock);
}

void database_after_fork_in_child(void)
{
    /* An open file description lock (mask_lock()) lives as long as a descriptor of it, in any process. */
    for (struct database *db = databases; db; db = db->next)
        close_all(db);
    databases = NULL;
    idle = (pthread_cond_t)PTHREAD_COND_INITIALIZER; /* threads that wait are the parent's */
    forks++;
    pthread_mutex_unlock(&lock);
}

/* Waits while the database is busy. */
static struct database *find_idle(const struct stat *st)
{
    struct database *db = databases;
    while (db && (db->device != st->st_dev || db->inode != st->st_ino))
        db = db->next;
    if (!db || !db->busy)
        return db;
    pthread_cond_wait(&idle, &lock);
    return find_idle(st);
}

static struct database *find_or_make(const struct stat *st)
{
    struct database *db = find_idle(st);
    if (db)
        return db;
    db = calloc(1, sizeof(*db));
    if (!db)
        return NULL;
    *db = (struct database){.device = st->st_dev,
                            .inode = st->st_ino,
                            .fds = {-1, -1},
                            .process = forks,
                            .policy = -1,
                            .next = databases};
    databases = db;
    return db;
}

/* Frees a database without connections, and closes its descriptors. */
static void forget_unused(struct database *db)
{
    if (db->connections)
        return;
    close_all(db);
    struct database **at = &databases;
    while (*at != db)
        at = &(*at)->next;
    *at = db->next;
    free(db->reflection_dir);
    free(db);
}

/* A connection that may only read uses the view of those that write, if there is one. */
static const struct view *view_for(const struct database *db, bool writable)
{
    const struct view *v = &db->views[db->views[1].at || writable];
    return v->at ? v : NULL;
}

static void use(struct connection *c, const struct view *v)
{
    c->pending.view = v ? v->at : NULL;
    c->reach = v ? (sqlite3_int64)v->max_size : 0;
}

/* Opens the file and keeps the descriptor with its database, which is found or made. */
static struct database *open_and_keep(const char *path, bool writable)
{
    struct stat st;
    struct database *db = NULL;
    const int fd = open(path, (writable ? O_RDWR : O_RDONLY) | O_CLOEXEC | O_NOFOLLOW);
    if (fd >= 0 && fstat(fd, &st) == 0)
        db = find_or_make(&st);
    if (!db && fd >= 0)
        close(fd);
    /* Has one already if it took the place of another file just now: then the descriptor stays open, as all of them. */
    if (db && db->fds[writable] < 0)
        db->fds[writable] = fd;
    return db;
}

/* Returns a copy of the path that does not depend on the working directory. */
static char *absolute(const char *path)
{
    char *whole = NULL, *here = path[0] == '/' ? NULL : getcwd(NULL, 0);
    if (path[0] == '/')
        return strdup(path);
    if (here && asprintf(&whole, "%s/%s", here, path) < 0)
        whole = NULL;
    free(here);
    return whole;
}

/* Returns whether only libato can tell the content: the file has a reflection, or it is not known whether it has one. */
static bool needs_view(const struct database *db)
{
    char header[MASK_HEADER];
    return fgetxattr(database_fd(db), "user.ato", NULL, 0) >= 0 || errno != ENODATA ||
           (database_read_header(db, header, sizeof(header)) && mask_is_on(header));
}

/* The caller holds the lock. Sets errno if there is no view then. */
static void map(struct database *db, const struct connection *c, bool masks)
{
    const struct view_wish wish = {.max_size = c->wants.max_size,
                                   .flags = c->wants.prefer,
                                   .reflection_dir = c->wants.reflection_dir,
                                   .masks = masks};
    struct stat st;
    const int fd = db->fds[c->writable];
    if (fstat(fd, &st) < 0)
        return;
    begin_long_work(db);
    const struct view v = view_map(fd, &wish, &st);
    end_long_work(db);
    db->views[c->writable] = v;
    if (!v.at)
        return;
    db->max_size = wish.max_size;
    if (wish.reflection_dir && !db->reflection_dir)
        db->reflection_dir = absolute(wish.reflection_dir);
    const struct ato_status status = view_status(v.at, false);
    db->domain = status.domain;
    if (c->writable)
        db->policy = status.read_policy;
}

/* The caller holds the lock. A descriptor that was opened here is closed only if the database has no connection. */
static int open_and_map(struct connection *c)
{
    struct stat st;
    /* Look by stat(): the database may have a view already, and an open descriptor could not be closed. */
    struct database *db = stat(c->name, &st) == 0 ? find_idle(&st) : NULL;
    if (!db || (db->fds[c->writable] < 0 && !view_for(db, c->writable)))
        db = open_and_keep(c->name, c->writable);
    if (!db)
        return fault(errno == ENOMEM ? SQLITE_IOERR_NOMEM : SQLITE_CANTOPEN, "cannot open %s: %s",
                     c->name, strerror(errno));
    if (!view_for(db, c->writable) && !db->lost && needs_view(db)) {
        map(db, c, false);
        if (!view_for(db, c->writable)) {
            const int r = fault_of_libato(SQLITE_CANTOPEN, "cannot map", c->name);
            forget_unused(db);
            return r;
        }
    }
    c->db = db;
    return SQLITE_OK;
}

bool database_read_header(const struct database *db, void *to, size_t n)
{
    return pread(database_fd(db), to, n, 0) == (ssize_t)n;
}

sqlite3_int64 database_length(const struct database *db)
{
    struct stat st;
    return fstat(database_fd(db), &st) == 0 ? (sqlite3_int64)st.st_size : -1;
}

int database_open(struct connection *c)
{
    pthread_mutex_lock(&lock);
    const int r = open_and_map(c);
    if (r == SQLITE_OK) {
        use(c, view_for(c->db, c->writable));
        c->direct = !c->pending.view;
        c->next = c->db->connections;
        c->db->connections = c;
    }
    pthread_mutex_unlock(&lock);
    return r;
}

static void let_in(struct database *db, const struct connection *self, const struct connection *end)
{
    for (struct connection *c = db->connections; c != end; c = c->next)
        if (c != self)
            pthread_mutex_unlock(&c->in_call);
}

/* Keeps all other connections out of their views. Returns false, and keeps none out, if one is in a call, has pages of xFetch
 * or has something staged that is not to be lost. */
static bool keep_out(struct database *db, const struct connection *self, bool staged_is_lost)
{
    for (struct connection *c = db->connections; c; c = c->next) {
        if (c != self && pthread_mutex_trylock(&c->in_call) != 0) {
            let_in(db, self, c);
            return false;
        }
        if (c->fetched || (c->pending.tx && !staged_is_lost)) {
            let_in(db, self, c->next);
            return false;
        }
    }
    return true;
}

static struct view map_again(const struct database *db, int fd, const char *name)
{
    struct stat st;
    if (fstat(fd, &st) < 0)
        return (struct view){0};
    const struct view_wish wish = {.max_size = db->max_size < (size_t)st.st_size ? 0 : db->max_size,
                                   .reflection_dir = db->reflection_dir};
    struct view v = view_map(fd, &wish, &st);
    if (!v.at)
        (void)fault_of_libato(SQLITE_IOERR, "cannot map once more", name);
    return v;
}

/* Returns whether the file is complete without its reflection, and not masked: a guard that a killed process left does not
 * count (mask.h). */
static bool is_home(const struct database *db, void *view)
{
    char in_file[MASK_HEADER];
    const struct ato_status st = view_status(view, true);
    return !st.slices_in_reflection &&
           (!st.guard_bytes ||
            (database_read_header(db, in_file, sizeof(in_file)) && !mask_is_on(in_file)));
}

/* The view that all connections use: the one that may write, if there is one, or was. */
static struct view *main_view(struct database *db)
{
    return &db->views[db->lost ? db->lost - 1 : db->views[1].at != NULL];
}

static void renew(struct database *db, bool prefer_file, const char *name)
{
    struct view *v = main_view(db), *read = &db->views[0];
    if (!db->lost && prefer_file && !is_home(db, v->at))
        return;
    if (read != v && read->at) {
        if (!view_unmap_fast(read))
            return;
        *read = (struct view){0};
    }
    if (!db->lost && !view_unmap_fast(v))
        return;
    *v = map_again(db, db->fds[v != read], name);
    /* Other processes have the old length mapped. When all have unmapped it the next one to map it maps what there is. */
    if (prefer_file && v->at && (sqlite3_int64)ato_size(v->at) != database_length(db) &&
        view_unmap_fast(v))
        *v = (struct view){0};
    db->lost = v->at ? 0 : 1 + (v != read);
    if (v->at && v != read)
        (void)ato_set_read_policy(v->at, db->policy);
}

/* The caller holds the lock. Changes nothing if another connection cannot be kept out. */
static void try_renew(struct database *db, const struct connection *self, bool prefer_file,
                      const char *name)
{
    if (!keep_out(db, self, false))
        return;
    begin_long_work(db);
    renew(db, prefer_file, name);
    end_long_work(db);
    for (struct connection *c = db->connections; c; c = c->next)
        use(c, main_view(db));
    let_in(db, self, NULL);
}

void database_renew(struct database *db, const struct connection *self, bool prefer_file,
                    const char *name)
{
    pthread_mutex_lock(&lock);
    if (db->process == forks)
        wait_until_idle(db);
    if (db->process == forks && (db->views[0].at || db->views[1].at || db->lost))
        try_renew(db, self, prefer_file, name);
    pthread_mutex_unlock(&lock);
}

int database_map(struct connection *c, enum database_need need)
{
    struct database *db = c->db;
    bool needed = true;
    if (c->pending.view)
        return 0;
    pthread_mutex_lock(&lock);
    if (db->process == forks) {
        wait_until_idle(db);
        if (db->lost)
            try_renew(db, c, false, c->name);
        else if (!view_for(db, c->writable) && (needed = need != IF_PAIRED || needs_view(db)))
            map(db, c, need == TO_WRITE);
        use(c, view_for(db, c->writable));
    }
    const int saved = errno;
    pthread_mutex_unlock(&lock);
    errno = saved;
    return c->pending.view || !needed ? 0 : -1;
}

static void unmap(const struct database *db, bool is_locked, const char *name)
{
    const struct view *read = &db->views[0], *write = &db->views[1];
    const int mode = db->unmap_fast ? ATO_UNMAP_FAST : ATO_UNMAP_SPATIAL;
    const bool left =
        read->at && !write->at && !db->unmap_fast && view_status(read->at, true).reflection_bytes;
    if (read->at)
        view_unmap(read, ATO_UNMAP_FAST, -1, true, name);
    if (write->at)
        view_unmap(write, mode, db->fds[1], is_locked, name);
    if (left)
        view_make_plain(db->reflection_dir, name);
}

void database_close(struct database *db, struct connection *c, const char *name)
{
    pthread_mutex_lock(&lock);
    if (db->process != forks) { /* the parent's */
        pthread_mutex_unlock(&lock);
        return;
    }
    wait_until_idle(db);
    struct connection **at = &db->connections;
    while (*at != c)
        at = &(*at)->next;
    *at = c->next;
    db->unmap_fast = c->wants.unmap_fast;
    if (!db->connections) {
        begin_long_work(db);
        unmap(db, false, name);
        end_long_work(db);
    }
    forget_unused(db);
    pthread_mutex_unlock(&lock);
}

/* Deploying more slices than this, 1 GiB, takes longer than an exit should. */
enum { MOST_AT_EXIT = 1 << 24 };

/* As database_close() of all connections; but connections, locks and descriptors stay SQLite's. */
static void leave(struct database *db)
{
    const char *name = db->connections->name;
    bool is_locked = false;
    if (!keep_out(db, NULL, true))
        return;
    for (struct connection *c = db->connections; c; c = c->next) {
        pending_abort(&c->pending);
        db->unmap_fast |= c->wants.unmap_fast;
        is_locked |= c->lock > SQLITE_LOCK_RESERVED; /* PENDING is this process's */
    }
    if (!db->views[1].at || view_status(db->views[1].at, true).slices_in_reflection <= MOST_AT_EXIT)
        unmap(db, is_locked, name);
    db->views[0] = db->views[1] = (struct view){0};
    for (struct connection *c = db->connections; c; c = c->next)
        use(c, &db->views[1]);
    let_in(db, NULL, NULL);
}

void database_at_exit(void)
{
    struct timespec end;
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec++;
    if (pthread_mutex_timedlock(&lock, &end) != 0)
        return;
    for (struct database *db = databases; db; db = db->next)
        if (db->process == forks && !db->busy && db->connections)
            leave(db);
    pthread_mutex_unlock(&lock);
}
