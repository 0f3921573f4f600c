/* SPDX-License-Identifier: BSD-3-Clause */
#include "share_memory.h"

#include "connection.h"
#include "database.h"
#include "fault.h"
#include "locks.h"
#include "mask.h"

#include "lib/preload/record.h"

#include "ato_engine.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

/* How long a writer waits before the busy handler is asked whether it is patient: less than the least turn; and how long a patient one
 * wants to wait. */
#define SOON_NS    (500 * 1000ull)
#define PATIENT_NS (1000 * 1000 * 1000ull)

/* Where a busy handler that this thread is asking adds up its sleeps; NULL. */
static _Thread_local uint64_t *sleeps;

/* Reports a failure of ato_settle(). */
static int fault_of_settle(const struct connection *c)
{
    const int code = errno == ETIMEDOUT ? SQLITE_BUSY
                     : errno == EAGAIN  ? SQLITE_READONLY_ROLLBACK
                                        : SQLITE_IOERR_LOCK;
    return fault_of_libato(code, "cannot finish the commits of dead processes to", c->name);
}

/* Reports an error of the words. LOCKS_UNSETTLED: it is mapped when it is tried again. */
static int result_of(const struct connection *c, enum locks_result r)
{
    return r == LOCKS_OK ? SQLITE_OK : r == LOCKS_FAILED ? fault_of_settle(c) : SQLITE_BUSY;
}

/* ---- what a process finds ---- */

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

/* If the header says so, or there is a write-ahead log, notes that. */
static void look_for_wal(struct connection *c, const char *header)
{
    if (mask_is_wal(header) || access(c->wal, F_OK) == 0)
        locks_set(&c->db->locks, LOCKS_WAL, true);
}

/* A masked file without a guard and a reflection of its own is a copy of a database that was not plain: the pages that it lacks are in
 * the reflection of the original. */
static int fault_of_copy(const struct connection *c)
{
    return fault(SQLITE_CANTOPEN,
                 "%s: this is a copy of a database that was not plain, so that pages may be "
                 "outdated or missing: copy it again when the original is closed, or open it "
                 "with prefer=file to use it as it is",
                 c->name);
}

int share_memory_map(struct connection *c, bool is_first)
{
    struct database *db = c->db;
    char header[MASK_HEADER] = {0};
    struct ato_stat st = {.struct_size = sizeof(st)};
    const bool is_known = !is_first && db->writable; /* another process knows the guard */
    const bool uses_copy = c->wants.prefer == ATO_PREFER_FILE && c->writable;
    const bool is_paired = db->view || database_is_paired(c);
    /* Before the map, which would pair it. */
    if (!is_known && !is_paired && !uses_copy && database_is_masked(c) && !database_has_manifest(c))
        return fault_of_copy(c);
    if (database_map(c) < 0)
        return database_fault_of_map(c, SQLITE_CANTOPEN);
    if (ato_settle(db->view) < 0)
        return fault_of_settle(c);
    if (mask_read(db->view, database_length(db), header) < 0 || ato_stat(db->view, &st) < 0)
        return fault_of_libato(SQLITE_IOERR_READ, "cannot read the header of", c->name);
    const bool is_masked = mask_is_on(header);
    const bool lacks_guard = is_masked && !st.guard_bytes && !is_known;
    /* With a log that was there it is no copy: a transaction that was killed has ended the guard. */
    if (lacks_guard && !st.slices_in_reflection && !(is_paired && st.format == ATO_FORMAT_LOG) &&
        !uses_copy)
        return fault_of_copy(c);
    if (lacks_guard && db->writable && mask_set_plain(db->view, header) < 0)
        return fault_of_libato(SQLITE_IOERR_LOCK, "cannot set the guard of", c->name);
    mask_uncover(header);
    /* A process was killed that was switching to WAL mode, or that used libato itself. */
    const bool completes = is_masked ? mask_is_wal(header) : st.slices_in_reflection > 0;
    db->guarded = is_masked && !completes;
    if (db->locks.words && is_first)
        locks_set(&db->locks, LOCKS_MASKED, db->guarded && !mask_is_lost(db->view));
    if (completes && is_first && db->writable && mask_take_off(db->view, db->fd) < 0)
        return fault_of_libato(SQLITE_IOERR_LOCK, "cannot make plain", c->name);
    if (db->locks.words)
        look_for_wal(c, header);
    return SQLITE_OK;
}

