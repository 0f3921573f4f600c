/* SPDX-License-Identifier: BSD-3-Clause */
#include "share.h"

#include "connection.h"
#include "database.h"
#include "fault.h"
#include "locks.h"
#include "mask.h"
#include "record.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* What this thread locked last. The addresses are only compared, unless no connection has been closed since. */
static _Thread_local struct {
    struct connection *c;
    const sqlite3 *opener;
    const char *journal, *wal;
    uint64_t closed; /* `closed` at that time */
} last;

/* How long a writer waits before the busy handler is asked whether it is patient: less than the least turn; and how long a patient one
 * wants to wait. */
#define SOON_NS    (500 * 1000ull)
#define PATIENT_NS (1000 * 1000 * 1000ull)

/* A process that begins so many transactions by the VFS below in less than this time shares the database in memory from then on: their
 * locks are some twenty system calls. */
enum { BUSY_BEGINS = 256, BUSY_NS = 50 * 1000 * 1000 };

/* Where a busy handler that this thread is asking adds up its sleeps; NULL. */
static _Thread_local uint64_t *sleeps;

/* Connections that were closed in this process. */
static uint64_t closed;

static uint64_t wait_of(const struct connection *c)
{
    return c->wants.lock_wait_ms * 1000000ull;
}

static void nap(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 200 * 1000}, NULL);
}

/* Asks SQLite's busy handler, where SQLite would ask it, whether to go on. It does not sleep: *wait becomes the nanoseconds that it
 * wanted to, in which the lock is waited for. So a transaction begins when its turn comes, and keeps its place in the queue.
 * SQLite's own handler, which sleeps this way, is asked until the sleeps add up to a second, or it gives up. */
static bool goes_on(const struct connection *c, uint64_t *wait)
{
    uint64_t *const outer = sleeps;
    uint64_t before;
    bool more;
    *wait = 0;
    sleeps = wait;
    do {
        before = *wait;
        more = c->busy && c->busy(c->busy_arg);
    } while (more && *wait > before && *wait < PATIENT_NS);
    sleeps = outer;
    return more || *wait;
}

bool share_sleep(int microseconds)
{
    if (sleeps)
        *sleeps += (uint64_t)microseconds * 1000;
    return sleeps;
}

/* Reports an error of the words. */
static int result_of(const struct connection *c, enum locks_result r)
{
    if (r != LOCKS_FAILED)
        return r == LOCKS_OK
                   ? SQLITE_OK
                   : SQLITE_BUSY; /* LOCKS_UNSETTLED: it is mapped when it is tried again */
    const int code = errno == ETIMEDOUT ? SQLITE_BUSY : SQLITE_IOERR_LOCK;
    return fault_of_libato(code, "cannot finish the commits of dead processes to", c->name);
}

/* ---- the begin of a transaction ---- */

/* Returns whether SQLite would play the rollback journal back, or refuse it. That of an empty database it would delete: here it
 * loses its content, so that it cannot be played back into what is written from now on. Nobody else has a lock. */
static bool is_hot(struct connection *c)
{
    const bool is_empty = database_length(c->db) == 0;
    const int fd = open(c->journal, (is_empty ? O_RDWR : O_RDONLY) | O_CLOEXEC);
    char first = 0;
    if (fd < 0 && (errno == ENOENT || errno == ENAMETOOLONG))
        return false; /* there is none */
    const ssize_t n = fd < 0 ? -1 : read(fd, &first, 1);
    bool hot = n < 0 || first != 0;
    if (hot && n > 0 && is_empty && ftruncate(fd, 0) == 0 && fsync(fd) == 0)
        hot = false;
    if (fd >= 0)
        close(fd);
    return hot;
}

/* A masked file without a guard and a reflection of its own is a copy of a database that was not plain: the pages that it lacks are in
 * the reflection of the original. Such a file is refused unless ?prefer=file is given. */
static int take_copy(struct connection *c, const char *header)
{
    if (c->wants.prefer != ATO_PREFER_FILE || !c->writable)
        return fault(SQLITE_CANTOPEN,
                     "%s: this is a copy of a database that was not plain, so that pages may be "
                     "outdated or missing: copy it again when the original is closed, or open it "
                     "with prefer=file to use it as it is",
                     c->name);
    return mask_set_plain(c->db->view, header) == 0
               ? SQLITE_OK
               : fault_of_libato(SQLITE_IOERR_LOCK, "cannot set the guard of", c->name);
}

