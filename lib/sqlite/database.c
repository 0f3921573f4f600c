/* SPDX-License-Identifier: BSD-3-Clause */
#include "database.h"

#include "connection.h"
#include "fault.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

static struct database *databases;
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

void database_lock(void)
{
    pthread_mutex_lock(&lock);
}

void database_unlock(void)
{
    pthread_mutex_unlock(&lock);
}

struct connection *database_next(const struct connection *c)
{
    struct connection *next = c ? c->next : NULL;
    for (const struct database *db = c ? c->db->next : databases; db && !next; db = db->next)
        next = db->connections;
    return next;
}

struct connection *database_find(const char *journal, bool writes)
{
    struct connection *c = NULL;
    database_lock();
    do
        c = database_next(c);
    while (c && (!has_journal(c, journal) || (writes && !connection_writes(c))));
    database_unlock();
    return c;
}

void database_after_fork_in_child(void)
{
    /* An open file description lock (mask_lock()) lives as long as a descriptor of it, in any process. */
    for (struct database *db = databases; db; db = db->next) {
        close(db->fd);
        db->fd = -1;
        db->busy = false;
    }
    databases = NULL;
    idle = (pthread_cond_t)PTHREAD_COND_INITIALIZER; /* threads that wait are the parent's */
    database_unlock();
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

/* Frees a database without connections, and closes its descriptor. */
static void forget_unused(struct database *db)
{
    if (db->connections)
        return;
    close(db->fd);
    struct database **at = &databases;
    while (*at != db)
        at = &(*at)->next;
    *at = db->next;
    free(db->reflection_dir);
    free(db);
}

/* Opens the file, and finds or makes its database. */
static struct database *open_file(const char *path)
{
    struct stat st;
    int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    const bool writable = fd >= 0;
    if (!writable)
        fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0 || fstat(fd, &st) < 0)
        return NULL;
    struct database *db = find_idle(&st);
    if (db) /* it took the place of another file just now: the descriptor stays open, as all of them */
        return db;
    db = calloc(1, sizeof(*db));
    if (!db) {
        close(fd);
        return NULL;
    }
    *db = (struct database){
        .device = st.st_dev, .inode = st.st_ino, .fd = fd, .writable = writable, .next = databases};
    databases = db;
    return db;
}

bool database_read_header(const struct database *db, char header[MASK_HEADER])
{
    return pread(db->fd, header, MASK_HEADER, 0) == MASK_HEADER;
}

sqlite3_int64 database_length(const struct database *db)
{
    /* After a stat the next store would get a new mtime, which the next sync has to write too. */
    return lseek(db->fd, 0, SEEK_END);
}

static bool is_masked(const struct database *db)
{
    char header[MASK_HEADER];
    return database_read_header(db, header) && mask_is_on(header);
}

/* Returns whether only libato can tell the content: the file has a reflection, or it is not known whether it has one. */
static bool needs_view(const struct database *db)
{
    return fgetxattr(db->fd, "user.ato", NULL, 0) >= 0 || errno != ENODATA || is_masked(db);
}

/* What a file may grow to by default. It is address space, three times: for two mappings and the reflection. */
#define DEFAULT_MAX_SIZE (64ull << 30)
/* Without so much address space a quarter is tried, and so on, down to this, or to LEAST_GROWTH times the length. */
#define LEAST_MAX_SIZE (16ull << 20)
enum { LEAST_GROWTH = 4 };

/* The length that an empty file is mapped with. */
enum { LEAST_LENGTH = 4096 };

/* Returns what ato_stat() says: all of it, which takes longer, or what comes before slices_in_reflection. If that is not known
 * there is an endless number of slices, and the rest is the default. */
static struct ato_status status_of(void *view, bool all)
{
    const struct ato_status unknown = {.domain = ATO_DOMAIN_PROCESS,
                                       .read_policy = ATO_READ_GATHER,
                                       .slices_in_reflection = UINT64_MAX};
    /* The short struct_size saves counting slices. */
    struct ato_status st = {.struct_size = all ? sizeof(st)
                                               : offsetof(struct ato_status, slices_in_reflection)};
    return ato_stat(view, &st) < 0 ? unknown : st;
}

/* Maps all of a file of this length with these options, so that it can grow. If that fails, `at` is NULL, and errno is set.
 * `o->max_size` of 0: the default. */