/* ---- begin ---- */

/* Implements locks.settle; of: the database. */
static enum locks_result settle(const void *of)
{
    const struct database *db = of;
    void *view = __atomic_load_n(&db->view, __ATOMIC_ACQUIRE);
    if (view)
        return ato_settle(view) == 0 ? LOCKS_OK : LOCKS_FAILED;
    return locks_say(&db->locks, LOCKS_WRITTEN) ? LOCKS_UNSETTLED : LOCKS_OK;
}

/* Maps a database that is written, or has been. With db->mapping. */
static int map_written(struct connection *c, bool is_first)
{
    locks_set(&c->db->locks, LOCKS_WRITTEN, true);
    return c->db->view ? SQLITE_OK : share_memory_map(c, is_first);
}

/* Begins to use the words, and maps the database. */
static int begin_in_memory(struct connection *c, bool is_first)
{
    struct database *db = c->db;
    char header[MASK_HEADER] = {0};
    int r = SQLITE_OK;
    record_database(db->device, db->inode, c->name);
    if (locks_attach(&db->locks, settle, db) != LOCKS_OK)
        return fault_of_libato(SQLITE_IOERR_LOCK, "cannot share the locks of", c->name);
    if (locks_say(&db->locks, LOCKS_WRITTEN) || database_needs_view(c))
        r = map_written(c, is_first);
    else { /* plain, and nobody has begun to write */
        (void)!pread(db->fd, header, MASK_HEADER, 0);
        look_for_wal(c, header);
        database_map_plain(c);
    }
    if (r == SQLITE_OK)
        r = result_of(c, locks_succeed(&db->locks));
    if (r == SQLITE_OK)
        __atomic_store_n(&db->memory, true, __ATOMIC_RELEASE); /* pairs with share_memory_begin() */
    else {
        (void)database_unmap(c, true);
        database_unmap_plain(db);
    }
    return r;
}

/* SQLITE_OK with db->memory, and then an open door: the database is shared in memory; without: by the VFS below, which plays a hot
 * journal back into a file that is complete. No other process comes or goes meanwhile. */
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
        const bool needs_view = database_needs_view(c);
        r = SQLITE_OK;
        if (!is_first || !is_hot(c)) {
            if (!is_first || db->is_busy || needs_view)
                r = begin_in_memory(c, is_first);
        } else if (
            needs_view) { /* made plain: a process left it, which was killed, or has unmapped it fast */
            r = share_memory_map(c, true);
            if (!database_unmap(c, true) && r == SQLITE_OK)
                r = SQLITE_IOERR_LOCK;
            if (r == SQLITE_OK && database_needs_view(c))
                r = SQLITE_BUSY;
        }
        if (!db->memory)
            locks_close_door(&db->locks, is_first);
    }
    (void)mask_lock(db->fd, F_UNLCK);
    return r;
}

bool share_memory_go_on(struct connection *c, int level)
{
    struct database *db = c->db;
    struct locks *l = &db->locks;
    bool is_first;
    if (!locks_open_door_within(l, db->fd, &is_first))
        return false;
    const bool may = locks_attach(l, settle, db) == LOCKS_OK && locks_succeed(l) == LOCKS_OK &&
                     (level == SQLITE_LOCK_NONE || ((c->line = locks_take_line(l)) >= 0 &&
                                                    locks_share(l, c->line, false, 0) == LOCKS_OK));
    if (!may) {
        c->line = -1;
        locks_close_door(l, is_first);
        return false;
    }
    locks_set(l, LOCKS_WRITTEN, true);
    locks_set(l, LOCKS_MASKED, !mask_is_lost(db->view));
    db->below--;
    __atomic_store_n(&db->memory, true, __ATOMIC_RELEASE); /* pairs with share_memory_begin() */
    return true;
}