/* If the header says so, or there is a write-ahead log, notes that. */
static void look_for_wal(struct connection *c, const char *header)
{
    if (mask_is_wal(header) || access(c->wal, F_OK) == 0)
        locks_set_wal(&c->db->locks, true);
}

/* Looks whether libato knows what goes with the header: a guard with a mask; without one no slices, left by a program that uses
 * libato itself. is_first: no other process has the database. */
static int look_at_header(struct connection *c, bool is_first)
{
    struct database *db = c->db;
    char header[MASK_HEADER] = {0};
    struct ato_status st = {.struct_size = sizeof(st)};
    if (ato_settle(db->view) < 0) {
        const int code = errno == ETIMEDOUT ? SQLITE_BUSY
                         : errno == EAGAIN  ? SQLITE_READONLY_ROLLBACK
                                            : SQLITE_IOERR_LOCK;
        return fault_of_libato(code, "cannot finish the commits of dead processes to", c->name);
    }
    if (mask_read(db->view, database_length(db), header) < 0 || ato_stat(db->view, &st) < 0)
        return fault_of_libato(SQLITE_IOERR_READ, "cannot read the header of", c->name);
    const bool is_masked = mask_is_on(header);
    const bool lacks_guard = is_masked && !st.guard_bytes && (is_first || !db->writable);
    if (lacks_guard && !st.slices_in_reflection) {
        const int r = take_copy(c, header);
        if (r != SQLITE_OK)
            return r;
    } else if (lacks_guard && db->writable && mask_set_plain(db->view, header) < 0) {
        return fault_of_libato(SQLITE_IOERR_LOCK, "cannot set the guard of", c->name);
    }
    mask_uncover(header);
    /* A process was killed that was switching to WAL mode, or that used libato itself. */
    const bool completes = is_masked ? mask_is_wal(header) : st.slices_in_reflection > 0;
    db->guarded = is_masked && !completes;
    if (db->locks.words && is_first)
        locks_set_masked(&db->locks, db->guarded && !mask_is_lost(db->view));
    if (completes && is_first && db->writable && mask_take_off(db->view, db->fd) < 0)
        return fault_of_libato(SQLITE_IOERR_LOCK, "cannot make plain", c->name);
    if (db->locks.words)
        look_for_wal(c, header);
    return SQLITE_OK;
}

/* ---- in memory ---- */

/* Implements locks.settle; of: the database. */
static enum locks_result settle(const void *of)
{
    const struct database *db = of;
    void *view = __atomic_load_n(&db->view, __ATOMIC_ACQUIRE);
    if (view)
        return ato_settle(view) == 0 ? LOCKS_OK : LOCKS_FAILED;
    return locks_are_written(&db->locks) ? LOCKS_UNSETTLED : LOCKS_OK;
}

/* Maps a database that is written, or has been. With db->mapping. */
static int map_written(struct connection *c, bool is_first)
{
    locks_set_written(&c->db->locks, true);
    if (c->db->view)
        return SQLITE_OK;
    return database_map(c, false) == 0 ? look_at_header(c, is_first)
                                       : database_fault_of_map(c, SQLITE_CANTOPEN);
}

/* A plain database that nobody has begun to write. With db->mapping. */
static void map_unwritten(struct connection *c)
{
    char header[MASK_HEADER] = {0};
    (void)!pread(c->db->fd, header, MASK_HEADER, 0);
    look_for_wal(c, header);
    database_map_plain(c);
}

/* Begins to use the words, and maps the database. */
static int begin_in_memory(struct connection *c, bool is_first)
{
    struct database *db = c->db;
    int r = SQLITE_OK;
    record_database(db->device, db->inode, c->name);
    if (locks_attach(&db->locks, settle, db) != LOCKS_OK)
        return fault_of_libato(SQLITE_IOERR_LOCK, "cannot share the locks of", c->name);
    if (locks_are_written(&db->locks) || database_needs_view(c))
        r = map_written(c, is_first);
    else
        map_unwritten(c);
    if (r == SQLITE_OK)
        r = result_of(c, locks_succeed(&db->locks));
    if (r == SQLITE_OK)
        __atomic_store_n(&db->memory, true, __ATOMIC_RELEASE); /* pairs with begin_or_join() */
    else {
        (void)database_unmap(c, true, true);
        database_unmap_plain(db);
    }
    return r;
}

