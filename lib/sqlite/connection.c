/* SPDX-License-Identifier: BSD-3-Clause */
#include "connection.h"

#include "database.h"
#include "fault.h"
#include "mask.h"
#include "parameters.h"
#include "pragma.h"
#include "super.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static struct connection *of(sqlite3_file *file)
{
    return ((struct connection_file *)file)->connection;
}

/* Of all calls that have to do with the view. Nearly always there is nobody to wait for. */
static struct connection *enter(sqlite3_file *file)
{
    struct connection *c = of(file);
    pthread_mutex_lock(&c->in_call);
    c->error = errno;
    return c;
}

/* The VFS below may look at errno after a failure of its own that set none (an ENXIO of ours, of the end of a file's
 * data, would be a damaged file system to it). */
static int leave(struct connection *c, int result)
{
    if (result == SQLITE_OK)
        errno = c->error;
    pthread_mutex_unlock(&c->in_call);
    return result;
}

/* Are writes part of a transaction? Without such a lock they are a checkpoint's, which are in the WAL until
 * all of them are there. With a journal on the disk they are as SQLite means them: at once. */
static bool stages(const struct connection *c)
{
    if (c->checkpoint || c->journal_file || c->plays_back)
        return false;
    return connection_writes(c) || c->batch;
}

/* Is the file to be right by itself after each transaction? */
static bool is_eager(const struct connection *c)
{
    struct ato_stat st = {.struct_size = offsetof(struct ato_stat, size)};
    return ato_stat(c->staged.view, &st) == 0 && st.read_policy == ATO_READ_EAGER;
}

static sqlite3_int64 view_size(const struct connection *c)
{
    return c->staged.view ? (sqlite3_int64)ato_size(c->staged.view) : -1;
}

/* ---- commit and abort ---- */

/* A new file has no header before the commit, so none that could be masked; its guard is set when the header is known. */
static int guard_new_file(struct connection *c)
{
    char header[MASK_HEADER];
    if (!c->unguarded)
        return 0;
    if (staged_read(&c->staged, header, sizeof(header), 0) < 0 ||
        mask_set_plain(c->staged.view, header) < 0)
        return -1;
    c->unguarded = false;
    return 0;
}

static int commit(struct connection *c, int code)
{
    if (!c->staged.tx || (guard_new_file(c) == 0 && staged_commit(&c->staged) == 0))
        return SQLITE_OK;
    return fault_of_libato(code, "cannot commit to", c->name);
}

static void abandon(struct connection *c)
{
    super_give_up(c);
    staged_abort(&c->staged);
    c->batch = c->refused = c->unguarded = c->becomes_wal = false;
}

/* The rollback of a prepared database ends so, too: what is staged by then is what was there before; of one that
 * could not be prepared perhaps not, for its super-journal may be gone by then. */
static int sync_control(struct connection *c, const char *super)
{
    if (c->journal_file)
        return SQLITE_OK;
    c->checkpointed = false;
    if (super) {
        if (guard_new_file(c) < 0)
            return fault_of_libato(SQLITE_IOERR_FSYNC, "cannot guard", c->name);
        int r = super_bind(c, super);
        c->refused = r != SQLITE_OK;
        return r;
    }
    super_give_up(c);
    if (c->refused)
        abandon(c);
    return commit(c, SQLITE_IOERR_FSYNC);
}

/* A file that got shorter keeps its length while it is mapped. */
static void cut(struct connection *c)
{
    if (c->shorter && database_length(c->db) > view_size(c))
        database_renew(c->db, c, false, c->name);
    c->shorter = false;
}

/* Nothing of the file is in its reflection from now on: the VFS below may have it. 0; -1 as of libato. */
static int go_direct(struct connection *c)
{
    if (!c->direct && mask_take_off(c->staged.view, c->db->fd) < 0)
        return -1;
    c->direct = true;
    return 0;
}

/* From now on it is the VFS below's. If that fails, the next checkpoint tries again, or the next transaction. */
static void leave_to_others(struct connection *c)
{
    if ((c->becomes_wal || is_eager(c)) && go_direct(c) < 0)
        fault_ignored("other programs still refuse", c->name);
}