static struct view map_view(int fd, size_t length, struct ato_options *o)
{
    const size_t wanted = length * LEAST_GROWTH;
    const size_t least = wanted > LEAST_MAX_SIZE ? wanted : LEAST_MAX_SIZE;
    const bool may_shrink = !o->max_size;
    struct view v = {.length = length ? length : LEAST_LENGTH};
    /* No descriptor of the file may be closed (database.h). */
    o->flags |= ATO_BORROW_FD;
    /* SQLite caches pages that it has read: deploying them for the next read would not pay. */
    const char *policy =
        secure_getenv("ATO_READ_POLICY"); /* libato applies it to the default policy only */
    o->read_policy = policy && *policy ? ATO_READ_LAZY : ATO_READ_GATHER;
    if (!o->max_size)
        o->max_size = least > DEFAULT_MAX_SIZE ? least : DEFAULT_MAX_SIZE;
    v.at = ato_mmap_opt(v.length, fd, 0, o);
    /* EFBIG: other processes have mapped it with a smaller max_size. */
    while (v.at == MAP_FAILED && (errno == EFBIG || (errno == ENOMEM && may_shrink)) &&
           o->max_size / 4 > least) {
        o->max_size /= 4;
        v.at = ato_mmap_opt(v.length, fd, 0, o);
    }
    if (v.at == MAP_FAILED)
        v.at = NULL;
    v.max_size = o->max_size > v.length ? o->max_size : v.length;
    return v;
}

/* Returns whether the mapping is gone: ato_munmap() may fail and take it away all the same. */
static bool unmap_fast(const struct view *v)
{
    return ato_munmap(v->at, v->length, ATO_UNMAP_FAST) == 0 || ato_size(v->at) < 0;
}

/* Maps the file in long work. Sets errno if there is no view then. Later views are as the first one, but larger if another
 * process made the file larger. */
static void map(const struct connection *c, bool masks)
{
    struct database *db = c->db;
    unsigned char headers[2][MASK_HEADER];
    struct ato_options o = {.struct_size = sizeof(o)};
    const sqlite3_int64 length = database_length(db);
    const bool is_first = !db->domain;
    if (length < 0)
        return;
    if (is_first) {
        db->max_size = c->wants.max_size;
        o.flags = c->writable ? c->wants.prefer : 0;
    }
    o.max_size = is_first || (sqlite3_int64)db->max_size >= length ? db->max_size : 0;
    o.reflection_dir = is_first ? c->wants.reflection_dir : db->reflection_dir;
    mask_expect(db->fd, headers, masks, &o);
    db->view = map_view(db->fd, (size_t)length, &o);
    if (!db->view.at)
        return;
    if (!is_first) {
        (void)ato_set_read_policy(db->view.at, db->policy);
        return;
    }
    const struct ato_status status = status_of(db->view.at, false);
    db->domain = status.domain;
    db->policy = status.read_policy;
    db->reflection_dir = o.reflection_dir ? realpath(o.reflection_dir, NULL) : NULL;
}

/* As database_map(). The caller holds the lock, and the database is idle. */
static int map_idle(struct connection *c, enum database_need need)
{
    struct database *db = c->db;
    const bool needed = db->view.at || need != IF_PAIRED || needs_view(db);
    if (!db->view.at && needed) {
        begin_long_work(db);
        map(c, need == TO_WRITE);
        end_long_work(db);
    }
    c->pending.view = db->view.at;
    return c->pending.view || !needed ? 0 : -1;
}

/* The caller holds the lock. */
static int open_and_map(struct connection *c)
{
    struct stat st;
    /* Look by stat(): the database may be open already, and another descriptor could not be closed. */
    struct database *db = stat(c->name, &st) == 0 ? find_idle(&st) : NULL;
    if (!db)
        db = open_file(c->name);
    if (!db)
        return fault(errno == ENOMEM ? SQLITE_IOERR_NOMEM : SQLITE_CANTOPEN, "cannot open %s: %s",
                     c->name, strerror(errno));
    c->db = db;
    if (map_idle(c, IF_PAIRED) < 0) {
        const int r = fault_of_libato(SQLITE_CANTOPEN, "cannot map", c->name);
        forget_unused(db);
        return r;
    }
    c->writable &= db->writable;
    c->direct = !c->pending.view;
    c->next = db->connections;
    db->connections = c;
    return SQLITE_OK;
}

int database_open(struct connection *c)
{
    database_lock();
    const int r = open_and_map(c);
    database_unlock();
    return r;
}

static void let_in(struct database *db, const struct connection *self, const struct connection *end)
{
    for (struct connection *c = db->connections; c != end; c = c->next)
        if (c != self)
            pthread_mutex_unlock(&c->in_call);
}

/* Keeps all other connections out of their views. Returns false, and keeps none out, if one is in a call, or has something staged
 * that is not to be lost. */
static bool keep_out(struct database *db, const struct connection *self, bool staged_is_lost)
{
    for (struct connection *c = db->connections; c; c = c->next) {
        if (c != self && pthread_mutex_trylock(&c->in_call) != 0) {
            let_in(db, self, c);
            return false;
        }
        if (c->pending.tx && !staged_is_lost) {
            let_in(db, self, c->next);
            return false;
        }
    }
    return true;
}