/* Makes a file plain that a process left, which was killed, or has unmapped it fast. */
static int make_plain(struct connection *c)
{
    if (database_map(c, false) < 0)
        return database_fault_of_map(c, SQLITE_CANTOPEN);
    const int r = look_at_header(c, true);
    if (!database_unmap(c, true, true) && r == SQLITE_OK)
        return SQLITE_IOERR_LOCK;
    return r == SQLITE_OK && database_needs_view(c) ? SQLITE_BUSY : r;
}

/* SQLITE_OK with db->memory: the database is shared in memory; without: by the VFS below, which plays a hot journal back into a file
 * that is complete. */
static int try_memory(struct connection *c, bool is_first)
{
    if (is_first && is_hot(c))
        return database_needs_view(c) ? make_plain(c) : SQLITE_OK;
    return !is_first || c->db->is_busy || database_needs_view(c) ? begin_in_memory(c, is_first)
                                                                 : SQLITE_OK;
}

/* Does that with a door, and without other processes that come or go. The door stays open for db->memory. */
static int at_a_door(struct connection *c)
{
    struct database *db = c->db;
    bool is_first;
    int r = SQLITE_BUSY;
    if (mask_lock(db->fd, F_WRLCK) < 0)
        return errno == EAGAIN || errno == EACCES
                   ? SQLITE_BUSY
                   : fault(SQLITE_IOERR_LOCK,
                           "cannot lock %s: %s. libato needs locks of open file descriptions "
                           "(F_OFD_SETLK), which this kernel may not have",
                           c->name, strerror(errno));
    if (locks_open_door(&db->locks, db->fd, &is_first)) {
        r = try_memory(c, is_first);
        if (!db->memory)
            locks_close_door(&db->locks, is_first);
    }
    (void)mask_lock(db->fd, F_UNLCK);
    return r;
}

/* SHARED by the VFS below. */
static int begin_below(struct connection *c)
{
    struct database *db = c->db;
    int r = c->below->xLock(c->file, SQLITE_LOCK_SHARED);
    if (r != SQLITE_OK)
        return r;
    if (!db->view && database_needs_view(c)) {
        r = SQLITE_BUSY; /* it is shared in memory, or has to be */
        if (!db->writable)
            r = database_map(c, false) == 0 ? look_at_header(c, true)
                                            : database_fault_of_map(c, SQLITE_CANTOPEN);
    }
    if (r != SQLITE_OK) {
        if (!db->below)
            (void)database_unmap(c, false, false);
        (void)c->below->xUnlock(c->file, SQLITE_LOCK_NONE);
        return r;
    }
    if (!db->writable)
        c->pending.view = db->view;
    c->is_below = true;
    return SQLITE_OK;
}

/* joins: also a plain database that others share in memory; or begins that, if it is read so often. Waits for other processes that begin
 * or end, and for programs that are reading, if it cannot be read otherwise. With db->mapping. */
static int begin(struct connection *c, bool joins)
{
    struct database *db = c->db;
    int r = SQLITE_OK;
    if (!db->memory && db->writable && !db->below) {
        const bool must = database_needs_view(c);
        const uint64_t end = must ? locks_clock() + wait_of(c) : 0;
        while ((must || joins) && (r = at_a_door(c)) == SQLITE_BUSY && locks_clock() < end)
            nap();
    }
    db->is_busy = false;
    return r;
}

/* The end of the first transaction that wrote: from now on the process shares the database in memory. `level`: the lock that the
 * connection keeps. It has EXCLUSIVE of the VFS below, and db->mapping is held. Returns false if that is not possible. */
static bool go_on_in_memory(struct connection *c, int level)
{
    struct database *db = c->db;
    struct locks *l = &db->locks;
    bool is_first;
    if (!locks_open_door_within(l, db->fd, &is_first))
        return false;
    const bool may = locks_attach(l, settle, db) == LOCKS_OK && locks_succeed(l) == LOCKS_OK &&
                     (level == SQLITE_LOCK_NONE || ((c->line = locks_take_line(l)) >= 0 &&
                                                    locks_share(l, c->line, 0) == LOCKS_OK));
    if (!may) {
        c->line = -1;
        locks_close_door(l, is_first);
        return false;
    }
    locks_set_written(l, true);
    locks_set_masked(l, !mask_is_lost(db->view));
    c->is_below = false;
    db->below--;
    __atomic_store_n(&db->memory, true, __ATOMIC_RELEASE); /* pairs with begin_or_join() */
    return true;
}

