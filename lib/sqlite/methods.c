/* SPDX-License-Identifier: BSD-3-Clause */
#include "methods.h"

#include "connection.h"
#include "data.h"
#include "database.h"
#include "direct.h"
#include "fault.h"
#include "fetch.h"
#include "length.h"
#include "parameters.h"
#include "pragma.h"
#include "super_journal.h"
#include "transaction.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static struct connection *of(sqlite3_file *file)
{
    return ((struct connection_file *)file)->connection;
}

/* Begins each call that uses the view. The mutex is nearly always free. */
static struct connection *enter(sqlite3_file *file)
{
    struct connection *c = of(file);
    pthread_mutex_lock(&c->in_call);
    c->error = errno;
    return c;
}

/* Restores errno after a success. The VFS below may look at errno after a failure of its own that did not set it,
 * and would report an ENXIO of libato's (from SEEK_DATA) as a damaged file system. */
static int leave(struct connection *c, int result)
{
    if (result == SQLITE_OK)
        errno = c->error;
    pthread_mutex_unlock(&c->in_call);
    return result;
}

/* ---- locks ---- */

/* Returns the error of a write to a database for which no reflection can be made, but which can be read. */
static int why_only_read(int error)
{
    switch (error) {
    case EACCES:
    case EPERM:
    case EROFS:
        return SQLITE_READONLY_DIRECTORY;
    case ENOSPC:
    case EDQUOT:
        return SQLITE_FULL;
    default:
        return SQLITE_CANTOPEN;
    }
}

/* To be called with a lock of this level, before it is noted. A connection that cannot begin to stage gets the error with
 * RESERVED, where SQLITE_BUSY makes SQLite try again. */
static int settle(struct connection *c, int level)
{
    /* Not EXCLUSIVE after SHARED: a hot journal is played back, through the VFS below, for which no view is needed. */
    const bool reserves = level >= SQLITE_LOCK_RESERVED && c->lock < SQLITE_LOCK_RESERVED &&
                          !c->wants.journal_file &&
                          (level == SQLITE_LOCK_RESERVED || c->pending.view);
    int r = c->lock < SQLITE_LOCK_SHARED ? direct_settle(c) : SQLITE_OK;
    if (r == SQLITE_OK && reserves && !c->pending.view) {
        if (database_map(c, TO_WRITE) == 0)
            r = direct_settle(c);
        else
            r = fault_of_libato(why_only_read(errno), "cannot map", c->name);
    }
    if (r == SQLITE_OK && reserves && c->direct)
        r = length_require(c, SQLITE_BUSY);
    if (r != SQLITE_OK)
        (void)c->real->pMethods->xUnlock(c->real, c->lock);
    return r;
}

static int connection_lock(sqlite3_file *file, int level)
{
    struct connection *c = of(file);
    if (level >= SQLITE_LOCK_RESERVED && !c->writable)
        return SQLITE_READONLY;
    int r = c->real->pMethods->xLock(c->real, level);
    if (r == SQLITE_OK)
        r = leave(enter(file), settle(c, level));
    if (r == SQLITE_OK && level > c->lock)
        __atomic_store_n(&c->lock, level, __ATOMIC_RELAXED);
    return r;
}

static int connection_unlock(sqlite3_file *file, int level)
{
    struct connection *c = enter(file);
    c->checkpointed = false;
    /* Before other connections may write: their transactions would wait for the pages of this one. */
    if (level < SQLITE_LOCK_RESERVED && c->lock >= SQLITE_LOCK_RESERVED) {
        transaction_abandon(c);
        direct_leave(c);
        /* What was written through made the file longer or shorter: another process that stages needs a view of that length. */
        if (c->direct)
            length_find(c);
    }
    /* With journal_mode=truncate or persist SQLite keeps the journal open, and writes to it, until it gives its last lock back. */
    if (level == SQLITE_LOCK_NONE)
        c->plays_back = c->journaled = false;
    /* Before another connection has the lock: its journal must not be taken for this connection's. */
    if (level < c->lock)
        __atomic_store_n(&c->lock, level, __ATOMIC_RELAXED);
    return leave(c, c->real->pMethods->xUnlock(c->real, level));
}

static int connection_reserved(sqlite3_file *file, int *reserved)
{
    struct connection *c = of(file);
    return c->real->pMethods->xCheckReservedLock(c->real, reserved);
}

/* ---- what SQLite has to say, and to ask ---- */

