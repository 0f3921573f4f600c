/* SPDX-License-Identifier: BSD-3-Clause */
#include "data.h"

#include "connection.h"
#include "database.h"
#include "direct.h"
#include "fault.h"
#include "mask.h"

#include <errno.h>
#include <string.h>

/* Writes without RESERVED are those of a checkpoint, for which the WAL has the pages until all are written. With a journal on
 * the disk SQLite itself can roll them back. Neither needs to be staged. */
bool data_stages(const struct connection *c)
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
    if (c->direct && !c->pending.tx)
        return c->below->xRead(c->file, to, n, offset);
    for (int tries = 0;; tries++) {
        sqlite3_int64 size;
        int r = length_get(c, &size);
        if (r != SQLITE_OK)
            return r;
        const sqlite3_int64 there = size - offset;
        const int some = there >= n ? n : there > 0 ? (int)there : 0;
        if (!some || read_there(c, to, some, offset) == 0) {
            if (some == n)
                return SQLITE_OK;
            memset((char *)to + some, 0, (size_t)(n - some));
            return SQLITE_IOERR_SHORT_READ;
        }
        /* Without a lock the file may get shorter between the two calls. */
        if (errno != EFAULT || tries == 100)
            return fault_of_libato(SQLITE_IOERR_READ, "cannot read", c->name);
    }
}

static bool is_read(int r)
{
    return r == SQLITE_OK || r == SQLITE_IOERR_SHORT_READ;
}

/* Gives SQLite the plain header, also where a read is short because SQLite expects larger pages than the file has. */
int data_read(struct connection *c, void *to, int n, sqlite3_int64 offset)
{
    char header[MASK_HEADER];
    const bool has_mask =
        offset < MASK_HEADER; /* or may get one, by a connection that has RESERVED */
    const bool has_header = offset == 0 && n >= MASK_HEADER;
    /* The change counter, with which each transaction begins, comes with the bytes that tell whether it is masked. A file that
     * is shorter than a header has no mask. */
    if (!has_mask || has_header || read_bytes(c, header, MASK_HEADER, 0) != SQLITE_OK) {
        const int r = read_bytes(c, to, n, offset);
        if (has_header && is_read(r))
            mask_uncover(to);
        return r;
    }
    mask_uncover(header);
    const int some = n < MASK_HEADER - (int)offset ? n : MASK_HEADER - (int)offset;
    const int r = some < n ? read_bytes(c, to, n, offset) : SQLITE_OK;
    if (is_read(r))
        memcpy(to, header + offset, (size_t)some);
    return r;
}

static int check_writable(const struct connection *c)
{
    if (c->cut_to)
        return fault(SQLITE_IOERR_WRITE,
                     "another program truncated %s to %lld bytes while it was open", c->name,
                     (long long)c->cut_to - 1);
    return c->writable ? SQLITE_OK : SQLITE_READONLY;
}

/* To be called before each staged change, with EXCLUSIVE: the first one puts the mask on. */
static int begin_to_stage(struct connection *c, int code)
{
    if (c->pending.tx)
        return SQLITE_OK;
    memset(c->neighbours, 0, sizeof(c->neighbours)); /* what is written will not be home */
    /* In locking_mode=EXCLUSIVE, after a hot journal was played back, RESERVED is not taken. */
    if (database_map(c, TO_WRITE) < 0)
        return fault_of_libato(code, "cannot map", c->name);
    int r = c->direct ? length_require(c, code) : SQLITE_OK;
    if (r != SQLITE_OK)
        return r;
    /* A masked file is not cut by other programs, so that its length need not be looked at. A file without a mask may have
     * been overwritten since its guard was seen. */
    const sqlite3_int64 length = c->direct ? database_length(c->db) : MASK_HEADER;
    c->db->guarded &= !c->direct;
    c->direct = false;
    if (mask_put_on(c->pending.view, length, &c->db->guarded) == 0)
        return SQLITE_OK;
    return fault_of_libato(code, "cannot begin to write to", c->name);
}

/* Stages a write, with the header masked. */
static int stage(struct connection *c, const void *from, int n, sqlite3_int64 offset)
{
    char header[128];
    if (offset != 0 || n <= (int)sizeof(header)) /* no page */
        return pending_write(&c->pending, from, n, offset);
    memcpy(header, from, sizeof(header));
    c->becomes_wal = mask_is_wal(header);
    /* Other bytes than a header make SQLite's own VFS refuse the file without a mask. */
    mask_cover(header);
    if (pending_write(&c->pending, header, sizeof(header), 0) < 0)
        return -1;
    return pending_write(&c->pending, (const char *)from + sizeof(header), n - (int)sizeof(header),
                         sizeof(header));
}

