/* SPDX-License-Identifier: BSD-3-Clause */
#include "data.h"

#include "connection.h"
#include "database.h"
#include "fault.h"
#include "mask.h"
#include "share.h"
#include "share_memory.h"

#include "ato_engine.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Reports a failure of libato. */
static int failed(const struct connection *c, int code, const char *what)
{
    return c->db->fd < 0 ? fault_of_fork(code, c->name) : fault_of_libato(code, what, c->name);
}

/* A connection that has RESERVED reads what is newest: nobody else commits. */
static bool sees_snapshot(const struct connection *c)
{
    return c->snapshot && !connection_writes(c);
}

/* Does the connection of SQLite's write, to any database? Then SQLite rolls all back after SQLITE_IOERR: half a statement would stay else. */
static bool is_writing(const struct connection *c)
{
    return !c->user || !*c->user || sqlite3_txn_state(*c->user, NULL) == SQLITE_TXN_WRITE;
}

/* ---- length ---- */

int data_length(struct connection *c, sqlite3_int64 *size)
{
    const struct database *db = c->db;
    if (c->plain) {
        *size = (sqlite3_int64)db->plain_length;
        return SQLITE_OK;
    }
    /* A VFS above may ask for the length, and read, when it opens the file, before SQLite has any lock; and SQLite gets none with
     * immutable=1. Then the file is mapped if it is not complete. */
    if (!c->pending.view && c->lock == SQLITE_LOCK_NONE && db->fd >= 0 && database_needs_view(c)) {
        const int r = share_memory_begin(c, false);
        if (r != SQLITE_OK)
            return r;
        if (!c->pending.view)
            return fault(
                SQLITE_CANTOPEN,
                "%s: parts of the content are in its reflection, which this connection does not "
                "read: open it without immutable=1, or make it plain by 'ato deploy'",
                c->name);
    }
    if (!c->pending.view)
        return c->below->xFileSize(c->file, size);
    *size = c->pending.tx      ? c->pending.size
            : sees_snapshot(c) ? (sqlite3_int64)ato_snapshot_seek(c->snapshot, 0, SEEK_END)
                               : (sqlite3_int64)ato_size(c->pending.view);
    if (*size < 0)
        return failed(c, SQLITE_IOERR_FSTAT, "cannot find the size of");
    /* libato gives the end of the mapping as the size of a longer file. */
    if (*size >= (sqlite3_int64)db->reach && database_length(db) > *size)
        return fault(SQLITE_IOERR_FSTAT,
                     "another process made %s longer than this process has it mapped: close all "
                     "its connections here, then open it again",
                     c->name);
    return SQLITE_OK;
}

/* ---- reads and writes ---- */

/* Returns whether writes are part of a transaction of libato. Writes without RESERVED are those of a checkpoint, for which the
 * WAL has the pages until all are written. With a journal on the disk SQLite itself can roll them back. Neither needs to be
 * staged. */
static bool stages(const struct connection *c)
{
    return !c->checkpoint && c->rollback != JOURNAL_ON_DISK && connection_writes(c);
}

/* Reads what is staged too. A transaction of libato stores what it has queued before it reads, and that may go to the file itself. */
static int read_staged(struct connection *c, void *to, int n, sqlite3_int64 offset)
{
    const int r = database_check_mask_again(c);
    return r != SQLITE_OK || pending_read(&c->pending, to, n, offset) == 0
               ? r
               : failed(c, SQLITE_IOERR_READ, "cannot read");
}

/* A writer goes on from what is newest. */
static bool read_mapped(struct connection *c, void *to, const char *from, size_t n)
{
    const bool writes = connection_writes(c) || __atomic_load_n(&c->in_advance, __ATOMIC_RELAXED);
    c->pending.owes |= writes;
    return writes ? ato_read_newest(to, from, n) : ato_memcpy(to, from, n);
}