/* joins: as begin() says. */
static int begin_or_join(struct connection *c, bool joins)
{
    struct database *db = c->db;
    int r = SQLITE_OK;
    if (!__atomic_load_n(&db->memory, __ATOMIC_ACQUIRE)) {
        pthread_mutex_lock(&db->mapping);
        r = begin(c, joins);
        pthread_mutex_unlock(&db->mapping);
    }
    if (r == SQLITE_OK && db->memory)
        c->pending.view = __atomic_load_n(&db->view, __ATOMIC_ACQUIRE);
    return r;
}

int share_begin(struct connection *c)
{
    return begin_or_join(c, false);
}

/* ---- locks in memory ---- */

/* Returns whether the connection is executing a statement that may write to this database: not one that may write to a temporary
 * one, or whose transaction writes to another one already. */
static bool is_going_to_write(const struct connection *c)
{
    sqlite3 *user = c->user ? *c->user : NULL;
    sqlite3_stmt *s = NULL;
    while (user && (s = sqlite3_next_stmt(user, s)) != NULL)
        if (sqlite3_stmt_busy(s) && !sqlite3_stmt_readonly(s))
            return !sqlite3_db_filename(user, "temp") &&
                   sqlite3_txn_state(user, NULL) != SQLITE_TXN_WRITE;
    return false;
}

static bool is_another(const struct connection *c, const void *one)
{
    const struct connection *o = one;
    return c != o && __atomic_load_n(&c->opener, __ATOMIC_RELAXED) == o->opener;
}

/* RESERVED in advance, when its turn comes. Waits for lock_wait_ms; asks: and for as long as the busy handler goes on, unless the
 * statement may write to another database that is attached. */
static enum locks_result wait_for_turn(struct connection *c, bool asks)
{
    struct locks_place place = {0};
    uint64_t left = wait_of(c), wait = left < SOON_NS ? left : SOON_NS;
    enum locks_result r = locks_reserve(&c->db->locks, c->line, &place, wait);
    left -= wait;
    while (r == LOCKS_BUSY) {
        wait = 0;
        asks = asks && !database_find(is_another, c) && goes_on(c, &wait);
        if (!asks && !left)
            break;
        place.is_patient = wait >= PATIENT_NS;
        r = locks_reserve(&c->db->locks, c->line, &place, left + wait);
        left = 0;
    }
    return r;
}

/* SHARED. A connection that is going to write takes RESERVED with it, and waits for its turn before it reads anything: what it
 * has read would be out of date after a later wait, and the writer would wait for it. (With a write-ahead log SQLite needs no
 * RESERVED.) The statement may write to another database only, and read this one: SQLite asks for RESERVED next, or not at all; then
 * it is given back (share_read_on()). */
static int share_line(struct connection *c)
{
    struct locks *l = &c->db->locks;
    uint64_t wait = wait_of(c);
    if (c->line < 0 && (c->line = locks_take_line(l)) < 0)
        return fault(SQLITE_BUSY, "%s: too many connections are open to it", c->name);
    /* Statements are only looked at if the last transaction wrote, or another one writes now. */
    const bool wrote = c->wrote;
    const bool writes = c->writable && (wrote || locks_are_contended(l, c->line)) &&
                        !locks_had_wal(l) && is_going_to_write(c);
    c->wrote = false;
    enum locks_result r = writes ? wait_for_turn(c, wrote) : LOCKS_OK;
    if (r == LOCKS_FAILED)
        return result_of(c, r);
    c->in_advance = writes && r == LOCKS_OK;
    /* Before its turn came a writer may have died whose journal is on the disk: SQLite takes one for hot if nobody has RESERVED. */
    if (c->in_advance && locks_had_wal(l))
        share_read_on(c);
    do
        r = locks_share(l, c->line, wait);
    while (r == LOCKS_BUSY && goes_on(c, &wait));
    int result = result_of(c, r);
    if (r == LOCKS_OK && (result = database_check_mask(c->db, c->name)) != SQLITE_OK)
        locks_unshare(l, c->line);
    if (result != SQLITE_OK)
        share_read_on(c);
    return result;
}