int share_memory_begin(struct connection *c, bool joins)
{
    struct database *db = c->db;
    int r = SQLITE_OK;
    if (!__atomic_load_n(&db->memory, __ATOMIC_ACQUIRE)) {
        pthread_mutex_lock(&db->mapping);
        if (!db->memory && db->writable && !db->below) {
            /* If the file is not plain: waits for processes that begin or end, and for programs that read. */
            const bool must = database_needs_view(c);
            const uint64_t end = must ? locks_clock() + connection_wait(c) : 0;
            while ((must || joins) && (r = at_a_door(c)) == SQLITE_BUSY && locks_clock() < end)
                locks_nap();
        }
        db->is_busy = false;
        pthread_mutex_unlock(&db->mapping);
    }
    if (r == SQLITE_OK && db->memory)
        c->pending.view = __atomic_load_n(&db->view, __ATOMIC_ACQUIRE);
    return r;
}

/* ---- locks ---- */

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

bool share_memory_sleep(int microseconds)
{
    if (sleeps)
        *sleeps += (uint64_t)microseconds * 1000;
    return sleeps;
}

bool share_memory_is_going_to_write(const struct connection *c)
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

/* A connection of SQLite's has had several databases: only then does a commit look at all connections of the process. Atomic. */
static bool has_several;

void share_memory_set_opener(struct connection *c, const sqlite3 *opener)
{
    __atomic_store_n(&c->opener, opener, __ATOMIC_RELAXED);
    if (database_find(is_another, c))
        __atomic_store_n(&has_several, true, __ATOMIC_RELAXED);
}

static bool keeps_locks(const struct connection *c, const void *one)
{
    return (c == one || is_another(c, one)) && __atomic_load_n(&c->keeps_locks, __ATOMIC_RELAXED);
}

/* With locking_mode=exclusive nobody else reads or writes: SQLite keeps SHARED, and tells others of its first change only (the change
 * counter). The pragma comes to the main database, and holds for all. */
static bool is_alone(const struct connection *c)
{
    return __atomic_load_n(&connection_keepers, __ATOMIC_RELAXED) && database_find(keeps_locks, c);
}

/* RESERVED in advance, when its turn comes. Waits for lock_wait_ms; asks: and for as long as the busy handler goes on, unless the
 * statement may write to another database that is attached. */
