/* SPDX-License-Identifier: BSD-3-Clause */
#include "share.h"

#include "connection.h"
#include "database.h"
#include "fault.h"
#include "locks.h"
#include "mask.h"
#include "share_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* What this thread locked last. The addresses are only compared, unless no connection has been closed since. */
static _Thread_local struct {
    struct connection *c;
    const sqlite3 *opener;
    const char *journal, *wal;
    uint64_t closed; /* `closed` at that time */
} last;

/* A process that begins so many transactions by the VFS below in less than this time shares the database in memory from then on: their
 * locks are some twenty system calls. */
enum { BUSY_BEGINS = 256, BUSY_NS = 50 * 1000 * 1000 };

/* Connections that were closed in this process. */
static uint64_t closed;

/* ---- locks of the VFS below ---- */

/* SHARED, with db->mapping. SQLITE_BUSY: the database is shared in memory, or has to be; or another program writes. */
static int share_below(struct connection *c)
{
    struct database *db = c->db;
    int r = db->memory ? SQLITE_BUSY : c->below->xLock(c->file, SQLITE_LOCK_SHARED);
    if (r != SQLITE_OK)
        return r;
    if (!db->view && database_needs_view(c)) {
        r = SQLITE_BUSY;
        if (!db->writable)
            r = share_memory_map(c, true);
    }
    if (r != SQLITE_OK) {
        if (!db->below)
            (void)database_unmap(c, false);
        (void)c->below->xUnlock(c->file, SQLITE_LOCK_NONE);
        return r;
    }
    if (!db->writable)
        c->pending.view = db->view;
    db->below++;
    /* Is it time to share the database in memory? */
    if (c->writable && ++db->begun >= BUSY_BEGINS) {
        const uint64_t time = locks_clock();
        __atomic_store_n(&db->is_busy, time - db->begun_at < BUSY_NS, __ATOMIC_RELAXED);
        db->begun = 0;
        db->begun_at = time;
    }
    return SQLITE_OK;
}

static int unlock_below(struct connection *c, int before, int level)
{
    struct database *db = c->db;
    char header[MASK_HEADER];
    int below = level;
    pthread_mutex_lock(&db->mapping);
    /* A transaction has mapped the file. Other processes may read it when EXCLUSIVE is given back: by then the database is shared in
     * memory, or the file is complete and plain. */
    if (c->pending.view && db->writable && level < SQLITE_LOCK_RESERVED) {
        if (before == SQLITE_LOCK_EXCLUSIVE &&
            mask_read(db->view, database_length(db), header) == 0 && mask_is_on(header) &&
            share_memory_go_on(c, level))
            below = SQLITE_LOCK_NONE;
        else {
            (void)database_unmap(c, true);
            (void)mask_lock(db->fd, F_UNLCK); /* taken if the locks of the VFS below were lost */
        }
    }
    const int r = c->below->xUnlock(c->file, below);
    if (below == SQLITE_LOCK_NONE && !db->memory) {
        if (--db->below == 0)
            (void)database_unmap(c, false);
        c->pending.view = NULL;
    }
    pthread_mutex_unlock(&db->mapping);
    return r;
}

/* SHARED. Waits, as long as for a lock in memory, for a process that writes its first transaction: then the database is shared in
 * memory. */
static int share(struct connection *c)
{
    uint64_t end = 0;
    int is_reserved = 0;
    if (__atomic_load_n(&c->db->is_busy, __ATOMIC_RELAXED))
        (void)share_memory_begin(c, true);
    for (;;) {
        int r = SQLITE_BUSY;
        if (!__atomic_load_n(&c->db->memory, __ATOMIC_ACQUIRE)) {
            pthread_mutex_lock(&c->db->mapping);
            r = share_below(c);
            pthread_mutex_unlock(&c->db->mapping);
        }
        if (r == SQLITE_BUSY) { /* it may be shared in memory, or has to be */
            r = share_memory_begin(c, true);
            if (r == SQLITE_OK)
                r = c->db->memory ? share_memory_lock(c, SQLITE_LOCK_SHARED) : SQLITE_BUSY;
            if (c->db->memory)
                return r;
        }
        const uint64_t now = locks_clock(); /* not in memory: it takes as long as the rest */
        if (!end)
            end = now + connection_wait(c);
        const bool is_over = now >= end;
        /* It has SHARED, is going to write, and would get RESERVED in vain. */
        if (r == SQLITE_OK && !is_over && c->writable && share_memory_is_going_to_write(c) &&
            c->below->xCheckReservedLock(c->file, &is_reserved) == SQLITE_OK && is_reserved) {
            r = unlock_below(c, SQLITE_LOCK_SHARED, SQLITE_LOCK_NONE);
            r = r == SQLITE_OK ? SQLITE_BUSY : r;
        }
        if (r != SQLITE_BUSY || is_over)
            return r;
        locks_nap();
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
    return c->lock >= SQLITE_LOCK_RESERVED && (!c->db->memory || share_had_wal(c)) &&
           stat(c->wal, &st) == 0 && st.st_size > 0;
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
        share_memory_read_on(last.c);
    r = share_check(c, SQLITE_IOERR_LOCK);
    if (r != SQLITE_OK)
        return r;
    if (level >= SQLITE_LOCK_RESERVED && !c->writable)
        return SQLITE_READONLY;
    if (level == SQLITE_LOCK_RESERVED && !c->pending.view)
        r = database_check_folder(c);
    if (r != SQLITE_OK)
        return r;
    const bool waits = c->lock >= SQLITE_LOCK_RESERVED; /* for readers to end, below as in memory */
    const uint64_t end = waits && !c->db->memory ? locks_clock() + connection_wait(c) : 0;
    if (level == SQLITE_LOCK_SHARED)
        r = share(c);
    else if (c->db->memory)
        r = share_memory_lock(c, level);
    else
        while ((r = c->below->xLock(c->file, level)) == SQLITE_BUSY && locks_clock() < end)
            locks_nap();
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
    if (!c->db->memory)
        return unlock_below(c, before, level);
    share_memory_unlock(c, level);
    return SQLITE_OK;
}

int share_look(struct connection *c, int *is_reserved)
{
    const int r = share_check(c, SQLITE_IOERR_CHECKRESERVEDLOCK);
    if (r != SQLITE_OK)
        return r;
    /* SQLite asks whether the rollback journal that it has found is a living process's. In memory it never is: that puts it on the
     * disk only where nobody else has SHARED. The connection that has RESERVED here may be about to play that journal back, too. */
    *is_reserved = 0;
    return c->db->memory ? SQLITE_OK : c->below->xCheckReservedLock(c->file, is_reserved);
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
    return is_lost(c) || locks_say(&c->db->locks, LOCKS_WAL);
}

void share_forget_wal(struct connection *c)
{
    if (c->db->memory && locks_say(&c->db->locks, LOCKS_WAL) && access(c->wal, F_OK) < 0 &&
        errno == ENOENT && access(c->journal, F_OK) < 0 && errno == ENOENT)
        locks_set(&c->db->locks, LOCKS_WAL, false);
}
