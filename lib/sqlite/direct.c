/* SPDX-License-Identifier: BSD-3-Clause */
#include "direct.h"

#include "connection.h"
#include "database.h"
#include "fault.h"
#include "mask.h"

#include <errno.h>
#include <string.h>

/* ---- length ---- */

sqlite3_int64 length_of_view(const struct connection *c)
{
    return c->pending.view ? (sqlite3_int64)ato_size(c->pending.view) : -1;
}

void length_cut(struct connection *c)
{
    if (c->shorter && database_length(c->db) > length_of_view(c))
        database_renew(c, false);
    c->shorter = false;
}

sqlite3_int64 length_committed(const struct connection *c)
{
    const sqlite3_int64 size = length_of_view(c);
    return c->cut_to && c->cut_to - 1 < size ? c->cut_to - 1 : size;
}

/* Returns whether another process made the file longer than it is mapped here. libato gives the end of the mapping as its size
 * then. */
static bool is_outgrown(const struct connection *c, sqlite3_int64 size)
{
    const sqlite3_int64 reach = (sqlite3_int64)c->db->view.max_size;
    return size >= reach && database_length(c->db) > reach;
}

int length_get(struct connection *c, sqlite3_int64 *size)
{
    if (c->direct && !c->pending.tx)
        return c->below->xFileSize(c->file, size);
    *size = c->pending.tx ? c->pending.size : length_committed(c);
    if (!c->pending.tx && is_outgrown(c, *size)) {
        database_renew(c, false);
        *size = length_committed(c);
        if (is_outgrown(c, *size))
            return fault(SQLITE_IOERR_FSTAT,
                         "another process made %s longer than this process has it mapped: close "
                         "all its connections here, then open it again",
                         c->name);
    }
    return *size < 0 ? fault_of_libato(SQLITE_IOERR_FSTAT, "cannot find the size of", c->name)
                     : SQLITE_OK;
}

/* In this order: a process of libato's that makes the file longer changes the file's length first. */
bool length_look(struct connection *c)
{
    const sqlite3_int64 size = length_of_view(c), length = database_length(c->db);
    c->cut_to = !c->direct && length >= 0 && length < size ? length + 1 : 0;
    return length != size && length != c->looked_at;
}

void length_find(struct connection *c)
{
    /* The lengths may stay different: a file that got shorter keeps its length while other processes have it mapped. */
    if (c->pending.view && length_look(c)) {
        c->looked_at = database_length(c->db);
        database_renew(c, true);
        (void)length_look(c);
    }
}

int length_require(struct connection *c, int code)
{
    c->looked_at = -1;
    length_find(c);
    if (database_length(c->db) == length_of_view(c))
        return SQLITE_OK;
    return fault(
        code,
        "another program changed the length of %s while several processes had it open through ato: "
        "each of these has to read or close the database before it can be written to",
        c->name);
}

/* ---- which VFS ---- */

/* Returns whether the file has to be complete, without its reflection, after each transaction. */
static bool is_eager(const struct connection *c)
{
    return c->pending.view && c->db->policy == ATO_READ_EAGER;
}

int direct_go(struct connection *c)
{
    if (!c->direct && mask_take_off(c->pending.view, c->db->fd) < 0)
        return -1;
    c->direct = true;
    return 0;
}

void direct_leave(struct connection *c)
{
    if ((c->becomes_wal || is_eager(c)) && direct_go(c) < 0)
        fault_ignored("other programs still refuse the database, for the mask cannot be taken off",
                      c->name);
}

bool direct_maps_below(const struct connection *c)
{
    return c->wants.journal_file && c->below->iVersion >= 3;
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
    if (mask_lock(c->db->fd) < 0)
        return SQLITE_BUSY;
    const int r = direct_go(c);
    mask_unlock(c->db->fd);
    return r < 0 ? fault_of_libato(SQLITE_IOERR_LOCK, "cannot take the mask off", c->name)
                 : SQLITE_OK;
}

/* Looks whether libato knows what goes with the header: a guard with a mask, no slices without one. Sets *left to whether a file
 * without a mask has slices in its reflection: left by a process that was killed, or by a program that uses libato itself. */
static int look_at_reflection(struct connection *c, const char *header, bool *left)
{
    struct ato_status st = {.struct_size = sizeof(st)};
    bool *known = mask_is_on(header) ? &c->db->guarded : &c->db->whole;
    int r = SQLITE_OK;
    *left = false;
    if (*known)
        return SQLITE_OK;
    if (ato_stat(c->pending.view, &st) < 0)
        return fault_of_libato(SQLITE_IOERR_LOCK, "cannot read the status of", c->name);
    if (!mask_is_on(header))
        *left = st.slices_in_reflection;
    else if (!st.guard_bytes)
        r = take_copy(c, header);
    *known = r == SQLITE_OK && !*left;
    return r;
}

/* Reads the header. Zeros stand for a missing one. */
static int read_header(struct connection *c, char header[MASK_HEADER])
{
    char *view = c->pending.view;
    memset(header, 0, MASK_HEADER);
    /* Only a file that is known to be masked is not cut by other programs: a load behind its end would raise SIGBUS. */
    if ((!view || c->direct || !c->db->guarded) && !database_read_header(c->db, header)) {
        memset(header, 0, MASK_HEADER);
        return SQLITE_OK;
    }
    if (view && length_of_view(c) >= MASK_HEADER && !ato_memcpy(header, view, MASK_HEADER) &&
        errno != EFAULT)
        return fault_of_libato(SQLITE_IOERR_READ, "cannot read the header of", c->name);
    return SQLITE_OK;
}

/* Decides whether the connection is direct. The caller has SHARED: until it gives that back no other connection masks the
 * file, or writes to a file that it unmasked. */
static int look_at_header(struct connection *c)
{
    char header[MASK_HEADER];
    const bool has_view = c->pending.view;
    bool left = false;
    int r = read_header(c, header);
    if (r == SQLITE_OK && has_view)
        r = look_at_reflection(c, header, &left);
    if (r != SQLITE_OK)
        return r;
    const bool is_masked = mask_is_on(header);
    mask_uncover(header);
    const bool stages_none = c->wants.journal_file || mask_is_wal(header);
    const bool unmasks = left || (is_masked && (stages_none || is_eager(c)));
    c->direct = !is_masked && !left;
    if (has_view && c->db->writable && unmasks)
        r = unmask(c);
    else if (has_view && is_masked && mask_is_wal(header))
        r = fault(SQLITE_READONLY_ROLLBACK,
                  "%s: a process was killed while it switched the database to WAL mode: open it "
                  "for writing once, then read it",
                  c->name);
    if (!c->direct && direct_maps_below(c))
        (void)c->below->xUnfetch(c->file, 0, NULL);
    if (c->direct)
        c->cut_to = 0;
    if (c->direct && has_view && database_length(c->db) != length_of_view(c))
        database_renew(c, true);
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