/* With SHARED: finds out what the connection reads through. Returns false if the database has to be mapped first. */
static bool choose_view(struct connection *c)
{
    const struct database *db = c->db;
    c->pending.view = __atomic_load_n(&db->view, __ATOMIC_ACQUIRE);
    if (c->pending.view)
        return true;
    if (locks_are_written(&db->locks))
        return false;
    c->plain = locks_had_wal(&db->locks) ? NULL : database_plain(c);
    return c->plain || !database_needs_view(c);
}

/* SHARED in memory. The first process that writes maps the database for writing, and then all others do. */
static int share_words(struct connection *c)
{
    struct database *db = c->db;
    for (;;) {
        int r = SQLITE_OK;
        if (locks_are_written(&db->locks) && !__atomic_load_n(&db->view, __ATOMIC_ACQUIRE)) {
            pthread_mutex_lock(&db->mapping);
            r = map_written(c, false);
            pthread_mutex_unlock(&db->mapping);
        }
        if (r == SQLITE_OK)
            r = share_line(c);
        if (r != SQLITE_OK || choose_view(c))
            return r;
        share_read_on(c);
        locks_unshare(&db->locks, c->line);
        locks_set_written(&db->locks, true);
    }
}

/* Of two threads one gets what the connection has in advance. */
static bool take_advance(struct connection *c)
{
    return __atomic_load_n(&c->in_advance, __ATOMIC_RELAXED) &&
           __atomic_exchange_n(&c->in_advance, false, __ATOMIC_ACQ_REL);
}

void share_read_on(struct connection *c)
{
    if (take_advance(c))
        locks_unreserve(&c->db->locks, c->line);
}

/* RESERVED. If it is not free the connection has waited for it before (share_words()), or has read by then: the one that has it may
 * have to wait for this one to end, so that waiting could last for ever. */
static int reserve(struct connection *c)
{
    struct locks *l = &c->db->locks;
    bool is_reserved = false;
    int r = SQLITE_OK;
    c->wrote = true;
    if (take_advance(c))
        return SQLITE_OK;
    for (int i = 0; i < 2 && r == SQLITE_OK && !is_reserved; i++) {
        if (locks_try_reserve(l, c->line))
            return SQLITE_OK;
        r = result_of(c, locks_look(l, &is_reserved));
    }
    return r == SQLITE_OK ? SQLITE_BUSY : r;
}

/* EXCLUSIVE. Without RESERVED it is to close a write-ahead log, or to begin one: SQLite itself does not wait then. All connections
 * of that database have SHARED for as long as they are open. */
static int exclude(struct connection *c)
{
    const bool waits = c->lock >= SQLITE_LOCK_RESERVED;
    uint64_t wait = waits ? wait_of(c) : 0;
    enum locks_result r;
    (void)take_advance(c);
    do
        r = locks_exclude(&c->db->locks, c->line, wait);
    while (r == LOCKS_BUSY && waits && goes_on(c, &wait));
    return result_of(c, r);
}

static void unlock_words(struct connection *c, int level)
{
    struct locks *l = &c->db->locks;
    (void)take_advance(c);
    if (level == SQLITE_LOCK_NONE)
        locks_unshare(l, c->line);
    locks_unreserve(l, c->line);
}

/* ---- locks of the VFS below ---- */

/* Notes whether it is time to share the database in memory. With db->mapping. */
static void count_begin(const struct connection *c)
{
    struct database *db = c->db;
    if (!c->writable || ++db->begun < BUSY_BEGINS)
        return;
    const uint64_t time = locks_clock();
    __atomic_store_n(&db->is_busy, time - db->begun_at < BUSY_NS, __ATOMIC_RELAXED);
    db->begun = 0;
    db->begun_at = time;
}

static int share_by_below(struct connection *c)
{
    pthread_mutex_lock(&c->db->mapping);
    int r = SQLITE_BUSY; /* another connection has just begun to share it in memory */
    if (!c->db->memory)
        r = begin_below(c);
    if (r == SQLITE_OK) {
        c->db->below++;
        count_begin(c);
    }
    pthread_mutex_unlock(&c->db->mapping);
    return r;
}