static enum locks_result wait_for_turn(struct connection *c, bool asks)
{
    struct locks_place place = {0};
    uint64_t left = connection_wait(c), wait = left < SOON_NS ? left : SOON_NS;
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

/* Takes a snapshot. Returns whether there is one. */
static bool see(struct connection *c)
{
    c->snapshot = ato_snapshot_begin(c->pending.view);
    return c->snapshot;
}

static void give_back(struct connection *c);

/* SHARED. A connection that is going to write takes RESERVED with it, and waits for its turn before it reads anything: what it
 * has read would be out of date after a later wait, and the writer would wait for it. (With a write-ahead log SQLite needs no
 * RESERVED.) The statement may write to another database only, and read this one: SQLite asks for RESERVED next, or not at all; then
 * it is given back (share_memory_read_on()). */
static int share_line(struct connection *c)
{
    struct locks *l = &c->db->locks;
    uint64_t wait = connection_wait(c);
    /* With a write-ahead log others write to the file itself. */
    bool sees = c->pending.view && !locks_say(l, LOCKS_WAL) && !is_alone(c);
    if (c->line < 0 && (c->line = locks_take_line(l)) < 0)
        return fault(SQLITE_BUSY, "%s: too many connections are open to it", c->name);
    /* Statements are only looked at if the last transaction wrote, or another one writes now. */
    const bool wrote = c->wrote;
    const bool writes = c->writable && (wrote || locks_are_contended(l, c->line)) &&
                        !locks_say(l, LOCKS_WAL) && share_memory_is_going_to_write(c);
    c->wrote = false;
    enum locks_result r = writes ? wait_for_turn(c, wrote) : LOCKS_OK;
    if (r == LOCKS_FAILED)
        return result_of(c, r);
    c->in_advance = writes && r == LOCKS_OK;
    /* Before its turn came a writer may have died whose journal is on the disk: SQLite takes one for hot if nobody has RESERVED. */
    if (c->in_advance && locks_say(l, LOCKS_WAL))
        give_back(c);
    for (;;) {
        r = locks_share(l, c->line, sees, wait);
        /* There may be a write-ahead log by now. Where there can be no snapshot, writers wait for this connection. */
        if (r == LOCKS_OK && sees && (locks_say(l, LOCKS_WAL) || !(c->in_advance || see(c)))) {
            locks_unshare(l, c->line);
            sees = false;
        } else if (r != LOCKS_BUSY || !goes_on(c, &wait)) {
            break;
        }
    }
    int result = result_of(c, r);
    /* One that is going to write looks before it stages anything. */
    if (r == LOCKS_OK && !c->in_advance &&
        (result = database_check_mask(c->db, c->name)) != SQLITE_OK) {
        connection_unsee(c);
        locks_unshare(l, c->line);
    }
    if (result != SQLITE_OK)
        give_back(c);
    return result;
}

/* SHARED in memory. The first process that writes maps the database for writing, and then all others do. */
static int share(struct connection *c)
{
    struct database *db = c->db;
    const struct locks *l = &db->locks;
    for (;;) {
        int r = SQLITE_OK;
        if (locks_say(l, LOCKS_WRITTEN) && !__atomic_load_n(&db->view, __ATOMIC_ACQUIRE)) {
            pthread_mutex_lock(&db->mapping);
            r = map_written(c, false);
            pthread_mutex_unlock(&db->mapping);
        }
        c->pending.view = __atomic_load_n(&db->view, __ATOMIC_ACQUIRE);
        if (r == SQLITE_OK)
            r = share_line(c);
        if (r != SQLITE_OK)
            return r;
        c->pending.view = __atomic_load_n(&db->view, __ATOMIC_ACQUIRE);
        if (c->pending.view)
            return SQLITE_OK;
        if (!locks_say(l, LOCKS_WRITTEN)) {
            c->plain = locks_say(l, LOCKS_WAL) ? NULL : database_plain(c);
            if (c->plain || !database_needs_view(c))
                return SQLITE_OK;
        }
        give_back(c);
        locks_unshare(&db->locks, c->line);
        locks_set(&db->locks, LOCKS_WRITTEN, true);
    }
}

/* Of two threads one gets what the connection has in advance. */
static bool take_advance(struct connection *c)
{
    return __atomic_load_n(&c->in_advance, __ATOMIC_RELAXED) &&
           __atomic_exchange_n(&c->in_advance, false, __ATOMIC_ACQ_REL);
}

static void give_back(struct connection *c)
{
    if (take_advance(c))
        locks_unreserve(&c->db->locks, c->line);
}

/* Takes a snapshot of what is newest, which this connection may have committed, while nobody else writes. */
static bool see_newest(struct connection *c)
{
    connection_unsee(c);
    c->snapshot = ato_snapshot_newest(c->pending.view);
    return c->snapshot;
}

void share_memory_read_on(struct connection *c)
{
    struct locks *l = &c->db->locks;
    if (!take_advance(c))
        return;
    /* It reads on from what it has read: by a snapshot, or else it keeps others from writing. */
    if (c->pending.view && !locks_say(l, LOCKS_WAL) && !is_alone(c))
        (void)locks_share(l, c->line, see_newest(c), 0);
    pending_note(&c->pending);
    locks_unreserve(l, c->line);
    (void)pending_await(&c->pending);
}

/* RESERVED. If it is not free the connection has waited for it before (share()), or has read by then: the one that has it may
 * have to wait for this one to end, so that waiting could last for ever. */
static int reserve(struct connection *c)
{
    struct locks *l = &c->db->locks;
    c->wrote = true;
    const bool had = take_advance(c);
    const enum locks_result r = had ? LOCKS_OK : locks_try_reserve(l, c->line);
    if (r != LOCKS_OK)
        return result_of(c, r);
    const bool is_old = !had && c->snapshot && ato_snapshot_is_newest(c->snapshot) != 1;
    /* Others have committed since it began. As in WAL mode: it ends the transaction, or reads on. The next snapshot has what they have
     * committed, though they may have been killed before they could wait for that. */
    if (is_old) {
        locks_unreserve(l, c->line);
        locks_note_refusal(l);
    }
    /* Of several databases one must not be durable before what its change follows from in another one is. */
    if (is_old || __atomic_load_n(&has_several, __ATOMIC_RELAXED)) {
        c->pending.owes = true;
        if (pending_await(&c->pending) < 0) {
            locks_unreserve(l, c->line);
            return fault_of_libato(SQLITE_IOERR_LOCK, "cannot write to", c->name);
        }
    }
    return is_old ? SQLITE_BUSY_SNAPSHOT : SQLITE_OK;
}

/* EXCLUSIVE. Without RESERVED it is to close a write-ahead log, or to begin one: SQLite itself does not wait then. All connections
 * of that database have SHARED for as long as they are open. */
static int exclude(struct connection *c, bool all)
{
    const bool waits = c->lock >= SQLITE_LOCK_RESERVED;
    uint64_t wait = waits ? connection_wait(c) : 0;
    enum locks_result r;
    (void)take_advance(c);
    do
        r = locks_exclude(&c->db->locks, c->line, all, wait);
    while (r == LOCKS_BUSY && waits && goes_on(c, &wait));
    c->excludes_all = all && r == LOCKS_OK;
    return result_of(c, r);
}

static bool is_another_writer(const struct connection *c, const void *one)
{
    return is_another(c, one) && connection_writes(c);
}

/* Does the connection execute a statement that switches the journal mode? */
static bool switches_mode(const struct connection *c)
{
    sqlite3 *user = c->user ? *c->user : NULL;
    sqlite3_stmt *s = NULL;
    while (user && (s = sqlite3_next_stmt(user, s)) != NULL)
        if (sqlite3_stmt_busy(s) && sqlite3_strlike("%journal_mode%", sqlite3_sql(s), 0) == 0)
            return true;
    return !user;
}

bool share_memory_writes_several(const struct connection *c)
{
    return __atomic_load_n(&has_several, __ATOMIC_RELAXED) && database_find(is_another_writer, c);
}

/* Without RESERVED what follows is not staged; with several databases their journals may go to the disk (data_go_below()); and if it
 * switches to a write-ahead log an error at the commit (data_write()) would be too late for SQLite, which asks for EXCLUSIVE then before it
 * opens a journal. */
static bool writes_file(const struct connection *c)
{
    return c->lock < SQLITE_LOCK_RESERVED || is_alone(c) || share_memory_writes_several(c) ||
           (c->rollback == JOURNAL_NONE && switches_mode(c));
}

int share_memory_exclude_all(struct connection *c)
{
    return !c->db->memory || c->lock < SQLITE_LOCK_EXCLUSIVE || c->excludes_all ? SQLITE_OK
                                                                                : exclude(c, true);
}

void share_memory_unlock(struct connection *c, int level)
{
    struct locks *l = &c->db->locks;
    (void)take_advance(c);
    c->excludes_all = false;
    if (level == SQLITE_LOCK_NONE) {
        connection_unsee(c);
        locks_unshare(l, c->line);
    } else { /* before others commit: it reads on, and sees its own commit */
        const bool sees = c->pending.view && !locks_say(l, LOCKS_WAL) && !is_alone(c);
        if (!sees)
            connection_unsee(c);
        (void)locks_share(l, c->line, sees && see_newest(c), 0);
    }
    locks_unreserve(l, c->line);
}

int share_memory_lock(struct connection *c, int level)
{
    int r = level == SQLITE_LOCK_SHARED     ? share(c)
            : level == SQLITE_LOCK_RESERVED ? reserve(c)
                                            : exclude(c, writes_file(c));
    if (r == SQLITE_OK && locks_are_lost(&c->db->locks)) {
        if (level == SQLITE_LOCK_SHARED)
            share_memory_unlock(c, SQLITE_LOCK_NONE);
        r = fault(
            SQLITE_IOERR_LOCK,
            "%s: another program made the memory of its locks shorter, in /dev/shm: close it in "
            "all processes, then open it again",
            c->name);
    }
    return r;
}