/* A write that is not staged goes to the VFS below: the file is what SQLite's own VFS would leave, also after a kill. */
static int write_through(struct connection *c, const void *from, int n, sqlite3_int64 offset)
{
    if (direct_go(c) < 0)
        return fault_of_libato(SQLITE_IOERR_WRITE, "cannot write to", c->name);
    /* The view grows with the file, unless another program made the file longer: connections that take no locks, and those of
     * other processes, go by it. After the file: a process that is killed in the growth of the view must not leave a file of
     * which libato cuts off what other programs append to it later (direct.h). */
    const sqlite3_int64 end = offset + n, size = length_of_view(c);
    if (end > size && size == database_length(c->db)) {
        int r = c->below->xTruncate(c->file, end);
        if (r != SQLITE_OK)
            return r;
        if (ato_ftruncate(c->pending.view, end) < 0)
            return fault_of_libato(SQLITE_IOERR_WRITE, "cannot make longer", c->name);
    }
    return c->below->xWrite(c->file, from, n, offset);
}

int data_write(struct connection *c, const void *from, int n, sqlite3_int64 offset)
{
    int r = check_writable(c);
    if (r != SQLITE_OK)
        return r;
    if (!data_stages(c))
        return write_through(c, from, n, offset);
    r = begin_to_stage(c, SQLITE_IOERR_WRITE);
    if (r == SQLITE_OK && stage(c, from, n, offset) < 0)
        r = fault_of_libato(SQLITE_IOERR_WRITE, "cannot write to", c->name);
    return r;
}

static sqlite3_int64 in_chunks(const struct connection *c, sqlite3_int64 size)
{
    return c->chunk ? (size + c->chunk - 1) / c->chunk * c->chunk : size;
}

int data_resize(struct connection *c, sqlite3_int64 size)
{
    int r = check_writable(c);
    if (r != SQLITE_OK)
        return r;
    size = in_chunks(c, size);
    /* A checkpoint ends with a truncation, at the last close with EXCLUSIVE: it is not part of a transaction. */
    const bool is_staged = data_stages(c) && (c->pending.tx || !c->checkpointed);
    if (!is_staged)
        return direct_go(c) == 0
                   ? c->below->xTruncate(c->file, size)
                   : fault_of_libato(SQLITE_IOERR_TRUNCATE, "cannot change the size of", c->name);
    r = begin_to_stage(c, SQLITE_IOERR_TRUNCATE);
    if (r == SQLITE_OK && pending_resize(&c->pending, size) < 0)
        r = fault_of_libato(SQLITE_IOERR_TRUNCATE, "cannot change the size of", c->name);
    c->shorter |= r == SQLITE_OK;
    return r;
}

int data_expect(struct connection *c, sqlite3_int64 size)
{
    sqlite3_int64 now;
    int r = length_get(c, &now);
    if (r != SQLITE_OK || size <= now)
        return r;
    if (c->chunk || !data_stages(c))
        return c->chunk ? data_resize(c, size) : SQLITE_OK;
    r = begin_to_stage(c, SQLITE_IOERR_WRITE);
    if (r == SQLITE_OK && pending_hint(&c->pending, size) < 0)
        r = fault_of_libato(SQLITE_IOERR_WRITE, "cannot change the size of", c->name);
    return r;
}

/* ---- pages that SQLite reads without a copy ---- */

/* In domain msync, where a flush is a system call, the second page that is fetched from a neighbourhood deploys all of it, once:
 * deploying page by page would take longer than reading. */
static bool takes_neighbours(struct connection *c, sqlite3_int64 neighbourhood)
{
    struct neighbours *known =
        &c->neighbours[neighbourhood % (sqlite3_int64)(sizeof(c->neighbours) / sizeof(*known))];
    if (known->which != neighbourhood + 1) {
        *known = (struct neighbours){.which = neighbourhood + 1};
        return false;
    }
    const bool first = !known->home;
    known->home = true;
    return first;
}

int data_fetch(struct connection *c, sqlite3_int64 offset, int n, void **page)
{
    const sqlite3_int64 end = offset + n;
    *page = NULL;
    if (c->direct)
        return direct_maps_below(c) ? c->below->xFetch(c->file, offset, n, page) : SQLITE_OK;
    const sqlite3_int64 size = length_committed(c);
    if (offset < MASK_HEADER || end > c->fetch_limit || c->pending.tx || !c->db->writable ||
        end > size)
        return SQLITE_OK;
    sqlite3_int64 first = offset, last = end;
    if (c->db->domain == ATO_DOMAIN_MSYNC && takes_neighbours(c, offset / NEIGHBOURHOOD)) {
        first -= first % NEIGHBOURHOOD;
        last = first + NEIGHBOURHOOD > end ? first + NEIGHBOURHOOD : end;
        last = last < size ? last : size;
    }
    if (ato_deploy(c->pending.view + first, (size_t)(last - first)) == 0) {
        *page = c->pending.view + offset;
        c->fetched++;
    }
    return SQLITE_OK;
}

int data_fetch_limit(struct connection *c, sqlite3_int64 *limit)
{
    sqlite3_int64 now = -1;
    if (c->fetched)
        *limit = -1;
    int r = c->below->xFileControl(c->file, SQLITE_FCNTL_MMAP_SIZE, limit);
    if (r == SQLITE_OK)
        r = c->below->xFileControl(c->file, SQLITE_FCNTL_MMAP_SIZE, &now);
    if (r == SQLITE_OK)
        c->fetch_limit = now;
    return r;
}