static int read_bytes(struct connection *c, void *to, int n, sqlite3_int64 offset)
{
    if (!c->plain && !c->pending.view)
        return c->below->xRead(c->file, to, n, offset);
    const char *view = c->plain ? c->plain : c->pending.view;
    const bool sees = sees_snapshot(c);
    if (__atomic_load_n(&c->db->overwritten, __ATOMIC_RELAXED)) /* it has been told */
        return SQLITE_IOERR_DATA;
    sqlite3_int64 size;
    int r = data_length(c, &size);
    if (r != SQLITE_OK)
        return r;
    const sqlite3_int64 there = size - offset;
    const int some = there >= n ? n : there > 0 ? (int)there : 0;
    if (some && c->pending.tx)
        r = read_staged(c, to, some, offset);
    else if (some && (sees ? ato_snapshot_read(c->snapshot, to, offset, (size_t)some) != some
                           : !read_mapped(c, to, view + offset, (size_t)some)))
        r = failed(
            c, sees && errno == ESTALE && !is_writing(c) ? SQLITE_BUSY_SNAPSHOT : SQLITE_IOERR_READ,
            "cannot read");
    if (r != SQLITE_OK)
        return r;
    if (some == n)
        return SQLITE_OK;
    memset((char *)to + some, 0, (size_t)(n - some));
    return SQLITE_IOERR_SHORT_READ;
}

/* A masked header that was not read through the mapping may be out of date. SQLite refuses it; but before it has a lock it looks only
 * for the page size there. */
static void uncover(struct connection *c, void *header)
{
    if (c->pending.view)
        mask_uncover(header);
    else
        c->counter = mask_counter(header);
}

/*
 * SQLite compares these bytes, which begin with the change counter, with those that it has read before: if they differ its cache is out
 * of date. But commits to a write-ahead log do not change them. A connection that leaves WAL mode, when all others have closed the
 * database, ends a checkpoint that writes what they have committed, and would go on with an older cache: SQLite 3.40 then loses commits,
 * with any VFS. So after a checkpoint it gets other bytes, once.
 */
enum { CACHE_KEY = 24, CACHE_KEY_BYTES = 16 };

/* Gives SQLite the plain header, also where a read is short because SQLite expects larger pages than the file has. */
int data_read(struct connection *c, void *to, int n, sqlite3_int64 offset)
{
    char header[MASK_HEADER];
    const bool has_header = offset == 0 && n >= MASK_HEADER;
    int some = 0, r = SQLITE_IOERR_SHORT_READ;
    if (offset >= LEAST_PAGE)
        share_memory_read_on(c);
    /* A part of what may be masked, or may get a mask by a connection that has RESERVED: the change counter, with which each
     * transaction begins, comes with the bytes that tell whether it is masked. A file that is shorter than a header has no mask. */
    if (offset < MASK_HEADER && !has_header)
        r = read_bytes(c, header, MASK_HEADER, 0);
    if (r == SQLITE_OK) {
        const int left = MASK_HEADER - (int)offset;
        some = n < left ? n : left;
        uncover(c, header);
    } else if (r != SQLITE_IOERR_SHORT_READ) {
        return r;
    }
    if (!some || some != n)
        r = read_bytes(c, to, n, offset);
    if (r != SQLITE_OK && r != SQLITE_IOERR_SHORT_READ)
        return r;
    if (has_header)
        uncover(c, to);
    else if (some)
        memcpy(to, header + offset, (size_t)some);
    if (offset == CACHE_KEY && n == CACHE_KEY_BYTES && c->cache_is_old) {
        *(char *)to ^= 0x55;
        c->cache_is_old = false;
    }
    return r;
}

/* A process loses SQLite's locks when it closes any descriptor of the file. */
static int fault_of_lost_locks(const struct connection *c)
{
    return fault(
        SQLITE_IOERR_LOCK,
        "%s: the transaction has lost its locks, since this process closed a descriptor of the "
        "file that it had opened itself: roll it back, and begin again",
        c->name);
}

/* Maps the database for writing, unless it is: before a change that is staged, and before any other in memory, where others may have it
 * mapped. */
static int map_to_write(struct connection *c, int code)
{
    struct database *db = c->db;
    int r = share_check(c, code);
    if (r != SQLITE_OK || c->pending.view)
        return r;
    if (db->memory)
        locks_set(&db->locks, LOCKS_WRITTEN, true);
    pthread_mutex_lock(&db->mapping);
    if (database_map(c) == 0)
        c->pending.view = db->view;
    pthread_mutex_unlock(&db->mapping);
    if (c->pending.view) {
        c->plain = NULL;
        return SQLITE_OK;
    }
    r = database_fault_of_map(c, code);
    if (db->memory && !database_needs_view(c)) /* nobody has begun to write */
        locks_set(&db->locks, LOCKS_WRITTEN, false);
    return r;
}

/* Another process has changed the database since this connection got SHARED of the VFS below. */
static int check_unchanged(const struct connection *c)
{
    const struct database *db = c->db;
    char header[MASK_HEADER];
    return !db->memory && !c->pending.view && c->counter >= 0 &&
                   pread(db->fd, header, MASK_HEADER, 0) == MASK_HEADER &&
                   mask_counter(header) != c->counter
               ? fault_of_lost_locks(c)
               : SQLITE_OK;
}