/* EXCLUSIVE: waits for readers to end, as in memory. */
static int lock_below(struct connection *c, int level)
{
    const bool waits = c->lock >= SQLITE_LOCK_RESERVED;
    const uint64_t end = locks_clock() + wait_of(c);
    int r;
    while ((r = c->below->xLock(c->file, level)) == SQLITE_BUSY && waits && locks_clock() < end)
        nap();
    return r;
}

/* A transaction has mapped the file. Other processes may read it when EXCLUSIVE is given back: by then the database is shared in
 * memory, or the file is complete and plain. Returns whether it is shared in memory. */
static bool end_staging(struct connection *c, int before, int level)
{
    char header[MASK_HEADER];
    struct database *db = c->db;
    const bool stays = before == SQLITE_LOCK_EXCLUSIVE &&
                       mask_read(db->view, database_length(db), header) == 0 &&
                       mask_is_on(header) && go_on_in_memory(c, level);
    if (!stays)
        (void)database_unmap(c, true, before > SQLITE_LOCK_RESERVED);
    return stays;
}

static int unlock_below(struct connection *c, int before, int level)
{
    struct database *db = c->db;
    int below = level;
    pthread_mutex_lock(&db->mapping);
    if (c->pending.view && db->writable && level < SQLITE_LOCK_RESERVED &&
        end_staging(c, before, level))
        below = SQLITE_LOCK_NONE;
    const int r = c->below->xUnlock(c->file, below);
    if (below == SQLITE_LOCK_NONE && c->is_below) {
        c->is_below = false;
        if (--db->below == 0)
            (void)database_unmap(c, false, false);
        c->pending.view = NULL;
    }
    pthread_mutex_unlock(&db->mapping);
    return r;
}

/* Returns whether the connection would get RESERVED in vain: it has SHARED, and is going to write. */
static bool is_reserved_below(struct connection *c)
{
    int is_reserved = 0;
    return c->writable && is_going_to_write(c) &&
           c->below->xCheckReservedLock(c->file, &is_reserved) == SQLITE_OK && is_reserved;
}

/* SHARED. Waits, as long as for a lock in memory, for a process that writes its first transaction: then the database is shared in
 * memory. */
static int share(struct connection *c)
{
    uint64_t end = 0;
    if (__atomic_load_n(&c->db->is_busy, __ATOMIC_RELAXED))
        (void)begin_or_join(c, true);
    for (;;) {
        int r = SQLITE_BUSY;
        if (!__atomic_load_n(&c->db->memory, __ATOMIC_ACQUIRE))
            r = share_by_below(c);
        if (r == SQLITE_BUSY) { /* it may be shared in memory, or has to be */
            r = begin_or_join(c, true);
            if (r == SQLITE_OK)
                r = c->db->memory ? share_words(c) : SQLITE_BUSY;
            if (c->db->memory)
                return r;
        }
        const uint64_t now = locks_clock(); /* not in memory: it takes as long as the rest */
        if (!end)
            end = now + wait_of(c);
        const bool is_over = now >= end;
        if (r == SQLITE_OK && !is_over && is_reserved_below(c)) {
            r = unlock_below(c, SQLITE_LOCK_SHARED, SQLITE_LOCK_NONE);
            r = r == SQLITE_OK ? SQLITE_BUSY : r;
        }
        if (r != SQLITE_BUSY || is_over)
            return r;
        nap();
    }
}

/* ---- all locks ---- */

/* A parent's connection, or one that is in use when its process ends, has no locks. */
static bool is_lost(const struct connection *c)
{
    return c->db->fd < 0 || c->db->gone;
}

/* With EXCLUSIVE: returns whether there is a write-ahead log, although the connection is going to write to the database. It had found
 * none when it got SHARED, and switches to another journal mode; meanwhile others have made one, and committed to it. SQLite does not
 * look again: it would leave the log beside the database, and those commits would be lost. */
static bool has_new_wal(const struct connection *c)
{
    struct stat st;
    return c->lock >= SQLITE_LOCK_RESERVED && (c->is_below || share_had_wal(c)) &&
           stat(c->wal, &st) == 0 && st.st_size > 0;
}

/* Before RESERVED of a database that is not mapped yet: SQLite gets the error now that the first write of its transaction would get, at
 * COMMIT. */