/* Only a VFS above that held its writes back has any now; a new size that is lost is cut later. */
static int after_commit(struct connection *c)
{
    if (c->super)
        return SQLITE_OK;
    if (c->staged.tx && c->staged.writes) {
        int r = commit(c, SQLITE_IOERR_FSYNC);
        if (r != SQLITE_OK)
            return r;
    } else if (c->staged.tx && staged_commit(&c->staged) < 0) {
        fault_ignored("cannot cut", c->name);
        staged_abort(&c->staged);
    }
    cut(c);
    leave_to_others(c);
    c->becomes_wal = false;
    return SQLITE_OK;
}

/* ---- data ---- */

/* Others may have cut the file, by their own means, and what lies behind its end is SIGBUS. */
static sqlite3_int64 committed_size(struct connection *c)
{
    const sqlite3_int64 size = view_size(c);
    return c->cut_to && c->cut_to - 1 < size ? c->cut_to - 1 : size;
}

/* Another process may have made it longer than it is mapped here: its size is where the mapping ends, then. */
static bool is_outgrown(const struct connection *c, sqlite3_int64 size)
{
    return size >= c->reach && database_length(c->db) > c->reach;
}

static int size_of(struct connection *c, sqlite3_int64 *size)
{
    if (c->direct && !c->staged.tx)
        return c->real->pMethods->xFileSize(c->real, size);
    *size = c->staged.tx ? c->staged.size : committed_size(c);
    if (!c->staged.tx && is_outgrown(c, *size)) {
        database_renew(c->db, c, false, c->name);
        *size = committed_size(c);
        if (is_outgrown(c, *size))
            return fault(SQLITE_IOERR_FSTAT,
                         "another process has made %s longer than it is mapped here", c->name);
    }
    return *size < 0 ? fault_of_libato(SQLITE_IOERR_FSTAT, "cannot tell the size of", c->name)
                     : SQLITE_OK;
}

/* In this order: another process may make it longer, which begins with its length. Does it have another length than the
 * view? */
static bool look_at_length(struct connection *c)
{
    const sqlite3_int64 size = view_size(c), length = database_length(c->db);
    c->cut_to = length >= 0 && length < size ? length + 1 : 0;
    return length != size && length != c->looked_at;
}

/* By now the file may have been cut, or written anew, by other means than this; where all was home, that is
 * taken for what it is. */
static void find_length(struct connection *c)
{
    if (!c->staged.view)
        database_renew(c->db, c, false, c->name);
    /* A length that lasts is of a file that got shorter, and that others have mapped. */
    if (look_at_length(c)) {
        c->looked_at = database_length(c->db);
        database_renew(c->db, c, true, c->name);
        (void)look_at_length(c);
    }
}

static int read_there(struct connection *c, void *to, int n, sqlite3_int64 offset)
{
    if (c->staged.tx)
        return staged_read(&c->staged, to, n, offset);
    return ato_memcpy(to, c->staged.view + offset, (size_t)n) ? 0 : -1;
}

static int read_bytes(struct connection *c, void *to, int n, sqlite3_int64 offset)
{
    if (c->direct && !c->staged.tx)
        return c->real->pMethods->xRead(c->real, to, n, offset);
    for (int tries = 0;; tries++) {
        sqlite3_int64 size;
        int r = size_of(c, &size);
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
        /* Who reads without a lock may see the file get shorter in between. */
        if (errno != EFAULT || tries == 100)
            return fault_of_libato(SQLITE_IOERR_READ, "cannot read", c->name);
    }
}

/* Of the header it is the plain one; also of a file that is shorter than the page that SQLite takes it to have. */
static int read_plain(struct connection *c, void *to, int n, sqlite3_int64 offset)
{
    char header[MASK_HEADER] = {0};
    int r = read_bytes(c, to, n, offset);
    if (offset >= MASK_HEADER || (r != SQLITE_OK && r != SQLITE_IOERR_SHORT_READ))
        return r;
    if (offset == 0 && n >= MASK_HEADER)
        memcpy(header, to, sizeof(header));
    else
        (void)read_bytes(c, header, sizeof(header), 0);
    if (mask_is_on(header))
        mask_translate(to, (size_t)n, offset);
    return r;
}

static int check_writable(const struct connection *c)
{
    if (c->cut_to)
        return fault(SQLITE_IOERR_WRITE,
                     "%s was cut to %lld bytes by other means while it was open", c->name,
                     (long long)c->cut_to - 1);
    return c->writable ? SQLITE_OK : SQLITE_READONLY;
}