static void renew(const struct connection *self, bool drop_plain)
{
    struct database *db = self->db;
    /* A plain file has no slices in its reflection. A guard that a killed process left does not count (mask.h). */
    if (drop_plain && (is_masked(db) || status_of(db->view.at, true).slices_in_reflection))
        return;
    if (!unmap_fast(&db->view))
        return;
    db->view.at = NULL;
    if (drop_plain)
        return;
    map(self, false);
    if (!db->view.at)
        (void)fault_of_libato(SQLITE_IOERR, "cannot map once more", self->name);
}

void database_renew(struct connection *self, bool drop_plain)
{
    struct database *db = self->db;
    if (db->fd < 0) /* the parent's */
        return;
    database_lock();
    wait_until_idle(db);
    if (db->view.at && keep_out(db, self, false)) {
        begin_long_work(db);
        renew(self, drop_plain);
        end_long_work(db);
        for (struct connection *c = db->connections; c; c = c->next) {
            c->pending.view = db->view.at;
            c->direct |= drop_plain && !db->view.at;
        }
        let_in(db, self, NULL);
    }
    database_unlock();
}

int database_map(struct connection *c, enum database_need need)
{
    if (c->pending.view)
        return 0;
    database_lock();
    wait_until_idle(c->db);
    const int r = map_idle(c, need);
    database_unlock(); /* leaves errno */
    return r;
}

/* Unmaps the file, and makes it plain if this process may write to it and is not to unmap it fast. is_locked: this process has
 * SQLite's PENDING lock. A failure is logged. */
static void unmap(const struct database *db, bool is_locked, const char *name)
{
    const struct view *v = &db->view;
    const bool makes_plain = db->writable && !db->unmap_fast;
    unsigned char plain[MASK_GUARDED] = {0};
    if (!v->at)
        return;
    if (!db->writable && !db->unmap_fast && status_of(v->at, true).reflection_bytes)
        (void)fault(SQLITE_WARNING,
                    "%s was closed by a process that may not write to it: it is not an ordinary "
                    "file until a process that may write opens and closes it through ato",
                    name);
    const int r = makes_plain ? mask_refresh(v->at, db->fd, is_locked, plain) : 0;
    if (r < 0)
        fault_ignored("cannot bring the guard up to date of", name);
    /* The guard is out of date, or another connection writes: the file must not be made plain. */
    const struct ato_unmap_options o = {.struct_size = sizeof(o),
                                        .mode = makes_plain && r == 0 ? ATO_UNMAP_SPATIAL
                                                                      : ATO_UNMAP_FAST,
                                        .guard_plain = *plain ? plain : NULL};
    if (ato_munmap_opt(v->at, v->length, &o) < 0) {
        fault_ignored("cannot make plain", name);
        /* There may be no space to deploy the file. Nothing is lost: the file only is not plain. If this fails as well, the
         * mapping is gone, and the next process to map the file completes what is left. */
        (void)ato_munmap(v->at, v->length, ATO_UNMAP_FAST);
    }
    if (makes_plain && !is_locked)
        (void)mask_lock(db->fd, F_UNLCK);
}

void database_close(struct connection *c)
{
    struct database *db = c->db;
    if (db->fd < 0) /* the parent's */
        return;
    database_lock();
    wait_until_idle(db);
    struct connection **at = &db->connections;
    while (*at != c)
        at = &(*at)->next;
    *at = c->next;
    db->unmap_fast = c->wants.unmap_fast;
    if (!db->connections) {
        begin_long_work(db);
        unmap(db, false, c->name);
        end_long_work(db);
    }
    forget_unused(db);
    database_unlock();
}

/* Deploying more slices than this, 1 GiB, takes longer than an exit should. */
enum { MOST_AT_EXIT = 1 << 24 };

/* As database_close() of all connections; but connections, locks and descriptors stay SQLite's. */
static void leave(struct database *db)
{
    bool is_locked = false;
    if (!keep_out(db, NULL, true))
        return;
    for (struct connection *c = db->connections; c; c = c->next) {
        pending_abort(&c->pending);
        db->unmap_fast |= c->wants.unmap_fast;
        is_locked |= c->lock > SQLITE_LOCK_RESERVED; /* PENDING is this process's */
    }
    if (status_of(db->view.at, true).slices_in_reflection <= MOST_AT_EXIT)
        unmap(db, is_locked, db->connections->name);
    db->view.at = NULL;
    for (struct connection *c = db->connections; c; c = c->next)
        c->pending.view = NULL;
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
        if (!db->busy && db->connections)
            leave(db);
    database_unlock();
}
