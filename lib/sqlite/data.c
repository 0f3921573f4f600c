/* SPDX-License-Identifier: BSD-3-Clause */
#include "data.h"

#include "connection.h"
#include "database.h"
#include "fault.h"
#include "mask.h"
#include "share.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

/* A VFS above may ask for the length, and read, when it opens the file, before SQLite has any lock: then the file is mapped if it
 * is not complete. */
static int begin_without_lock(struct connection *c)
{
    const bool needs_view =
        c->lock == SQLITE_LOCK_NONE && c->db->fd >= 0 && database_needs_view(c->db);
    return needs_view ? share_begin(c) : SQLITE_OK;
}

/* ---- length ---- */

int data_length(struct connection *c, sqlite3_int64 *size)
{
    const struct database *db = c->db;
    const int r = c->pending.view ? SQLITE_OK : begin_without_lock(c);
    if (r != SQLITE_OK || !c->pending.view)
        return r == SQLITE_OK ? c->below->xFileSize(c->file, size) : r;
    *size = c->pending.tx ? c->pending.size : (sqlite3_int64)ato_size(c->pending.view);
    if (*size < 0)
        return fault_of_libato(SQLITE_IOERR_FSTAT, "cannot find the size of", c->name);
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
    return !c->checkpoint && connection_journals_in_memory(c) && connection_writes(c);
}

static int read_there(struct connection *c, void *to, int n, sqlite3_int64 offset)
{
    if (c->pending.tx)
        return pending_read(&c->pending, to, n, offset);
    return ato_memcpy(to, c->pending.view + offset, (size_t)n) ? 0 : -1;
}

static int read_bytes(struct connection *c, void *to, int n, sqlite3_int64 offset)
{
    if (!c->pending.view)
        return c->below->xRead(c->file, to, n, offset);
    sqlite3_int64 size;
    int r = data_length(c, &size);
    if (r != SQLITE_OK)
        return r;
    const sqlite3_int64 there = size - offset;
    const int some = there >= n ? n : there > 0 ? (int)there : 0;
    if (some && read_there(c, to, some, offset) < 0)
        return fault_of_libato(SQLITE_IOERR_READ, "cannot read", c->name);
    if (some == n)
        return SQLITE_OK;
    memset((char *)to + some, 0, (size_t)(n - some));
    return SQLITE_IOERR_SHORT_READ;
}

/* Gives SQLite the plain header, also where a read is short because SQLite expects larger pages than the file has. */
int data_read(struct connection *c, void *to, int n, sqlite3_int64 offset)
{
    char header[MASK_HEADER];
    const bool has_header = offset == 0 && n >= MASK_HEADER;
    int some = 0, r = SQLITE_IOERR_SHORT_READ;
    if (offset >= LEAST_PAGE)
        share_read_on(c);
    /* A part of what may be masked, or may get a mask by a connection that has RESERVED: the change counter, with which each
     * transaction begins, comes with the bytes that tell whether it is masked. A file that is shorter than a header has no mask. */
    if (offset < MASK_HEADER && !has_header)
        r = read_bytes(c, header, MASK_HEADER, 0);
    if (r == SQLITE_OK) {
        const int left = MASK_HEADER - (int)offset;
        some = n < left ? n : left;
        mask_uncover(header);
    } else if (r != SQLITE_IOERR_SHORT_READ) {
        return r;
    }
    if (!some || some != n)
        r = read_bytes(c, to, n, offset);
    if (r != SQLITE_OK && r != SQLITE_IOERR_SHORT_READ)
        return r;
    if (has_header)
        mask_uncover(to);
    else if (some)
        memcpy(to, header + offset, (size_t)some);
    return r;
}

/* To be called before a change that is staged, with EXCLUSIVE. The first one of a transaction puts the mask on. */
static int begin_to_stage(struct connection *c, int code)
{
    struct database *db = c->db;
    if (c->pending.tx)
        return SQLITE_OK;
    c->ends_at = 0;
    c->complete = false;
    if (!c->pending.view) { /* share=stock */
        pthread_mutex_lock(&db->mapping);
        if (database_map(c, true) == 0)
            c->pending.view = db->view;
        pthread_mutex_unlock(&db->mapping);
        if (!c->pending.view)
            return fault_of_libato(database_is_forbidden(errno) ? SQLITE_READONLY_DIRECTORY
                                                                : SQLITE_CANTOPEN,
                                   "cannot map", c->name);
    }
    int r = mask_put_on(c->pending.view);
    db->guarded = r == 0;
    /* Of a commit to a new file that failed. */
    if (ato_size(c->pending.view) == 0)
        r = ato_set_guard(c->pending.view, 0, NULL, 0);
    return r >= 0 ? SQLITE_OK : fault_of_libato(code, "cannot begin to write to", c->name);
}

/* To be called before a change that the VFS below makes: then the file is complete. Nobody stages meanwhile, for that needs
 * EXCLUSIVE, and this connection has SHARED. */
