/* SPDX-License-Identifier: BSD-3-Clause */
#include "data.h"

#include "connection.h"
#include "database.h"
#include "fault.h"
#include "mask.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

/* ---- length ---- */

sqlite3_int64 length_of_view(const struct connection *c)
{
    return c->pending.view ? (sqlite3_int64)ato_size(c->pending.view) : -1;
}

/* Returns the length that libato has. Before a connection has SHARED other programs may have cut the file, and a load behind its
 * end raises SIGBUS; direct_settle() looks at that once. */
static sqlite3_int64 committed(const struct connection *c)
{
    const sqlite3_int64 size = length_of_view(c);
    const sqlite3_int64 length = c->lock == SQLITE_LOCK_NONE ? database_length(c->db) : size;
    return length < size ? length : size;
}

int length_get(struct connection *c, sqlite3_int64 *size)
{
    if (c->direct && !c->pending.tx)
        return c->below->xFileSize(c->file, size);
    *size = c->pending.tx ? c->pending.size : committed(c);
    return *size < 0 ? fault_of_libato(SQLITE_IOERR_FSTAT, "cannot find the size of", c->name)
                     : SQLITE_OK;
}

/* Returns whether another process made the file longer than it is mapped here. libato gives the end of the mapping as its size
 * then. */
static bool is_outgrown(const struct connection *c, sqlite3_int64 length)
{
    const sqlite3_int64 reach = (sqlite3_int64)c->db->reach;
    return length_of_view(c) >= reach && length > reach;
}

/* Looks at the length of a masked file. It may be longer than the database, since libato cuts it when it is unmapped, but not
 * shorter. */
static int check_length(struct connection *c)
{
    const sqlite3_int64 length = database_length(c->db);
    if (is_outgrown(c, length))
        database_renew(c, false);
    if (!c->pending.view)
        return SQLITE_BUSY;
    if (length < length_of_view(c))
        return fault(SQLITE_IOERR_FSTAT,
                     "another program truncated %s to %lld bytes while it was open", c->name,
                     (long long)length);
    if (is_outgrown(c, length))
        return fault(SQLITE_IOERR_FSTAT,
                     "another process made %s longer than this process has it mapped: close all "
                     "its connections here, then open it again",
                     c->name);
    return SQLITE_OK;
}

/* ---- which VFS ---- */

/* Makes the connection direct: deploys the database and takes its mask off. The caller has RESERVED or mask_lock(). Returns
 * 0; -1 with errno and ato_errormsg(). */
static int direct_go(struct connection *c)
{
    if (!c->direct && mask_take_off(c->pending.view, c->db->fd) < 0)
        return -1;
    c->direct = true;
    return 0;
}

void direct_leave(struct connection *c)
{
    if ((c->becomes_wal || c->db->policy == ATO_READ_EAGER) && direct_go(c) < 0)
        fault_ignored("other programs still refuse the database, for the mask cannot be taken off",
                      c->name);
}

/* A masked file without a guard is a copy of a database that was not plain: the pages that it lacks are in the reflection of
 * the original. Such a file is refused unless ?prefer=file is given. */
static int take_copy(struct connection *c, const char *header)
{
    char in_file[MASK_HEADER];
    /* Another connection may have taken mask and guard off since the header was read: SQLite tries again. */
    if (database_read_header(c->db, in_file) && !mask_is_on(in_file))
        return SQLITE_BUSY;
    if (c->wants.prefer != ATO_PREFER_FILE || !c->writable)
        return fault(SQLITE_CANTOPEN,
                     "%s: this is a copy of a database that was not plain, so that pages may be "
                     "outdated or missing: copy it again when the original is closed, or open it "
                     "with prefer=file to use it as it is",
                     c->name);
    return mask_set_plain(c->pending.view, header) == 0
               ? SQLITE_OK
               : fault_of_libato(SQLITE_IOERR_LOCK, "cannot set the guard of", c->name);
}

/* Makes the connection direct before it reads. The lock keeps out other connections that do so, and those that stage. */
static int unmask(struct connection *c)
{
    if (mask_lock(c->db->fd, F_WRLCK) < 0)
        return SQLITE_BUSY;
    const int r = direct_go(c);
    (void)mask_lock(c->db->fd, F_UNLCK);
    return r < 0 ? fault_of_libato(SQLITE_IOERR_LOCK, "cannot take the mask off", c->name)
                 : SQLITE_OK;
}