/* Is the view as long as what others made of the file? */
static int find_view(struct connection *c, int code)
{
    c->looked_at = -1;
    find_length(c);
    if (database_length(c->db) == view_size(c))
        return SQLITE_OK;
    return fault(code,
                 "%s got another length while several processes had it open through ato: it can be "
                 "written to when each of them has looked at it, or closed it",
                 c->name);
}

/* Before a transaction is staged, under the EXCLUSIVE lock. */
static int begin_to_stage(struct connection *c, int code)
{
    if (c->staged.tx)
        return SQLITE_OK;
    int r = c->direct ? find_view(c, code) : SQLITE_OK;
    if (r != SQLITE_OK)
        return r;
    /* While it is masked nobody cuts it; and one without a mask may be another by now than the one that was guarded. */
    const sqlite3_int64 length = c->direct ? database_length(c->db) : MASK_HEADER;
    c->db->guarded &= !c->direct;
    c->direct = false;
    if (mask_put_on(c->staged.view, length, &c->db->guarded) == 0)
        return SQLITE_OK;
    return fault_of_libato(code, "cannot begin to write to", c->name);
}

/* The slice of the header is masked. */
static int stage(struct connection *c, const void *from, int n, sqlite3_int64 offset)
{
    char header[64];
    if (offset != 0 || n < (int)sizeof(header))
        return staged_write(&c->staged, from, n, offset);
    memcpy(header, from, sizeof(header));
    c->becomes_wal = mask_is_wal(header);
    c->unguarded = !c->db->guarded;
    mask_translate(header, sizeof(header), 0);
    if (staged_write(&c->staged, header, sizeof(header), 0) < 0)
        return -1;
    return n == sizeof(header) ? 0
                               : staged_write(&c->staged, (const char *)from + sizeof(header),
                                              n - (int)sizeof(header), sizeof(header));
}

/* Of a checkpoint, or with a journal on the disk: the file is what SQLite's own VFS would leave, also after a kill. */
static int write_through(struct connection *c, const void *from, int n, sqlite3_int64 offset)
{
    if (go_direct(c) < 0)
        return fault_of_libato(SQLITE_IOERR_WRITE, "cannot write to", c->name);
    /* As long as nobody else makes it longer the view follows. */
    const sqlite3_int64 end = offset + n, size = view_size(c);
    if (end > size && size == database_length(c->db) && ato_ftruncate(c->staged.view, end) < 0)
        return fault_of_libato(SQLITE_IOERR_WRITE, "cannot make longer", c->name);
    return c->real->pMethods->xWrite(c->real, from, n, offset);
}