static int begin_to_write_below(struct connection *c, int code)
{
    c->wrote_below = true;
    if (c->pending.view && !c->complete && mask_take_off(c->pending.view, c->db->fd) < 0)
        return fault_of_libato(code, "cannot begin to write to", c->name);
    c->complete = true;
    return SQLITE_OK;
}

void data_complete(struct connection *c)
{
    if (c->pending.view && mask_take_off(c->pending.view, c->db->fd) < 0)
        fault_ignored("the mask cannot be taken off", c->name);
}

/* Stages a write, with the header masked. */
static int stage(struct connection *c, const void *from, int n, sqlite3_int64 offset)
{
    char header[128];
    if (offset != 0 || n <= (int)sizeof(header)) /* no page */
        return pending_write(&c->pending, from, n, offset);
    memcpy(header, from, sizeof(header));
    c->becomes_wal = mask_is_wal(header);
    if (c->becomes_wal && c->db->memory)
        locks_set_wal(&c->db->locks, true);
    c->ends_at = mask_length(header);
    /* Other bytes than a header make SQLite's own VFS refuse the file without a mask. */
    mask_cover(header);
    if (pending_write(&c->pending, header, sizeof(header), 0) < 0)
        return -1;
    return pending_write(&c->pending, (const char *)from + sizeof(header), n - (int)sizeof(header),
                         sizeof(header));
}

/* A file that is mapped is made longer by libato. The new bytes have to be in the file, not in its reflection. */
static int make_longer(char *view, sqlite3_int64 size)
{
    const sqlite3_int64 before = ato_size(view);
    if (before >= size)
        return 0;
    return ato_ftruncate(view, size) < 0 ? -1 : ato_deploy(view + before, (size_t)(size - before));
}

static int write_below(struct connection *c, const void *from, int n, sqlite3_int64 offset)
{
    char *view = c->pending.view;
    const int r = begin_to_write_below(c, SQLITE_IOERR_WRITE);
    if (r != SQLITE_OK)
        return r;
    if (view && make_longer(view, offset + n) < 0)
        return fault_of_libato(SQLITE_IOERR_WRITE, "cannot write to", c->name);
    return c->below->xWrite(c->file, from, n, offset);
}

int data_write(struct connection *c, const void *from, int n, sqlite3_int64 offset)
{
    if (!stages(c))
        return write_below(c, from, n, offset);
    int r = begin_to_stage(c, SQLITE_IOERR_WRITE);
    if (r == SQLITE_OK && stage(c, from, n, offset) < 0)
        r = fault_of_libato(SQLITE_IOERR_WRITE, "cannot write to", c->name);
    return r;
}

static int resize_below(struct connection *c, sqlite3_int64 size)
{
    const int r = begin_to_write_below(c, SQLITE_IOERR_TRUNCATE);
    if (r != SQLITE_OK || !c->pending.view)
        return r == SQLITE_OK ? c->below->xTruncate(c->file, size) : r;
    return ato_ftruncate(c->pending.view, size) == 0
               ? SQLITE_OK
               : fault_of_libato(SQLITE_IOERR_TRUNCATE, "cannot change the size of", c->name);
}

int data_resize(struct connection *c, sqlite3_int64 size)
{
    if (c->chunk)
        size = (size + c->chunk - 1) / c->chunk * c->chunk;
    /* A checkpoint ends with a truncation, at the last close with EXCLUSIVE: it is not part of a transaction. */
    if (!stages(c) || (!c->pending.tx && c->checkpointed))
        return resize_below(c, size);
    /* The commit has cut it already. */
    if (!c->pending.tx && c->pending.view && size == ato_size(c->pending.view))
        return SQLITE_OK;
    const int r = begin_to_stage(c, SQLITE_IOERR_TRUNCATE);
    /* A new file whose commit failed gets empty again, and then has no guard. */
    if (r == SQLITE_OK &&
        ((size == 0 && !c->db->guarded && ato_set_guard(c->pending.view, 0, NULL, 0) < 0) ||
         pending_resize(&c->pending, size) < 0))
        return fault_of_libato(SQLITE_IOERR_TRUNCATE, "cannot change the size of", c->name);
    return r;
}

int data_expect(struct connection *c, sqlite3_int64 size)
{
    sqlite3_int64 now;
    int r = data_length(c, &now);
    if (r != SQLITE_OK || size <= now)
        return r;
    if (c->chunk || !stages(c))
        return c->chunk ? data_resize(c, size) : SQLITE_OK;
    r = begin_to_stage(c, SQLITE_IOERR_WRITE);
    if (r == SQLITE_OK && pending_hint(&c->pending, size) < 0)
        r = fault_of_libato(SQLITE_IOERR_WRITE, "cannot change the size of", c->name);
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
    if (c->ends_at && !c->chunk && c->ends_at < s->size && s->size % LEAST_PAGE == 0 &&
        pending_resize(s, c->ends_at) < 0)
        return -1;
    if (c->db->guarded || s->size < MASK_HEADER)
        return 0;
    if (pending_read(s, header, sizeof(header), 0) < 0)
        return -1;
    return mask_is_on(header) ? mask_set_plain(s->view, header) : 0;
}