int data_delete_left_journal(const struct connection *c)
{
    int is_left = 0;
    int r = c->db->memory || c->rollback != JOURNAL_IN_MEMORY
                ? SQLITE_OK
                : c->vfs->xAccess(c->vfs, c->journal, SQLITE_ACCESS_EXISTS, &is_left);
    if (r == SQLITE_OK && is_left)
        r = c->vfs->xDelete(c->vfs, c->journal, 1);
    return r == SQLITE_IOERR_DELETE_NOENT ? SQLITE_OK : r;
}

/* To be called before a change that is staged, with EXCLUSIVE. The first one of a transaction puts the mask on. */
static int begin_to_stage(struct connection *c, int code)
{
    struct database *db = c->db;
    /* What is staged may go to the file itself, which may be another program's by now. */
    if (c->pending.tx)
        return database_check_mask_again(c);
    c->commits = false;
    c->ends_at = 0;
    c->complete = false;
    /* It kept EXCLUSIVE over a commit: SQLite does not tell others of what follows (is_alone()). */
    int r = c->committed ? share_memory_exclude_all(c) : SQLITE_OK;
    if (r == SQLITE_OK)
        r = check_unchanged(c);
    if (r == SQLITE_OK)
        r = data_delete_left_journal(c);
    if (r == SQLITE_OK)
        r = map_to_write(c, code);
    if (r == SQLITE_OK)
        r = database_check_mask_again(c);
    if (r != SQLITE_OK)
        return r;
    r = mask_put_on(c->pending.view);
    if (db->guarded != (r == 0)) /* others read the line that it lies in */
        db->guarded = r == 0;
    if (r == 0 && db->memory && !locks_say(&db->locks, LOCKS_MASKED))
        locks_set(&db->locks, LOCKS_MASKED, !mask_is_lost(c->pending.view));
    /* Of a commit to a new file that failed, or to a file that is no database any more. */
    if (r > 0)
        r = ato_set_guard(c->pending.view, 0, NULL, 0);
    return r >= 0 ? SQLITE_OK : failed(c, code, "cannot begin to write to");
}

/* Nobody stages meanwhile, for that needs EXCLUSIVE, and this connection has SHARED. */
static int take_mask_off(struct connection *c)
{
    if (!c->pending.view)
        return 0;
    c->db->guarded = false;
    if (c->db->memory)
        locks_set(&c->db->locks, LOCKS_MASKED, false);
    return mask_take_off(c->pending.view, c->db->fd);
}

int data_begin_below(struct connection *c, int code)
{
    const int r = c->db->memory ? map_to_write(c, code) : SQLITE_OK;
    if (r != SQLITE_OK)
        return r;
    c->wrote_below = true;
    if (!c->complete && take_mask_off(c) < 0)
        return failed(c, code, "cannot begin to write to");
    c->complete = true;
    return SQLITE_OK;
}

/* A file that is mapped is made longer by libato. The new bytes have to be in the file, not in its reflection. */
static int lengthen_below(const struct connection *c, sqlite3_int64 end)
{
    char *view = c->pending.view;
    const sqlite3_int64 before = view ? ato_size(view) : end;
    return before >= end || (ato_ftruncate(view, end) == 0 &&
                             ato_deploy(view + before, (size_t)(end - before)) == 0)
               ? SQLITE_OK
               : failed(c, SQLITE_IOERR_WRITE, "cannot write to");
}

/* A piece of a file that differs from what is committed. */
struct piece {
    sqlite3_int64 offset;
    int n;
    char bytes[1024];
};

/* Copies what is staged. SQLite has dropped it from its cache: all of the file is read, since that is rare. */
static int collect(struct connection *c, FILE *pieces)
{
    struct pending *s = &c->pending;
    const sqlite3_int64 had = ato_size(s->view);
    struct piece now, before;
    for (sqlite3_int64 at = 0; at < s->size; at += now.n) {
        const sqlite3_int64 left = s->size - at;
        now.offset = at;
        now.n = left < (int)sizeof(now.bytes) ? (int)left : (int)sizeof(now.bytes);
        const int r = read_staged(c, now.bytes, now.n, at);
        if (r != SQLITE_OK)
            return r;
        if (at + now.n <= had && !ato_memcpy(before.bytes, s->view + at, (size_t)now.n))
            return failed(c, SQLITE_IOERR_READ, "cannot read");
        if (at + now.n <= had && memcmp(now.bytes, before.bytes, (size_t)now.n) == 0)
            continue;
        if (at == 0)
            mask_uncover(now.bytes);
        if (fwrite(&now, sizeof(now), 1, pieces) != 1)
            return SQLITE_IOERR_NOMEM;
    }
    return SQLITE_OK;
}