static int write_bytes(struct connection *c, const void *from, int n, sqlite3_int64 offset)
{
    int r = check_writable(c);
    if (r != SQLITE_OK)
        return r;
    if (!stages(c))
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

static int change_size(struct connection *c, sqlite3_int64 size)
{
    int r = check_writable(c);
    if (r != SQLITE_OK)
        return r;
    size = in_chunks(c, size);
    /* What ends a checkpoint, perhaps under the lock of the last close, is no transaction's. */
    const bool is_staged = stages(c) && (c->staged.tx || !c->checkpointed);
    if (!is_staged)
        return go_direct(c) == 0
                   ? c->real->pMethods->xTruncate(c->real, size)
                   : fault_of_libato(SQLITE_IOERR_TRUNCATE, "cannot change the size of", c->name);
    r = begin_to_stage(c, SQLITE_IOERR_TRUNCATE);
    if (r == SQLITE_OK && staged_resize(&c->staged, size) < 0)
        r = fault_of_libato(SQLITE_IOERR_TRUNCATE, "cannot change the size of", c->name);
    c->shorter |= r == SQLITE_OK;
    return r;
}

/* What is committed is durable, as far as the domain reaches; one that does not reach the medium leaves the
 * rest to the VFS below. */
static int sync_all(struct connection *c, int flags)
{
    int r = c->super ? SQLITE_OK : commit(c, SQLITE_IOERR_FSYNC);
    if (r == SQLITE_OK && (c->direct || !database_is_durable(c->db)))
        r = c->real->pMethods->xSync(c->real, flags);
    return r;
}

/* Only of a database that the VFS below alone makes shorter: it would not know of another cut, and what lies behind the
 * end of a file is SIGBUS. */
static bool maps_below(const struct connection *c)
{
    return c->journal_file && c->real->pMethods->iVersion >= 3;
}

/* A masked file without a guard was copied while its database was not plain: what it lacks is in the reflection of the
 * file that it was copied from. */
static int check_guard(struct connection *c, const char *header)
{
    struct ato_stat st = {.struct_size = sizeof(st)};
    if (c->db->guarded)
        return SQLITE_OK;
    if (ato_stat(c->staged.view, &st) < 0)
        return fault_of_libato(SQLITE_IOERR_LOCK, "cannot look at", c->name);
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

/* Brings all home and takes the mask off, before it reads. Under RESERVED: one at a time, and nobody who stages. */
static int unmask(struct connection *c)
{
    int r = c->real->pMethods->xLock(c->real, SQLITE_LOCK_RESERVED);
    if (r != SQLITE_OK)
        return r;
    if (go_direct(c) < 0)
        r = fault_of_libato(SQLITE_IOERR_LOCK, "cannot make plain", c->name);
    const int unlocked = c->real->pMethods->xUnlock(c->real, SQLITE_LOCK_SHARED);
    return r == SQLITE_OK ? unlocked : r;
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
    /* While it is masked nobody cuts it; and a load, which takes no call, finds the file's own copy. */
    if (view && !c->direct && c->db->guarded)
        memcpy(in_file, view, MASK_HEADER);
    else
        has_header = database_read_header(c->db, in_file, MASK_HEADER);
    if (has_header && view && view_size(c) >= MASK_HEADER &&
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
    if (!c->direct && maps_below(c))
        (void)c->real->pMethods->xUnfetch(c->real, 0, NULL);
    if (c->direct)
        c->cut_to = 0;
    if (c->direct && has_view && database_length(c->db) != view_size(c))
        database_renew(c->db, c, true, c->name);
    return r;
}

/* Who commits has all locks to itself; if it is killed there, somebody else has them, while what it was about to show
 * is not there yet, and would come in the middle of a transaction. */
static int settle_view(struct connection *c)
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

/* Without locks a transaction begins where SQLite reads its counter, or, the first one, asks for the size. */
static int settle_without_locks(struct connection *c)
{
    return c->without_locks && !c->staged.tx ? settle_view(c) : SQLITE_OK;
}

/* SQLite asks at the beginning of each transaction. */
static int find_size(struct connection *c, sqlite3_int64 *size)
{
    int r = settle_without_locks(c);
    if (!c->staged.tx && !c->direct)
        find_length(c);
    return r == SQLITE_OK ? size_of(c, size) : r;
}

/* Where a flush is a system call that writes, a second page of a neighbourhood brings home all of it, once: a look
 * at each of its pages would take longer than to read one. */
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

static int fetch(struct connection *c, sqlite3_int64 offset, int n, void **page)
{
    const sqlite3_int64 end = offset + n;
    *page = NULL;
    if (c->direct)
        return maps_below(c) ? c->real->pMethods->xFetch(c->real, offset, n, page) : SQLITE_OK;
    const sqlite3_int64 size = committed_size(c);
    if (offset < MASK_HEADER || end > c->fetch_limit || c->staged.tx || !c->writable || end > size)
        return SQLITE_OK;
    sqlite3_int64 first = offset, last = end;
    /* Without locks they may be pages of a transaction, which would be waited for. */
    if (database_flushes_by_calls(c->db) && !c->without_locks &&
        takes_neighbours(c, offset / NEIGHBOURHOOD)) {
        first -= first % NEIGHBOURHOOD;
        last = first + NEIGHBOURHOOD > end ? first + NEIGHBOURHOOD : end;
        last = last < size ? last : size;
    }
    if (ato_deploy(c->staged.view + first, (size_t)(last - first)) == 0) {
        *page = c->staged.view + offset;
        c->fetched++;
    }
    return SQLITE_OK;
}

/* SQLite reads its counter of transactions when it begins one. */
static bool is_counter(const struct connection *c, int n, sqlite3_int64 offset)
{
    enum { COUNTER_AT = 24 };
    return offset == COUNTER_AT && n == (int)sizeof(c->counter);
}

/* After a checkpoint it has no new one: then pages come home one by one, until it has. */
static void look_at_counter(struct connection *c, const void *bytes)
{
    if (memcmp(c->counter, bytes, sizeof(c->counter)) == 0)
        return;
    memcpy(c->counter, bytes, sizeof(c->counter));
    memset(c->neighbours, 0, sizeof(c->neighbours));
}

/* ---- locks ---- */

static int settle(sqlite3_file *file)
{
    struct connection *c = enter(file);
    const int r = settle_view(c);
    if (r != SQLITE_OK)
        (void)c->real->pMethods->xUnlock(c->real, SQLITE_LOCK_NONE);
    return leave(c, r);
}

/* Who could not begin to stage is told so here, where SQLite tries again. */
static int reserve(sqlite3_file *file)
{
    struct connection *c = enter(file);
    const int r = c->direct && !c->journal_file ? find_view(c, SQLITE_BUSY) : SQLITE_OK;
    if (r != SQLITE_OK)
        (void)c->real->pMethods->xUnlock(c->real, c->lock);
    return leave(c, r);
}

static int connection_lock(sqlite3_file *file, int level)
{
    struct connection *c = of(file);
    if (level >= SQLITE_LOCK_RESERVED && !c->writable)
        return c->denied ? fault(c->denied,
                                 "%s cannot be written: why, was said when it was opened", c->name)
                         : SQLITE_READONLY;
    const bool first = c->lock < SQLITE_LOCK_SHARED;
    int r = c->real->pMethods->xLock(c->real, level);
    if (r == SQLITE_OK && first)
        r = settle(file);
    if (r == SQLITE_OK && c->lock < SQLITE_LOCK_RESERVED && level >= SQLITE_LOCK_RESERVED)
        r = reserve(file);
    if (r == SQLITE_OK && level > c->lock)
        __atomic_store_n(&c->lock, level, __ATOMIC_RELAXED);
    return r;
}

static int unlock(struct connection *c, int level)
{
    c->checkpointed = false;
    /* Before others may write: their transactions would wait for this one's pages. */
    if (level < SQLITE_LOCK_RESERVED && c->lock >= SQLITE_LOCK_RESERVED) {
        const bool rolls_back = c->staged.tx;
        abandon(c);
        if (rolls_back)
            leave_to_others(c);
    }
    /* SQLite keeps it open, and writes to it, for as long as it has any lock, if it is not to be deleted. */
    if (level == SQLITE_LOCK_NONE)
        c->plays_back = false;
    /* Before somebody else has the lock, whose journal must not be taken for this connection's. */
    if (level < c->lock)
        __atomic_store_n(&c->lock, level, __ATOMIC_RELAXED);
    return c->real->pMethods->xUnlock(c->real, level);
}

static int connection_reserved(sqlite3_file *file, int *reserved)
{
    struct connection *c = of(file);
    return c->real->pMethods->xCheckReservedLock(c->real, reserved);
}

/* ---- what SQLite has to say, and to ask ---- */

static int hint(struct connection *c, sqlite3_int64 size)
{
    sqlite3_int64 now = 0;
    int r = c->writable ? size_of(c, &now) : SQLITE_OK;
    if (r != SQLITE_OK || size <= now || !c->writable)
        return r;
    if (!stages(c))
        return c->chunk ? change_size(c, size) : SQLITE_OK;
    r = begin_to_stage(c, SQLITE_IOERR_WRITE);
    if (r == SQLITE_OK && (c->chunk ? staged_resize(&c->staged, in_chunks(c, size))
                                    : staged_hint(&c->staged, size)) < 0)
        r = fault_of_libato(SQLITE_IOERR_WRITE, "cannot change the size of", c->name);
    return r;
}

/* The VFS below knows what limit there is to limits. It maps the file only if maps_below(). */
static int limit_fetches(struct connection *c, sqlite3_int64 *limit)
{
    sqlite3_int64 now = -1;
    if (c->fetched)
        *limit = -1;
    int r = c->real->pMethods->xFileControl(c->real, SQLITE_FCNTL_MMAP_SIZE, limit);
    if (r == SQLITE_OK)
        r = c->real->pMethods->xFileControl(c->real, SQLITE_FCNTL_MMAP_SIZE, &now);
    if (r == SQLITE_OK)
        c->fetch_limit = now;
    return r;
}

static int begin_batch(struct connection *c)
{
    c->batch = true;
    return SQLITE_OK;
}

/* A failure that is SQLITE_IOERR makes SQLITE try with a journal. */
static int end_batch(struct connection *c)
{
    int r = commit(c, SQLITE_IOERR_COMMIT_ATOMIC);
    if (r == SQLITE_OK)
        c->batch = false;
    return r == SQLITE_FULL ? SQLITE_IOERR_COMMIT_ATOMIC : r;
}

static int control(struct connection *c, int what, void *arg)
{
    int r;
    switch (what) {
    case SQLITE_FCNTL_SYNC:
        return sync_control(c, arg);
    case SQLITE_FCNTL_COMMIT_PHASETWO:
        return after_commit(c);
    case SQLITE_FCNTL_BEGIN_ATOMIC_WRITE:
        return begin_batch(c);
    case SQLITE_FCNTL_COMMIT_ATOMIC_WRITE:
        return end_batch(c);
    case SQLITE_FCNTL_ROLLBACK_ATOMIC_WRITE:
        abandon(c);
        return SQLITE_OK;
    case SQLITE_FCNTL_CKPT_START:
    case SQLITE_FCNTL_CKPT_DONE:
        c->checkpoint = what == SQLITE_FCNTL_CKPT_START;
        c->checkpointed = !c->checkpoint;
        return SQLITE_OK;
    case SQLITE_FCNTL_SIZE_HINT:
        return hint(c, *(sqlite3_int64 *)arg);
    case SQLITE_FCNTL_CHUNK_SIZE:
        c->chunk = *(int *)arg > 0 ? *(int *)arg : 0;
        return SQLITE_OK;
    case SQLITE_FCNTL_MMAP_SIZE:
        return limit_fetches(c, arg);
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

/* Neither SAFE_APPEND nor SEQUENTIAL, which save syncs of a journal: one in memory has none to save. */
static int connection_characteristics(sqlite3_file *file)
{
    struct connection *c = of(file);
    int is = c->real->pMethods->xDeviceCharacteristics(c->real);
    if (!c->journal_file && sqlite3_compileoption_used("ENABLE_BATCH_ATOMIC_WRITE"))
        is |= SQLITE_IOCAP_BATCH_ATOMIC;
    return is;
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
    abandon(c);
    find_length(c);
    const int r = leave(c, c->real->pMethods->xClose(c->real));
    database_close(c->db, c, c->name);
    free(c);
    return r;
}

/* ---- as a file ---- */

static int connection_read(sqlite3_file *file, void *to, int n, sqlite3_int64 offset)
{
    struct connection *c = enter(file);
    const bool begins = is_counter(c, n, offset);
    /* Before it has a lock SQLite reads the header; others may have cut the file. */
    if (c->lock == SQLITE_LOCK_NONE && !c->staged.tx && !c->direct)
        look_at_length(c);
    int r = begins ? settle_without_locks(c) : SQLITE_OK;
    if (r == SQLITE_OK)
        r = read_plain(c, to, n, offset);
    if (r == SQLITE_OK && begins)
        look_at_counter(c, to);
    return leave(c, r);
}

static int connection_write(sqlite3_file *file, const void *from, int n, sqlite3_int64 offset)
{
    struct connection *c = enter(file);
    return leave(c, write_bytes(c, from, n, offset));
}

static int connection_truncate(sqlite3_file *file, sqlite3_int64 size)
{
    struct connection *c = enter(file);
    return leave(c, change_size(c, size));
}

static int connection_sync(sqlite3_file *file, int flags)
{
    struct connection *c = enter(file);
    return leave(c, sync_all(c, flags));
}

static int connection_size(sqlite3_file *file, sqlite3_int64 *size)
{
    struct connection *c = enter(file);
    return leave(c, find_size(c, size));
}

static int connection_unlock(sqlite3_file *file, int level)
{
    struct connection *c = enter(file);
    return leave(c, unlock(c, level));
}

static int connection_control(sqlite3_file *file, int what, void *arg)
{
    struct connection *c = enter(file);
    return leave(c, control(c, what, arg));
}

static int connection_fetch(sqlite3_file *file, sqlite3_int64 offset, int n, void **page)
{
    struct connection *c = enter(file);
    return leave(c, fetch(c, offset, n, page));
}

/* page: NULL when SQLite wants addresses to be forgotten, with none in use. */
static int connection_unfetch(sqlite3_file *file, sqlite3_int64 offset, void *page)
{
    struct connection *c = enter(file);
    const char *view = c->staged.view;
    const bool is_ours = view && (char *)page >= view && (char *)page < view + c->reach;
    int r = SQLITE_OK;
    if (is_ours)
        c->fetched--;
    else if (maps_below(c))
        r = c->real->pMethods->xUnfetch(c->real, offset, page);
    return leave(c, r);
}

static const sqlite3_io_methods methods = {
    .iVersion = 3,
    .xClose = connection_close,
    .xRead = connection_read,
    .xWrite = connection_write,
    .xTruncate = connection_truncate,
    .xSync = connection_sync,
    .xFileSize = connection_size,
    .xLock = connection_lock,
    .xUnlock = connection_unlock,
    .xCheckReservedLock = connection_reserved,
    .xFileControl = connection_control,
    .xSectorSize = connection_sector_size,
    .xDeviceCharacteristics = connection_characteristics,
    .xShmMap = connection_shm_map,
    .xShmLock = connection_shm_lock,
    .xShmBarrier = connection_shm_barrier,
    .xShmUnmap = connection_shm_unmap,
    .xFetch = connection_fetch,
    .xUnfetch = connection_unfetch,
};

void connection_lose_journal(struct connection *c)
{
    pthread_mutex_lock(&c->in_call);
    abandon(c);
    pthread_mutex_unlock(&c->in_call);
}

bool connection_writes(const struct connection *c)
{
    return (c->without_locks && c->writable) ||
           __atomic_load_n(&c->lock, __ATOMIC_RELAXED) >= SQLITE_LOCK_RESERVED;
}

/* Of a VFS below that has none (unix-none): SQLite must see that it has none, or it would call what is not there. */
static const sqlite3_io_methods methods_without_shm = {
    .iVersion = 3,
    .xClose = connection_close,
    .xRead = connection_read,
    .xWrite = connection_write,
    .xTruncate = connection_truncate,
    .xSync = connection_sync,
    .xFileSize = connection_size,
    .xLock = connection_lock,
    .xUnlock = connection_unlock,
    .xCheckReservedLock = connection_reserved,
    .xFileControl = connection_control,
    .xSectorSize = connection_sector_size,
    .xDeviceCharacteristics = connection_characteristics,
    .xFetch = connection_fetch,
    .xUnfetch = connection_unfetch,
};

bool connection_has_journal(const struct connection *c, const char *journal)
{
    static const char ending[] = "-journal";
    const size_t n = strlen(c->name);
    return strncmp(c->name, journal, n) == 0 && strcmp(journal + n, ending) == 0;
}

bool connection_owns_name(const struct connection *c, const char *journal)
{
    return sqlite3_filename_journal(c->name) == journal;
}

/* Why no reflection can be made, where the file can be read all the same; 0: it cannot. */
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
        return 0;
    }
}

/* The one below is open, for `flags`. Where no reflection can be made the database may be read, as with SQLite's own
 * VFS where no journal can: who wants to write is told when it asks for the lock. */
static int attach(struct connection *c, int flags)
{
    struct parameters p;
    bool by_system;
    int r = parameters_read(&p, c->name);
    if (r != SQLITE_OK)
        return r;
    struct database_wish wish = {.path = c->name,
                                 .writable = !(flags & SQLITE_OPEN_READONLY),
                                 .max_size = p.max_size,
                                 .flags = p.prefer};
    c->journal_file = p.journal_on_disk;
    c->unmap_fast = p.unmap_fast;
    c->without_locks = p.without_locks;
    c->takes_file = p.prefer == ATO_PREFER_FILE;
    c->writable = wish.writable;
    c->db = database_open(&wish, c, &by_system);
    if (c->db)
        return SQLITE_OK;
    const int denied = why_only_read(errno);
    r = by_system ? fault_of_system(SQLITE_CANTOPEN, "cannot open", c->name)
                  : fault_of_libato(SQLITE_CANTOPEN, "cannot map", c->name);
    if (!wish.writable || by_system || !denied)
        return r;
    c->denied = denied;
    c->writable = wish.writable = false;
    c->db = database_open(&wish, c, &by_system);
    return c->db ? SQLITE_OK : r;
}

int connection_open(struct connection_file *f, sqlite3_vfs *below, const char *name, int flags,
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
        r = attach(c, opened);
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