static int control(struct connection *c, int what, void *arg)
{
    int r;
    switch (what) {
    case SQLITE_FCNTL_SYNC:
        return transaction_sync(c, arg);
    case SQLITE_FCNTL_COMMIT_PHASETWO:
        return transaction_end(c);
    case SQLITE_FCNTL_CKPT_START:
    case SQLITE_FCNTL_CKPT_DONE:
        c->checkpoint = what == SQLITE_FCNTL_CKPT_START;
        c->checkpointed = !c->checkpoint;
        return SQLITE_OK;
    case SQLITE_FCNTL_SIZE_HINT:
        return data_expect(c, *(sqlite3_int64 *)arg);
    case SQLITE_FCNTL_CHUNK_SIZE:
        c->chunk = *(int *)arg > 0 ? *(int *)arg : 0;
        return SQLITE_OK;
    case SQLITE_FCNTL_MMAP_SIZE:
        return fetch_limit(c, arg);
    case SQLITE_FCNTL_PRAGMA:
        r = pragma(c, arg);
        return r == SQLITE_NOTFOUND ? c->real->pMethods->xFileControl(c->real, what, arg) : r;
    default:
        r = c->real->pMethods->xFileControl(c->real, what, arg);
        if (r == SQLITE_OK && what == SQLITE_FCNTL_VFSNAME)
            *(char **)arg = sqlite3_mprintf("ato/%z", *(char **)arg);
        return r;
    }
}

static int connection_sector_size(sqlite3_file *file)
{
    struct connection *c = of(file);
    return c->real->pMethods->xSectorSize(c->real);
}

/* Not SAFE_APPEND and SEQUENTIAL, which save syncs of a journal: a journal in memory has no syncs. Not BATCH_ATOMIC of a VFS
 * below: batches would not be staged. */
static int connection_characteristics(sqlite3_file *file)
{
    struct connection *c = of(file);
    return c->real->pMethods->xDeviceCharacteristics(c->real) & ~SQLITE_IOCAP_BATCH_ATOMIC;
}

/* ---- the shared memory of WAL mode ---- */

static int connection_shm_map(sqlite3_file *file, int region, int n, int extend, void volatile **at)
{
    struct connection *c = of(file);
    return c->real->pMethods->xShmMap(c->real, region, n, extend, at);
}

static int connection_shm_lock(sqlite3_file *file, int offset, int n, int flags)
{
    struct connection *c = of(file);
    return c->real->pMethods->xShmLock(c->real, offset, n, flags);
}

static void connection_shm_barrier(sqlite3_file *file)
{
    struct connection *c = of(file);
    c->real->pMethods->xShmBarrier(c->real);
}

static int connection_shm_unmap(sqlite3_file *file, int remove)
{
    struct connection *c = of(file);
    return c->real->pMethods->xShmUnmap(c->real, remove);
}

/* ---- open and close ---- */

static int connection_close(sqlite3_file *file)
{
    struct connection *c = enter(file);
    transaction_abandon(c);
    length_find(c);
    const int r = leave(c, c->real->pMethods->xClose(c->real));
    database_close(c->db, c, c->name);
    free(c);
    return r;
}

/* ---- as a file ---- */

/* SQLite reads its change counter when it begins a transaction. A checkpoint does not change the counter: until the next
 * transaction pages are deployed one by one after it. */
static void look_at_counter(struct connection *c, const void *bytes, int n, sqlite3_int64 offset)
{
    enum { COUNTER_AT = 24 };
    if (offset != COUNTER_AT || n != (int)sizeof(c->counter) ||
        memcmp(c->counter, bytes, sizeof(c->counter)) == 0)
        return;
    memcpy(c->counter, bytes, sizeof(c->counter));
    memset(c->neighbours, 0, sizeof(c->neighbours));
}

static int connection_read(sqlite3_file *file, void *to, int n, sqlite3_int64 offset)
{
    struct connection *c = enter(file);
    /* SQLite reads the header before it has a lock; other programs may have cut the file. */
    if (c->lock == SQLITE_LOCK_NONE && !c->pending.tx && !c->direct)
        length_look(c);
    const int r = data_read(c, to, n, offset);
    if (r == SQLITE_OK)
        look_at_counter(c, to, n, offset);
    return leave(c, r);
}