bool data_may_go_below(const struct connection *c)
{
    const struct database *db = c->db;
    return !db->memory && !db->view && !db->gone && stages(c) && c->lock == SQLITE_LOCK_EXCLUSIVE &&
           !db->committed_below && database_is_on_disk(db) && !database_has_manifest(c) &&
           !database_has_moved(c);
}

int data_go_below(struct connection *c, int (*put_journal)(void *journal, bool durably),
                  void *journal)
{
    const bool is_staged = c->pending.tx;
    const sqlite3_int64 size = c->pending.size;
    int r = share_memory_exclude_all(c);
    if (r != SQLITE_OK)
        return r;
    char *pieces = NULL;
    size_t bytes = 0;
    struct piece p;
    FILE *to = open_memstream(&pieces, &bytes);
    r = !to ? SQLITE_IOERR_NOMEM : is_staged ? collect(c, to) : check_unchanged(c);
    if (r == SQLITE_OK && !c->db->memory && c->lock == SQLITE_LOCK_EXCLUSIVE &&
        !locks_are_held(c->db->fd))
        r = fault_of_lost_locks(c);
    if (to && fclose(to) != 0 && r == SQLITE_OK)
        r = SQLITE_IOERR_NOMEM;
    if (r == SQLITE_OK) {
        data_give_up(c);
        if (c->db->memory) /* others look for a journal, too */
            locks_set(&c->db->locks, LOCKS_WAL, true);
        r = data_begin_below(c, SQLITE_IOERR_WRITE);
    }
    if (r == SQLITE_OK && (r = put_journal(journal, is_staged)) == SQLITE_OK)
        c->rollback = JOURNAL_ON_DISK;
    if (r == SQLITE_OK && bytes)
        r = lengthen_below(c, size);
    for (size_t at = 0; r == SQLITE_OK && at < bytes; at += sizeof(p)) {
        memcpy(&p, pieces + at, sizeof(p));
        r = data_write(c, p.bytes, p.n, p.offset);
    }
    free(pieces);
    return r == SQLITE_OK && is_staged ? data_resize(c, size) : r;
}

void data_complete(struct connection *c)
{
    if (take_mask_off(c) < 0)
        fault_ignored("the mask cannot be taken off", c->name);
}

void data_give_up(struct connection *c)
{
    char *view = c->pending.view;
    char header[MASK_HEADER];
    const bool may_lack_guard = c->pending.tx && !c->db->guarded; /* stage() has ended it */
    pending_abort(&c->pending);
    c->becomes_wal = false;
    if (may_lack_guard && mask_read(view, MASK_HEADER, header) == 0 && mask_is_on(header)) {
        c->db->guarded = mask_set_plain(view, header) == 0;
        if (!c->db->guarded)
            fault_ignored("the guard is missing of", c->name);
    }
}

/* Stages a write, with the header masked. */
static int stage(struct connection *c, const void *from, int n, sqlite3_int64 offset)
{
    struct database *db = c->db;
    char header[128];
    if (offset != 0 || n <= (int)sizeof(header)) /* no page */
        return pending_write(&c->pending, from, n, offset);
    memcpy(header, from, sizeof(header));
    c->becomes_wal = mask_is_wal(header);
    if (c->becomes_wal && db->memory)
        locks_set(&db->locks, LOCKS_WAL, true);
    c->ends_at = mask_length(header);
    c->counter =
        mask_counter(header); /* if the connection keeps SHARED it does not read it again */
    /* A page that is no header, as of a database that gets encrypted, has no mask, and SQLite's own VFS refuses it as it is. The guard's
     * bytes must not be put into it; and the file itself may have it from now on. The transaction begins before: data_give_up() sets the guard
     * again if there is one. */
    if (!mask_cover(header) && db->guarded) {
        if (pending_begin(&c->pending) < 0)
            return -1;
        db->guarded = false;
        if (db->memory)
            locks_set(&db->locks, LOCKS_MASKED, false);
        if (ato_set_guard(c->pending.view, 0, NULL, 0) < 0)
            return -1;
    }
    if (pending_write(&c->pending, header, sizeof(header), 0) < 0)
        return -1;
    return pending_write(&c->pending, (const char *)from + sizeof(header), n - (int)sizeof(header),
                         sizeof(header));
}