/* Looks whether libato knows what goes with the header, as db->guarded and db->whole then say: a guard with a mask; without one no
 * slices, left by a process that was killed, or by a program that uses libato itself. */
static int look_at_reflection(struct connection *c, const char *header, bool is_masked)
{
    struct ato_status st = {.struct_size = sizeof(st)};
    bool *known = is_masked ? &c->db->guarded : &c->db->whole;
    int r = SQLITE_OK;
    if (*known)
        return SQLITE_OK;
    if (ato_stat(c->pending.view, &st) < 0)
        return fault_of_libato(SQLITE_IOERR_LOCK, "cannot read the status of", c->name);
    if (is_masked && !st.guard_bytes)
        r = take_copy(c, header);
    *known = r == SQLITE_OK && (is_masked || !st.slices_in_reflection);
    return r;
}

/* Decides whether the connection is direct. The caller has SHARED: until it gives that back no other connection masks the
 * file, or writes to a file that it unmasked. */
static int look_at_header(struct connection *c)
{
    char header[MASK_HEADER], *view = c->pending.view;
    int r = view ? mask_read(view, database_length(c->db), header) : 1;
    if (r < 0)
        return fault_of_libato(SQLITE_IOERR_READ, "cannot read the header of", c->name);
    if (r > 0 && !database_read_header(c->db, header))
        memset(header, 0, MASK_HEADER); /* there is none */
    const bool is_masked = mask_is_on(header);
    if (!view) {
        c->direct = !is_masked;
        /* A connection with RESERVED may have just given the file its reflection, with the mask. */
        return is_masked ? direct_settle(c) : SQLITE_OK;
    }
    r = look_at_reflection(c, header, is_masked);
    if (r != SQLITE_OK)
        return r;
    const bool left = !is_masked && !c->db->whole;
    c->direct = !is_masked && !left;
    mask_uncover(header);
    /* Read eagerly, the file has to be complete after each transaction. */
    const bool is_complete =
        c->wants.journal_file || mask_is_wal(header) || c->db->policy == ATO_READ_EAGER;
    const bool unmasks = left || (is_masked && is_complete);
    if (c->db->writable && unmasks)
        r = unmask(c);
    else if (is_masked && mask_is_wal(header))
        r = fault(SQLITE_READONLY_ROLLBACK,
                  "%s: a process was killed while it switched the database to WAL mode: open it "
                  "for writing once, then read it",
                  c->name);
    if (c->direct)
        direct_follow(c);
    else if (r == SQLITE_OK)
        r = check_length(c);
    return r;
}

/* A process that is killed in a commit leaves SQLite's locks to others, while its last words may not be visible yet: they
 * would appear in the middle of the next transaction. ato_settle() waits until the commit is complete or undone. */
int direct_settle(struct connection *c)
{
    if (database_map(c, IF_PAIRED) < 0)
        return fault_of_libato(SQLITE_CANTOPEN, "cannot map", c->name);
    if (!c->pending.view || ato_settle(c->pending.view) == 0)
        return look_at_header(c);
    const int code = errno == ETIMEDOUT ? SQLITE_BUSY
                     : errno == EAGAIN  ? SQLITE_READONLY_ROLLBACK
                                        : SQLITE_IOERR_LOCK;
    return fault_of_libato(code, "cannot finish the commits of dead processes to", c->name);
}

void direct_follow(struct connection *c)
{
    if (c->pending.view && database_length(c->db) != length_of_view(c))
        database_renew(c, true);
}

int data_reserve(struct connection *c)
{
    if (c->direct)
        direct_follow(c);
    if (!c->pending.view) {
        if (database_map(c, TO_WRITE) < 0) {
            const bool is_forbidden = errno == EACCES || errno == EPERM || errno == EROFS;
            return fault_of_libato(is_forbidden ? SQLITE_READONLY_DIRECTORY : SQLITE_CANTOPEN,
                                   "cannot map", c->name);
        }
        const int r = direct_settle(c);
        if (r != SQLITE_OK)
            return r;
    }
    if (!c->direct || database_length(c->db) == length_of_view(c))
        return SQLITE_OK;
    return fault(
        SQLITE_BUSY,
        "another program changed the length of %s while several processes had it open through ato: "
        "each of these has to read or close the database before it can be written to",
        c->name);
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
    if (c->direct && !c->pending.tx)
        return c->below->xRead(c->file, to, n, offset);
    sqlite3_int64 size;
    int r = length_get(c, &size);
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
    int some = 0;
    /* A part of what may be masked, or may get a mask by a connection that has RESERVED: the change counter, with which each
     * transaction begins, comes with the bytes that tell whether it is masked. A file that is shorter than a header has no mask. */
    if (offset < MASK_HEADER && !has_header && read_bytes(c, header, MASK_HEADER, 0) == SQLITE_OK) {
        const int left = MASK_HEADER - (int)offset;
        some = n < left ? n : left;
        mask_uncover(header);
    }
    const int r = some && some == n ? SQLITE_OK : read_bytes(c, to, n, offset);
    if (r != SQLITE_OK && r != SQLITE_IOERR_SHORT_READ)
        return r;
    if (has_header)
        mask_uncover(to);
    else if (some)
        memcpy(to, header + offset, (size_t)some);
    return r;
}