static int connection_write(sqlite3_file *file, const void *from, int n, sqlite3_int64 offset)
{
    struct connection *c = enter(file);
    return leave(c, data_write(c, from, n, offset));
}

static int connection_truncate(sqlite3_file *file, sqlite3_int64 size)
{
    struct connection *c = enter(file);
    return leave(c, data_resize(c, size));
}

/* A commit is durable as far as the domain reaches. In a domain that does not reach the medium the VFS below syncs the file as
 * well. */
static int connection_sync(sqlite3_file *file, int flags)
{
    struct connection *c = enter(file);
    int r = super_holds(c) ? SQLITE_OK : transaction_commit(c, SQLITE_IOERR_FSYNC);
    if (r == SQLITE_OK && (c->direct || c->db->domain == ATO_DOMAIN_PROCESS))
        r = c->real->pMethods->xSync(c->real, flags);
    return leave(c, r);
}

/* SQLite asks at the beginning of each transaction. */
static int connection_size(sqlite3_file *file, sqlite3_int64 *size)
{
    struct connection *c = enter(file);
    if (!c->pending.tx && !c->direct)
        length_find(c);
    return leave(c, length_get(c, size));
}

static int connection_control(sqlite3_file *file, int what, void *arg)
{
    struct connection *c = enter(file);
    return leave(c, control(c, what, arg));
}

static int connection_fetch(sqlite3_file *file, sqlite3_int64 offset, int n, void **page)
{
    struct connection *c = enter(file);
    return leave(c, fetch_page(c, offset, n, page));
}

/* `page` is NULL when SQLite wants the mapping to be dropped, and has no page in use. */
static int connection_unfetch(sqlite3_file *file, sqlite3_int64 offset, void *page)
{
    struct connection *c = enter(file);
    const char *view = c->pending.view;
    const bool is_ours = view && (char *)page >= view && (char *)page < view + c->reach;
    int r = SQLITE_OK;
    if (is_ours)
        c->fetched--;
    else if (direct_maps_below(c))
        r = c->real->pMethods->xUnfetch(c->real, offset, page);
    return leave(c, r);
}

/* All but those of the shared memory of WAL mode. */
#define METHODS_BUT_SHM                                                                            \
    .iVersion = 3, .xClose = connection_close, .xRead = connection_read,                           \
    .xWrite = connection_write, .xTruncate = connection_truncate, .xSync = connection_sync,        \
    .xFileSize = connection_size, .xLock = connection_lock, .xUnlock = connection_unlock,          \
    .xCheckReservedLock = connection_reserved, .xFileControl = connection_control,                 \
    .xSectorSize = connection_sector_size, .xDeviceCharacteristics = connection_characteristics,   \
    .xFetch = connection_fetch, .xUnfetch = connection_unfetch

static const sqlite3_io_methods methods = {
    METHODS_BUT_SHM,
    .xShmMap = connection_shm_map,
    .xShmLock = connection_shm_lock,
    .xShmBarrier = connection_shm_barrier,
    .xShmUnmap = connection_shm_unmap,
};

/* For a VFS below without shared memory (unix-none): SQLite calls the methods of shared memory if they are set. */
static const sqlite3_io_methods methods_without_shm = {METHODS_BUT_SHM};

int methods_open(struct connection_file *f, sqlite3_vfs *below, const char *name, int flags,
                 int *out_flags)
{
    struct connection *c = calloc(1, sizeof(*c) + (size_t)below->szOsFile);
    int opened = flags;
    if (!c)
        return SQLITE_NOMEM;
    *c = (struct connection){.real = (sqlite3_file *)(c + 1),
                             .name = name,
                             .in_call = PTHREAD_MUTEX_INITIALIZER,
                             .looked_at = -1};
    int r = below->xOpen(below, name, c->real, flags, &opened);
    if (r == SQLITE_OK) {
        c->writable = !(opened & SQLITE_OPEN_READONLY);
        r = parameters_read(&c->wants, c->name);
        if (r == SQLITE_OK)
            r = database_open(c);
        if (r != SQLITE_OK)
            (void)c->real->pMethods->xClose(c->real);
    }
    if (r != SQLITE_OK) {
        free(c);
        return r;
    }
    if (out_flags)
        *out_flags = opened;
    f->connection = c;
    f->as_file.pMethods = c->real->pMethods->iVersion >= 2 && c->real->pMethods->xShmMap
                              ? &methods
                              : &methods_without_shm;
    return SQLITE_OK;
}
