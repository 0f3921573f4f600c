/* SPDX-License-Identifier: BSD-3-Clause */
#include "direct.h"

#include "connection.h"
#include "database.h"
#include "fault.h"
#include "length.h"
#include "mask.h"

#include <errno.h>
#include <string.h>

/* Is the file to be right by itself after each transaction? */
static bool is_eager(const struct connection *c)
{
    struct ato_stat st = {.struct_size = offsetof(struct ato_stat, size)};
    return ato_stat(c->staged.view, &st) == 0 && st.read_policy == ATO_READ_EAGER;
}

int direct_go(struct connection *c)
{
    if (!c->direct && mask_take_off(c->staged.view, c->db->fd) < 0)
        return -1;
    c->direct = true;
    return 0;
}

void direct_leave(struct connection *c)
{
    if ((c->becomes_wal || is_eager(c)) && direct_go(c) < 0)
        fault_ignored("other programs still refuse", c->name);
    c->has_staged = false;
}

bool direct_maps_below(const struct connection *c)
{
    return c->journal_file && c->real->pMethods->iVersion >= 3;
}

/* A masked file without a guard was copied while its database was not plain: what it lacks is in the reflection of the
 * file that it was copied from. */
static int check_guard(struct connection *c, const char *header)
{
    char in_file[MASK_HEADER];
    struct ato_stat st = {.struct_size = sizeof(st)};
    if (c->db->guarded)
        return SQLITE_OK;
    if (ato_stat(c->staged.view, &st) < 0)
        return fault_of_libato(SQLITE_IOERR_LOCK, "cannot look at", c->name);
    /* Perhaps somebody has taken both away by now. */
    if (!st.guard_bytes && database_read_header(c->db, in_file, MASK_HEADER) &&
        !mask_is_on(in_file))
        return SQLITE_BUSY;
    if (!st.guard_bytes && !(c->takes_file && c->writable))
        return fault(
            SQLITE_CANTOPEN,
            "%s: was copied while libato held the database that it is a copy of, and some of its "
            "pages are old "
            "or missing; copy it again when that is closed, or say prefer=file to use it as it is",
            c->name);
    if (!st.guard_bytes && mask_set_plain(c->staged.view, header) < 0)
        return fault_of_libato(SQLITE_IOERR_LOCK, "cannot guard", c->name);
    c->db->guarded = true;
    return SQLITE_OK;
}

/* Brings all home and takes the mask off, before it reads. One at a time, and nobody who stages. */
static int unmask(struct connection *c)
{
    if (mask_lock(c->db->fd) < 0)
        return SQLITE_BUSY;
    const int r = direct_go(c);
    mask_unlock(c->db->fd);
    return r < 0 ? fault_of_libato(SQLITE_IOERR_LOCK, "cannot make plain", c->name) : SQLITE_OK;
}

/* Has a file without a mask slices in its reflection, or a guard? Nobody leaves it so who lives and uses this VFS. */
static int look_at_reflection(struct connection *c, bool *left)
{
    struct ato_stat st = {.struct_size = sizeof(st)};
    *left = false;
    if (c->db->whole)
        return SQLITE_OK;
    if (ato_stat(c->staged.view, &st) < 0)
        return fault_of_libato(SQLITE_IOERR_LOCK, "cannot look at", c->name);
    *left = st.slices_in_reflection || st.guard_bytes;
    c->db->whole = !*left;
    return SQLITE_OK;
}

/* What the view, and the file, begin with; zeros, if that is nothing. */
static int read_headers(struct connection *c, char header[MASK_HEADER], char in_file[MASK_HEADER])
{
    char *view = c->staged.view;
    memset(header, 0, MASK_HEADER);
    memset(in_file, 0, MASK_HEADER);
    bool has_header = true;
    /* A load finds the file's own copy, for less than a read. */
    if (view && !c->direct && c->db->guarded)
        memcpy(in_file, view, MASK_HEADER);
    else
        has_header = database_read_header(c->db, in_file, MASK_HEADER);
    if (has_header && view && length_of_view(c) >= MASK_HEADER &&
        !ato_memcpy(header, view, MASK_HEADER) && errno != EFAULT)
        return fault_of_libato(SQLITE_IOERR_READ, "cannot read the header of", c->name);
    return SQLITE_OK;
}

/* Is the file by itself right? To be asked with a SHARED lock: until it is given back no other connection can mask the
 * file, nor write to one that it unmasks. */
static int look_at_header(struct connection *c)
{
    char header[MASK_HEADER], in_file[MASK_HEADER];
    const bool has_view = c->staged.view;
    bool left = false;
    int r = read_headers(c, header, in_file);
    if (r != SQLITE_OK)
        return r;
    /* Of view and file only one has the mask where a process was killed that put it on or took it off. */
    const int half_on = has_view ? mask_is_half_on(c->staged.view, header, in_file) : 0;
    if (half_on < 0)
        return fault_of_libato(SQLITE_IOERR_LOCK, "cannot look at", c->name);
    const bool half_off = !mask_is_on(header) && mask_is_on(in_file);
    const bool is_masked = !half_on && (mask_is_on(header) || half_off);
    if (has_view && !half_on)
        r = is_masked ? check_guard(c, header) : look_at_reflection(c, &left);
    if (r != SQLITE_OK)
        return r;
    if (mask_is_on(header))
        mask_translate(header, sizeof(header), 0);
    const bool stages_none = c->journal_file || mask_is_wal(header);
    const bool unmasks = left || half_on || half_off || (is_masked && stages_none);
    c->direct = !is_masked && !left && !(half_on && c->writable);
    if (has_view && c->writable && unmasks)
        r = unmask(c);
    else if (has_view && is_masked && mask_is_wal(header))
        r = fault(
            SQLITE_READONLY_ROLLBACK,
            "%s: is first to be opened by who may write, for who turned WAL mode on was killed",
            c->name);
    if (!c->direct && direct_maps_below(c))
        (void)c->real->pMethods->xUnfetch(c->real, 0, NULL);
    if (c->direct)
        c->cut_to = 0;
    if (c->direct && has_view && database_length(c->db) != length_of_view(c))
        database_renew(c->db, c, true, c->name);
    return r;
}

/* Who commits has all locks to itself; if it is killed there, somebody else has them, while what it was about to show
 * is not there yet, and would come in the middle of a transaction. */
int direct_settle(struct connection *c)
{
    if (!c->staged.view)
        database_renew(c->db, c, false, c->name);
    if (!c->staged.view || ato_settle(c->staged.view) == 0)
        return look_at_header(c);
    const int code = errno == ETIMEDOUT ? SQLITE_BUSY
                     : errno == EAGAIN  ? SQLITE_READONLY_ROLLBACK
                                        : SQLITE_IOERR_LOCK;
    return fault_of_libato(code, "cannot lock", c->name);
}