int data_write(struct connection *c, const void *from, int n, sqlite3_int64 offset)
{
    int r;
    if (stages(c)) {
        r = begin_to_stage(c, SQLITE_IOERR_WRITE);
        if (r == SQLITE_OK && offset == 0 && n >= MASK_HEADER && mask_is_wal(from))
            r = share_memory_exclude_all(c);
        if (r == SQLITE_OK && stage(c, from, n, offset) < 0)
            r = failed(c, SQLITE_IOERR_WRITE, "cannot write to");
        c->commits = r == SQLITE_OK && (c->commits || offset == 0);
        return r;
    }
    r = data_begin_below(c, SQLITE_IOERR_WRITE);
    if (r != SQLITE_OK)
        return r;
    r = lengthen_below(c, offset + n);
    if (r != SQLITE_OK)
        return r;
    if (offset == 0 && n >= MASK_HEADER)
        c->counter = mask_counter(from); /* as stage() */
    return c->below->xWrite(c->file, from, n, offset);
}

int data_resize(struct connection *c, sqlite3_int64 size)
{
    bool done;
    int r;
    if (c->chunk)
        size = (size + c->chunk - 1) / c->chunk * c->chunk;
    /* A checkpoint ends with a truncation, at the last close with EXCLUSIVE, and so does a commit that makes the database shorter. */
    if (!stages(c) || (!c->pending.tx && c->complete)) {
        r = data_begin_below(c, SQLITE_IOERR_TRUNCATE);
        if (r == SQLITE_OK && !c->pending.view)
            return c->below->xTruncate(c->file, size);
        done = r == SQLITE_OK && ato_ftruncate(c->pending.view, size) == 0;
    } else if (!c->pending.tx && c->pending.view && size == ato_size(c->pending.view)) {
        return SQLITE_OK; /* the commit has cut it already */
    } else {
        r = begin_to_stage(c, SQLITE_IOERR_TRUNCATE);
        /* A new file whose commit failed gets empty again, and then has no guard. */
        done = r == SQLITE_OK &&
               (size > 0 || c->db->guarded || ato_set_guard(c->pending.view, 0, NULL, 0) == 0) &&
               pending_resize(&c->pending, size) == 0;
    }
    return r != SQLITE_OK || done ? r
                                  : failed(c, SQLITE_IOERR_TRUNCATE, "cannot change the size of");
}

int data_expect(struct connection *c, sqlite3_int64 size)
{
    sqlite3_int64 now;
    int r = data_length(c, &now);
    if (r != SQLITE_OK || size <= now || data_may_go_below(c))
        return r;
    if (c->chunk)
        return data_resize(c, size);
    if (!stages(c)) {
        /* One growth, and not one for each page: it takes syncs on a disk. */
        r = data_begin_below(c, SQLITE_IOERR_WRITE);
        return r == SQLITE_OK ? lengthen_below(c, size) : r;
    }
    r = begin_to_stage(c, SQLITE_IOERR_WRITE);
    if (r == SQLITE_OK && pending_hint(&c->pending, size) < 0)
        r = failed(c, SQLITE_IOERR_WRITE, "cannot change the size of");
    return r;
}

/* SQLite cuts a database that got shorter after its commit. Here the commit does, for a crash may come between the two: if then
 * the file is made plain without SQLite, its counter is that of the guard (mask.h), with which SQLite goes by the length of the
 * file. A file that does not end with a page has more than a database, as with appendvfs.
 *
 * A new file had no header that could be masked when the transaction began: its guard is set here, when the header is known. */
int data_finish(struct connection *c)
{
    char header[MASK_HEADER];
    struct pending *s = &c->pending;
    if (!c->db->memory && !locks_are_held(c->db->fd))
        return fault_of_lost_locks(c);
    int r = database_check_mask_again(c);
    if (r == SQLITE_OK)
        r = database_check_outside(c);
    if (r != SQLITE_OK)
        return r;
    if (c->ends_at && !c->chunk && c->ends_at < s->size && s->size % LEAST_PAGE == 0)
        r = pending_resize(s, c->ends_at);
    if (r == 0 && !c->db->guarded && s->size >= MASK_HEADER) {
        r = pending_read(s, header, sizeof(header), 0);
        if (r == 0 && mask_is_on(header))
            r = mask_set_plain(s->view, header);
    }
    return r == 0 ? SQLITE_OK : failed(c, SQLITE_IOERR_FSYNC, "cannot commit to");
}
