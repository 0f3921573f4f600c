/* SPDX-License-Identifier: BSD-3-Clause */
#include "database.h"

#include "lib/preload/record.h"

#include "connection.h"
#include "fault.h"

#include "ato_engine.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

static struct database *databases;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

void database_lock(void)
{
    pthread_mutex_lock(&lock);
}

void database_unlock(void)
{
    pthread_mutex_unlock(&lock);
}

struct connection *database_find(bool (*is_wanted)(const struct connection *c, const void *key),
                                 const void *key)
{
    struct connection *found = NULL;
    database_lock();
    for (const struct database *db = databases; db && !found; db = db->next) {
        found = db->connections;
        while (found && !is_wanted(found, key))
            found = found->next;
    }
    database_unlock();
    return found;
}

void database_after_fork_in_child(void)
{
    /* An open file description lock (mask_lock()) lives as long as a descriptor of it, in any process. */
    for (struct database *db = databases; db; db = db->next) {
        close(db->fd);
        db->fd = -1;
        db->memory = false;
        db->mapping =
            (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER; /* another thread may have had it */
    }
    databases = NULL;
    database_unlock();
}

static struct database *find(const struct stat *st)
{
    struct database *db = databases;
    while (db && (db->device != st->st_dev || db->inode != st->st_ino))
        db = db->next;
    return db;
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
    struct database *db = find(&st);
    if (db) /* it took the place of another file just now: the descriptor stays open, as all of them */
        return db;
    db = calloc(1, sizeof(*db));
    if (!db) {
        close(fd);
        return NULL;
    }
    *db = (struct database){.next = databases,
                            .mapping = PTHREAD_MUTEX_INITIALIZER,
                            .device = st.st_dev,
                            .inode = st.st_ino,
                            .fd = fd,
                            .writable = writable};
    databases = db;
    return db;
}

sqlite3_int64 database_length(const struct database *db)
{
    /* After a stat the next store would get a new mtime, which the next sync has to write too. */
    return lseek(db->fd, 0, SEEK_END);
}

/* Returns the name of the folder for the reflection of a plain file, with `rest`, which the caller frees; NULL: no memory. */
static char *folder_of(const struct connection *c, const char *rest)
{
    const char *chosen = c->wants.reflection_dir;
    char *folder;
    if (!chosen)
        chosen = secure_getenv("ATO_REFLECTION_DIR");
    const int n = chosen && *chosen
                      ? asprintf(&folder, "%s%s", chosen, rest)
                      : asprintf(&folder, "%.*s/.ato%s", (int)(strrchr(c->name, '/') - c->name),
                                 c->name, rest);
    return n < 0 ? NULL : folder;
}

bool database_has_manifest(const struct connection *c)
{
    char manifest[32];
    (void)snprintf(manifest, sizeof(manifest), "/%ju.manifest", (uintmax_t)c->db->inode);
    char *name = folder_of(c, manifest);
    const bool has =
        !name || access(name, F_OK) == 0; /* without memory the map fails, and says so */
    free(name);
    return has;
}

bool database_is_paired(const struct connection *c)
{
    if (fgetxattr(c->db->fd, "user.ato", NULL, 0) >= 0 || (errno != ENODATA && errno != ENOTSUP))
        return true;
    /* Where there are no attributes, libato finds a reflection by the name of its manifest. */
    return errno == ENOTSUP && database_has_manifest(c);
}

bool database_is_masked(const struct connection *c)
{
    char header[MASK_HEADER];
    return pread(c->db->fd, header, MASK_HEADER, 0) == MASK_HEADER && mask_is_on(header);
}

bool database_needs_view(const struct connection *c)
{
    return database_is_paired(c) || database_is_masked(c);
}

bool database_is_on_disk(const struct database *db)
{
    const char *domain = secure_getenv("ATO_DURABILITY"), *log = secure_getenv("ATO_LOG_DIR");
    struct statfs fs;
    struct statx st;
    if ((log && *log) || (domain && *domain && strcmp(domain, "disk") != 0) ||
        fstatfs(db->fd, &fs) < 0 || statx(db->fd, "", AT_EMPTY_PATH, 0, &st) < 0)
        return false;
    /* On others libato may refuse to write (ato_mmap()), and then does so from the first commit on. */
    const bool is_known = fs.f_type == EXT4_SUPER_MAGIC || fs.f_type == XFS_SUPER_MAGIC ||
                          fs.f_type == BTRFS_SUPER_MAGIC || fs.f_type == F2FS_SUPER_MAGIC ||
                          fs.f_type == OVERLAYFS_SUPER_MAGIC;
    return is_known && !(st.stx_attributes & STATX_ATTR_DAX);
}

/* How long what was seen of the file counts. */
enum { SEEN_NS = 10 * 1000 * 1000 };

/* Returns whether what was seen at *at does not count any more, which it does for `counts` nanoseconds. *now: this time. */
static bool is_due(const uint64_t *at, uint64_t counts, uint64_t *now)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
    *now = (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
    return *now - __atomic_load_n(at, __ATOMIC_RELAXED) >= counts;
}

bool database_has_moved(const struct connection *c)
{
    struct stat st;
    return stat(c->name, &st) == 0 ? st.st_ino != c->db->inode || st.st_dev != c->db->device
                                   : errno == ENOENT || errno == ENOTDIR;
}

int database_check_outside(const struct connection *c)
{
    struct database *db = c->db;
    uint64_t time;
    if (!is_due(&db->looked, SEEN_NS, &time))
        return SQLITE_OK;
    if (database_has_moved(c))
        return fault(
            SQLITE_READONLY_DBMOVED,
            "%s: another file, or none, has this name now: what is written to the database "
            "could not be found under it",
            c->name);
    if (ato_check(db->view) < 0) {
        if (errno == ESTALE)
            __atomic_store_n(&db->overwritten, true, __ATOMIC_RELAXED);
        return fault_of_libato(SQLITE_IOERR_DATA, "cannot commit to", c->name);
    }
    __atomic_store_n(&db->looked, time, __ATOMIC_RELAXED);
    return SQLITE_OK;
}

/* Returns whether the database is masked, as far as libato's own doing goes. */
static bool is_masked(const struct database *db)
{
    return db->memory ? locks_say(&db->locks, LOCKS_MASKED) : db->guarded;
}

int database_check_mask(struct database *db, const char *name)
{
    if (__atomic_load_n(&db->overwritten, __ATOMIC_RELAXED))
        return SQLITE_IOERR_DATA;
    if (!db->view || !db->writable || !is_masked(db) || !mask_is_lost(db->view) || !is_masked(db))
        return SQLITE_OK;
    __atomic_store_n(&db->overwritten, true, __ATOMIC_RELAXED);
    return fault(
        SQLITE_IOERR_DATA,
        "%s: another program has overwritten the database while it is open here; what was "
        "committed since is in its reflection. Close it, then choose a side: 'ato deploy "
        "--prefer=file' keeps the file as it is; '--prefer=reflection' stores what was committed "
        "in it, which makes a mixture of two databases unless the file is an earlier state of this "
        "one",
        name);
}

int database_check_mask_again(struct connection *c)
{
    uint64_t time;
    if (!is_due(&c->mask_seen, 1, &time) && c->commits)
        return SQLITE_OK;
    const int r = database_check_mask(c->db, c->name);
    if (r == SQLITE_OK)
        c->mask_seen = time;
    return r;
}

int database_check_folder(const struct connection *c)
{
    const char *logs = secure_getenv("ATO_LOG_DIR");
    if (logs && *logs &&
        !c->wants.reflection_dir) /* the map knows which of the two folders counts */
        return SQLITE_OK;
    char *folder = folder_of(c, "");
    int r = folder ? faccessat(AT_FDCWD, folder, W_OK | X_OK, AT_EACCESS) : 0;
    char *slash = folder ? strrchr(folder, '/') : NULL;
    if (r < 0 && errno == ENOENT && slash) {
        *(slash == folder ? slash + 1 : slash) = 0;
        r = faccessat(AT_FDCWD, folder, W_OK | X_OK, AT_EACCESS);
    }
    r = r < 0 && (errno == EACCES || errno == EPERM || errno == EROFS)
            ? fault(SQLITE_READONLY_DIRECTORY,
                    "cannot write to %s: this process may not write to %s, where its reflection "
                    "would be: %s",
                    c->name, folder, strerror(errno))
            : SQLITE_OK;
    free(folder);
    return r;
}

/* What a file may grow to by default: address space. The MANY databases that a process has mapped first take an eighth of all there is;
 * later ones get FEWER_GIB, and where address space is limited one takes an eighth at most, or 1 GiB, which is the least that one takes. */
enum { DEFAULT_GIB = 64, FEWER_GIB = 4, MANY = 256, SHARES = 8 };

/* How many databases have a view. Atomic. (They are not counted: at_exit() holds the lock.) */
static unsigned mapped;

static size_t default_max_size(void)
{
    const size_t gib = 1 << 30;
    struct rlimit limit;
    size_t n = (__atomic_load_n(&mapped, __ATOMIC_RELAXED) < MANY ? DEFAULT_GIB : FEWER_GIB) * gib;
    if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
        while (n > gib && n > limit.rlim_cur / SHARES)
            n /= 4;
    return n;
}

/* Without so much address space a quarter is tried, and so on, down to this, or to LEAST_GROWTH times the length. */
#define LEAST_MAX_SIZE (16ull << 20)
enum { LEAST_GROWTH = 4 };

/* The length that an empty file is mapped with. */
enum { LEAST_LENGTH = 4096 };

/* Maps all of the file, so that it can grow. Later views are as the first one, but larger if another process made the file larger. */
int database_map(const struct connection *c)
{
    struct database *db = c->db;
    if (db->view)
        return 0;
    unsigned char header[MASK_HEADER];
    const sqlite3_int64 length = database_length(db);
    const bool is_first = !db->had_view;
    const char *policy = secure_getenv("ATO_READ_POLICY");
    if (length < 0)
        return -1;
    record_database(db->device, db->inode, c->name);
    if (is_first)
        db->max_size = c->wants.max_size;
    const size_t wanted = (size_t)length * LEAST_GROWTH;
    const size_t least = wanted > LEAST_MAX_SIZE ? wanted : LEAST_MAX_SIZE;
    const size_t most = default_max_size();
    const bool is_given = db->max_size && (is_first || (sqlite3_int64)db->max_size >= length);
    struct ato_options o = {
        .struct_size = sizeof(o),
        /* No descriptor of the file may be closed (database.h). */
        .flags = ATO_BORROW_FD | ATO_MASK_FIRST | (is_first && c->writable ? c->wants.prefer : 0),
        /* SQLite caches pages that it has read: deploying them for the next read would not pay. */
        .read_policy = policy && *policy ? ATO_READ_DEFAULT : ATO_READ_GATHER,
        .max_size = is_given       ? db->max_size
                    : least > most ? least
                                   : most,
        .reflection_dir = is_first ? c->wants.reflection_dir : db->reflection_dir};
    mask_expect(db->fd, header, &o);
    db->view_length = length ? (size_t)length : LEAST_LENGTH;
    db->reach = o.max_size;
    void *view;
    do {
        o.max_size = db->reach;
        view = ato_mmap_opt(db->view_length, db->fd, 0, &o);
        db->reach /= 4;
        /* EFBIG: other processes have mapped it with a smaller max_size. */
    } while (view == MAP_FAILED && (errno == EFBIG || (errno == ENOMEM && !is_given)) &&
             db->reach > least);
    if (view == MAP_FAILED)
        return -1;
    db->reach = o.max_size > db->view_length ? o.max_size : db->view_length;
    if (is_first)
        db->reflection_dir = o.reflection_dir ? realpath(o.reflection_dir, NULL) : NULL;
    db->had_view = true;
    __atomic_add_fetch(&mapped, 1, __ATOMIC_RELAXED);
    __atomic_store_n(&db->view, view, __ATOMIC_RELEASE);
    db->told = 0;
    return 0;
}

void database_map_plain(const struct connection *c)
{
    struct database *db = c->db;
    const sqlite3_int64 length = database_length(db);
    const struct ato_options o = {.struct_size = sizeof(o), .flags = ATO_BORROW_FD | ATO_PLAIN};
    void *plain = length > 0 ? ato_mmap_opt((size_t)length, db->fd, 0, &o) : MAP_FAILED;
    if (plain == MAP_FAILED)
        return;
    db->plain_length = (size_t)length;
    db->plain_at = 0;
    db->plain = plain;
}

void database_unmap_plain(struct database *db)
{
    if (db->plain)
        (void)ato_munmap(db->plain, db->plain_length, ATO_UNMAP_FAST);
    db->plain = NULL;
}

char *database_plain(const struct connection *c)
{
    struct database *db = c->db;
    uint64_t time;
    if (!db->plain || !is_due(&db->plain_at, SEEN_NS, &time))
        return db->plain;
    if (database_length(db) != (sqlite3_int64)db->plain_length || database_needs_view(c))
        return NULL; /* the next transaction looks again */
    __atomic_store_n(&db->plain_at, time, __ATOMIC_RELAXED);
    return db->plain;
}

int database_fault_of_map(const struct connection *c, int code)
{
    const int error = errno;
    if (c->db->told == error)
        return fault_code(code, error);
    c->db->told = error;
    return fault_of_libato(code, "cannot map", c->name);
}

int database_open(struct connection *c)
{
    struct stat st;
    database_lock();
    /* Look by stat(): the database may be open already, and another descriptor could not be closed. */
    struct database *db = stat(c->name, &st) == 0 ? find(&st) : NULL;
    if (!db)
        db = open_file(c->name);
    c->db = db;
    if (db) {
        c->next = db->connections;
        db->connections = c;
    }
    database_unlock(); /* leaves errno */
    if (!db)
        return fault(errno == ENOMEM ? SQLITE_IOERR_NOMEM : SQLITE_CANTOPEN, "cannot open %s: %s",
                     c->name, strerror(errno));
    /* If the last connection was just being closed: until that is done. */
    pthread_mutex_lock(&db->mapping);
    pthread_mutex_unlock(&db->mapping);
    c->writable &= db->writable;
    return SQLITE_OK;
}

bool database_unmap(struct connection *c, bool makes_plain)
{
    struct database *db = c->db;
    unsigned char plain[MASK_GUARDED] = {0};
    c->pending.view = NULL;
    if (!db->view)
        return true;
    const bool is_sound = database_check_mask(db, c->name) == SQLITE_OK;
    makes_plain = makes_plain && db->writable && is_sound;
    const int r = makes_plain ? mask_refresh(db->view, db->fd, plain) : 0;
    if (r < 0)
        fault_ignored("cannot bring the guard up to date of", c->name);
    /* If the guard is out of date, or another connection writes, the file must not be made plain. */
    const struct ato_unmap_options o = {.struct_size = sizeof(o),
                                        .mode = makes_plain && r == 0 ? ATO_UNMAP_SPATIAL
                                                                      : ATO_UNMAP_FAST,
                                        .guard_plain = *plain ? plain : NULL};
    const bool done = ato_munmap_opt(db->view, db->view_length, &o) == 0;
    const bool is_gone = done || (o.mode == ATO_UNMAP_FAST && errno == ESTALE);
    if (!done)
        fault_ignored("cannot make plain", c->name);
    /* There may be no space to deploy the file. Nothing is lost: the file only is not plain. EINVAL: it is not mapped any more; another
     * error: it cannot be unmapped at all. */
    if (is_gone || ato_munmap(db->view, db->view_length, ATO_UNMAP_FAST) == 0 || errno == EINVAL) {
        db->view = NULL;
        db->guarded = false;
        __atomic_sub_fetch(&mapped, 1, __ATOMIC_RELAXED);
    }
    return done && is_sound && r >= 0;
}

/* Unmaps the database for good, and makes it plain, unless that is to be `fast` or another process shares it in memory: the last of these
 * does. The caller holds db->mapping, and no connection is in a call. */
static void end(struct connection *c, bool fast)
{
    struct database *db = c->db;
    bool is_last = true;
    if (db->memory) { /* nobody comes or goes meanwhile */
        is_last = mask_wait_for_lock(db->fd) && locks_are_last(&db->locks);
        if (is_last && !fast && !db->view && locks_say(&db->locks, LOCKS_WRITTEN) &&
            database_needs_view(c) && database_map(c) < 0)
            (void)database_fault_of_map(c, SQLITE_WARNING);
    }
    database_unmap_plain(db);
    (void)database_unmap(c, !fast && is_last);
    if (db->memory)
        locks_close_door(&db->locks, is_last);
    (void)mask_lock(db->fd, F_UNLCK);
    db->memory = false;
}

void database_close(struct connection *c)
{
    struct database *db = c->db;
    if (db->fd < 0) /* the parent's */
        return;
    pthread_mutex_lock(&db->mapping);
    database_lock();
    const bool is_last = db->connections == c && !c->next;
    database_unlock();
    if (is_last) { /* one that is opened meanwhile begins anew */
        end(c, c->wants.unmap_fast);
        db->guarded = db->overwritten = db->is_busy = false;
        free(db->reflection_dir);
        db->reflection_dir = NULL;
        db->had_view = false;
    }
    database_lock();
    struct connection **at = &db->connections;
    while (*at != c)
        at = &(*at)->next;
    *at = c->next;
    pthread_mutex_unlock(&db->mapping);
    if (!db->connections) {
        struct database **other = &databases;
        while (*other != db)
            other = &(*other)->next;
        *other = db->next;
        close(db->fd);
        free(db);
    }
    database_unlock();
}

/* Deploying more slices than this, 1 GiB, takes longer than an exit should. */
enum { MOST_AT_EXIT = 1 << 24 };

/* As database_close() of all connections, if none is in a call; but connections and descriptors stay SQLite's. */
static void leave(struct database *db)
{
    struct ato_stat st = {.struct_size = sizeof(st)};
    struct connection *in_call = db->connections;
    bool fast = false;
    while (in_call && pthread_mutex_trylock(&in_call->in_call) == 0)
        in_call = in_call->next;
    for (struct connection *c = in_call ? NULL : db->connections; c; c = c->next) {
        pending_abort(&c->pending);
        connection_unsee(c);
        c->pending.view = NULL;
        fast |= c->wants.unmap_fast;
    }
    if (!in_call) {
        fast |= db->view && (ato_stat(db->view, &st) < 0 || st.slices_in_reflection > MOST_AT_EXIT);
        end(db->connections, fast);
        db->gone = true;
    }
    for (struct connection *c = db->connections; c != in_call; c = c->next)
        pthread_mutex_unlock(&c->in_call);
}

/* For a program that ends without closing its databases, as SQLite's shell does after an error. Leaves each as its last close would,
 * if that takes no more than some seconds and no other thread is in a call on it. A destructor runs after the handlers of atexit(3),
 * which may close them. */
static void __attribute__((destructor)) at_exit(void)
{
    struct timespec end;
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec++;
    if (pthread_mutex_timedlock(&lock, &end) != 0)
        return;
    for (struct database *db = databases; db; db = db->next)
        if (pthread_mutex_trylock(&db->mapping) == 0) {
            leave(db);
            pthread_mutex_unlock(&db->mapping);
        }
    database_unlock();
}