static int check_folder(const struct connection *c)
{
    char *folder = database_forbidden_folder(c);
    if (!folder)
        return SQLITE_OK;
    const int r = fault(SQLITE_READONLY_DIRECTORY,
                        "cannot write to %s: this process may not write to %s, where its "
                        "reflection would be: %s",
                        c->name, folder, strerror(errno));
    free(folder);
    return r;
}

int share_check(const struct connection *c, int code)
{
    if (!is_lost(c))
        return SQLITE_OK;
    return c->db->gone ? fault(code, "%s is closed, since the process is about to end", c->name)
                       : fault_of_fork(code, c->name);
}

int share_lock(struct connection *c, int level)
{
    int r;
    if (level <= c->lock)
        return SQLITE_OK;
    /* Another database of the same connection of SQLite's, which is this thread's now. */
    if (last.c && last.c != c && last.opener == c->opener &&
        last.closed == __atomic_load_n(&closed, __ATOMIC_RELAXED))
        share_read_on(last.c);
    r = share_check(c, SQLITE_IOERR_LOCK);
    if (r != SQLITE_OK)
        return r;
    if (level >= SQLITE_LOCK_RESERVED && !c->writable)
        return SQLITE_READONLY;
    if (level == SQLITE_LOCK_RESERVED && !c->pending.view)
        r = check_folder(c);
    if (r != SQLITE_OK)
        return r;
    if (level == SQLITE_LOCK_SHARED)
        r = share(c);
    else if (c->is_below)
        r = lock_below(c, level);
    else
        r = level == SQLITE_LOCK_RESERVED ? reserve(c) : exclude(c);
    if (r == SQLITE_OK && !c->is_below && c->db->memory && locks_are_lost(&c->db->locks)) {
        if (level == SQLITE_LOCK_SHARED)
            unlock_words(c, SQLITE_LOCK_NONE);
        r = fault(
            SQLITE_IOERR_LOCK,
            "%s: another program made the memory of its locks shorter, in /dev/shm: close it in "
            "all processes, then open it again",
            c->name);
    }
    if (r == SQLITE_OK && level == SQLITE_LOCK_EXCLUSIVE && has_new_wal(c))
        r = SQLITE_BUSY_SNAPSHOT;
    last.c = c;
    last.opener = c->opener;
    last.journal = c->db->memory ? c->journal : NULL;
    last.wal = c->db->memory ? c->wal : NULL;
    last.closed = __atomic_load_n(&closed, __ATOMIC_RELAXED);
    return r;
}

int share_unlock(struct connection *c, int before, int level)
{
    /* After a failure to get EXCLUSIVE it may have PENDING, whatever lock it had before. */
    if (before == SQLITE_LOCK_NONE || is_lost(c))
        return SQLITE_OK;
    if (level == SQLITE_LOCK_NONE)
        c->plain = NULL;
    if (c->is_below)
        return unlock_below(c, before, level);
    unlock_words(c, level);
    return SQLITE_OK;
}

int share_look(struct connection *c, int *is_reserved)
{
    bool found = true;
    int r = share_check(c, SQLITE_IOERR_CHECKRESERVEDLOCK);
    if (r != SQLITE_OK)
        return r;
    if (!c->db->memory)
        return c->below->xCheckReservedLock(c->file, is_reserved);
    r = result_of(c, locks_look(&c->db->locks, &found));
    *is_reserved = found;
    return r;
}

void share_end(struct connection *c)
{
    if (!is_lost(c) && c->line >= 0)
        locks_drop_line(&c->db->locks, c->line);
    c->line = -1;
    __atomic_add_fetch(&closed, 1, __ATOMIC_RELAXED);
}

struct connection *share_in_memory(const char *name)
{
    const bool is_name = name == last.journal || name == last.wal;
    return is_name && last.closed == __atomic_load_n(&closed, __ATOMIC_RELAXED) ? last.c : NULL;
}

bool share_had_wal(const struct connection *c)
{
    return is_lost(c) || locks_had_wal(&c->db->locks);
}

static bool is_missing(const char *name)
{
    return access(name, F_OK) < 0 && errno == ENOENT;
}

void share_forget_wal(struct connection *c)
{
    if (c->db->memory && locks_had_wal(&c->db->locks) && is_missing(c->wal) &&
        is_missing(c->journal))
        locks_set_wal(&c->db->locks, false);
}