/* To be called before each change. A staged one needs EXCLUSIVE; the first one puts the mask on. What is not staged goes to the VFS
 * below: the file is what SQLite's own VFS would leave, also after a kill. */
static int begin_to_change(struct connection *c, bool is_staged, int code)
{
    int r = 0;
    if (!is_staged) {
        r = direct_go(c);
    } else if (!c->pending.tx) {
        c->ends_at = 0;
        /* In locking_mode=EXCLUSIVE, after a hot journal was played back, RESERVED is not taken. */
        if (data_reserve(c) != SQLITE_OK)
            return code;
        c->direct = false;
        r = mask_put_on(c->pending.view);
        c->db->guarded = r == 0;
        /* Of a commit to a new file that failed. */
        if (length_of_view(c) == 0)
            r = ato_set_guard(c->pending.view, 0, NULL, 0);
    }
    return r >= 0 ? SQLITE_OK : fault_of_libato(code, "cannot begin to write to", c->name);
}

/* Stages a write, with the header masked. */
static int stage(struct connection *c, const void *from, int n, sqlite3_int64 offset)
{
    char header[128];
    if (offset != 0 || n <= (int)sizeof(header)) /* no page */
        return pending_write(&c->pending, from, n, offset);
    memcpy(header, from, sizeof(header));
    c->becomes_wal = mask_is_wal(header);
    c->ends_at = mask_length(header);
    /* Other bytes than a header make SQLite's own VFS refuse the file without a mask. */
    mask_cover(header);
    if (pending_write(&c->pending, header, sizeof(header), 0) < 0)
        return -1;
    return pending_write(&c->pending, (const char *)from + sizeof(header), n - (int)sizeof(header),
                         sizeof(header));
}

int data_write(struct connection *c, const void *from, int n, sqlite3_int64 offset)
{
    const bool is_staged = stages(c);
    int r = begin_to_change(c, is_staged, SQLITE_IOERR_WRITE);
    if (r == SQLITE_OK && !is_staged)
        r = c->below->xWrite(c->file, from, n, offset);
    else if (r == SQLITE_OK && stage(c, from, n, offset) < 0)
        r = fault_of_libato(SQLITE_IOERR_WRITE, "cannot write to", c->name);
    return r;
}

int data_resize(struct connection *c, sqlite3_int64 size)
{
    if (c->chunk)
        size = (size + c->chunk - 1) / c->chunk * c->chunk;
    /* A checkpoint ends with a truncation, at the last close with EXCLUSIVE: it is not part of a transaction. */
    const bool is_staged = stages(c) && (c->pending.tx || !c->checkpointed);
    /* The commit has cut it already. */
    if (is_staged && !c->pending.tx && !c->direct && size == length_of_view(c))
        return SQLITE_OK;
    int r = begin_to_change(c, is_staged, SQLITE_IOERR_TRUNCATE);
    if (r == SQLITE_OK && !is_staged)
        return c->below->xTruncate(c->file, size);
    /* A new file whose commit failed gets empty again, and then has no guard. */
    if (r == SQLITE_OK &&
        ((size == 0 && !c->db->guarded && ato_set_guard(c->pending.view, 0, NULL, 0) < 0) ||
         pending_resize(&c->pending, size) < 0))
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
    if (c->chunk || !stages(c))
        return c->chunk ? data_resize(c, size) : SQLITE_OK;
    r = begin_to_change(c, true, SQLITE_IOERR_WRITE);
    if (r == SQLITE_OK && pending_hint(&c->pending, size) < 0)
        r = fault_of_libato(SQLITE_IOERR_WRITE, "cannot change the size of", c->name);
    return r;
}
