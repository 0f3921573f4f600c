/* SPDX-License-Identifier: BSD-3-Clause */
#include "journals.h"

#include "connection.h"
#include "data.h"
#include "database.h"
#include "fault.h"
#include "share.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- rollback journals ---- */

static bool writes_journal(const struct connection *c, const void *journal)
{
    const size_t n = strlen(c->name);
    const char *name = journal;
    return connection_writes(c) && strncmp(c->name, name, n) == 0 &&
           strcmp(name + n, "-journal") == 0;
}

/* Returns the connection that has RESERVED and a rollback journal of this name; NULL. The connection is this thread's. */
static struct connection *writer_of(const char *journal)
{
    struct connection *c = share_in_memory(journal);
    return c && c->journal == journal && connection_writes(c)
               ? c
               : database_find(writes_journal, journal);
}

/* Of a journal in memory: the memory that it begins with, and that it keeps. */
enum { FIRST_ROOM = 16 << 10, KEPT_ROOM = 1 << 20 };

/* ---- on the disk ---- */

/* SQLite appends the name of the super-journal to a journal, and this at its end; a journal's own headers are longer. */
static const unsigned char magic[8] = {0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7};

/* SQLite's own VFS writes no more than 128 KiB at once. */
enum { PIECE = 64 << 10 };

/* The beginning of a journal's header: the magic number, and how many pages follow. */
enum { BEGINNING = 12 };

/* Makes the file, with what is in memory: durably, if that is asked for or SQLite has synced it, else SQLite syncs it before it writes
 * to the database. */
static int make_file(void *journal, bool durably)
{
    struct memory_file *f = journal;
    durably |= f->is_synced;
    sqlite3_file *disk = calloc(1, (size_t)f->c->vfs->szOsFile);
    const int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_MAIN_JOURNAL;
    if (!disk)
        return SQLITE_IOERR_NOMEM;
    int r = data_delete_left_journal(f->c);
    if (r == SQLITE_OK)
        r = f->c->vfs->xOpen(f->c->vfs, f->name, disk, flags, NULL);
    /* persist-order Q1 (journals.h): the file has zeros there until the rest is durable. SQLite's checksum of a page is of every 200th
     * byte of it, and would not tell a torn one. */
    const int first = f->size < BEGINNING ? (int)f->size : BEGINNING;
    for (sqlite3_int64 at = first, n; r == SQLITE_OK && at < f->size; at += n) {
        n = f->size - at < PIECE ? f->size - at : PIECE;
        r = disk->pMethods->xWrite(disk, f->at + at, (int)n, at);
    }
    if (r == SQLITE_OK && durably)
        r = disk->pMethods->xSync(disk, SQLITE_SYNC_NORMAL);
    if (r == SQLITE_OK && first)
        r = disk->pMethods->xWrite(disk, f->at, first, 0);
    if (r == SQLITE_OK && durably) /* Q2 */
        r = disk->pMethods->xSync(disk, SQLITE_SYNC_NORMAL | SQLITE_SYNC_DATAONLY);
    if (r == SQLITE_OK) {
        f->disk = disk;
        return SQLITE_OK;
    }
    if (disk->pMethods) {
        (void)disk->pMethods->xClose(disk);
        const int gone = f->c->vfs->xDelete(f->c->vfs, f->name, durably);
        if (gone != SQLITE_OK && gone != SQLITE_IOERR_DELETE_NOENT)
            r = SQLITE_IOERR_DELETE;
    }
    free(disk);
    return r;
}

int rollback_journal_put(struct connection *c)
{
    struct memory_file *f = c->in_memory;
    if (!f || !f->is_synced || c->rollback != JOURNAL_IN_MEMORY)
        return SQLITE_OK;
    const int r = data_go_below(c, make_file, f);
    c->db->committed_below = true;
    c->deletes_durably = r == SQLITE_OK;
    return r == SQLITE_IOERR_DELETE || r == SQLITE_IOERR_LOCK ? r : SQLITE_OK;
}

/* Closes the file. SQLite deletes it, or it is `gone`: truncated, or its header is zeros. */
static int end_file(struct memory_file *f, bool gone)
{
    const int durably = 1;
    int r;
    if (!f->disk)
        return SQLITE_OK;
    r = f->disk->pMethods->xClose(f->disk);
    free(f->disk);
    f->disk = NULL;
    if (gone && r == SQLITE_OK)
        r = f->c->vfs->xDelete(f->c->vfs, f->name, durably);
    if (gone)
        f->c->rollback = JOURNAL_IN_MEMORY;
    return r;
}

/* ---- files in memory ---- */

static struct memory_file *of(sqlite3_file *file)
{
    return (struct memory_file *)file;
}

static void drop(struct memory_file *f)
{
    free(f->at);
    f->at = NULL;
    f->size = f->room = 0;
}

static int file_close(sqlite3_file *file)
{
    const int r = end_file(of(file), false);
    of(file)->c->in_memory = NULL;
    drop(of(file));
    return r;
}

static int file_read(sqlite3_file *file, void *to, int n, sqlite3_int64 offset)
{
    const struct memory_file *f = of(file);
    const sqlite3_int64 left = f->size - offset;
    const size_t there = left >= n ? (size_t)n : left > 0 ? (size_t)left : 0;
    if (there)
        memcpy(to, f->at + offset, there);
    memset((char *)to + there, 0, (size_t)n - there);
    return there == (size_t)n ? SQLITE_OK : SQLITE_IOERR_SHORT_READ;
}

static int file_write(sqlite3_file *file, const void *from, int n, sqlite3_int64 offset)
{
    struct memory_file *f = of(file);
    const sqlite3_int64 end = offset + n;
    /* The header begins with zeros at the end of a transaction with journal_mode=PERSIST. */
    static const char zeros[28];
    const bool is_end =
        offset == 0 && n == sizeof(zeros) && memcmp(from, zeros, sizeof(zeros)) == 0;
    sqlite3_int64 room = f->room ? f->room : FIRST_ROOM;
    int r = SQLITE_OK;
    while (room < end)
        room *= 2;
    char *at = room == f->room ? f->at : realloc(f->at, (size_t)room);
    if (!at)
        return SQLITE_IOERR_NOMEM;
    f->at = at;
    f->room = room;
    f->is_synced = false;
    /* A journal that is going to name a super-journal goes to the disk. First: SQLite does not roll back one whose super-journal
     * another database's rollback has deleted. What was staged is in records that SQLite has synced. */
    if (!f->disk && n == sizeof(magic) && memcmp(from, magic, sizeof(magic)) == 0) {
        pthread_mutex_lock(&f->c->in_call); /* the view stays mapped (database.c, at_exit()) */
        r = f->c->db->gone ? SQLITE_IOERR_WRITE : data_go_below(f->c, make_file, f);
        pthread_mutex_unlock(&f->c->in_call);
    }
    if (r == SQLITE_OK && f->disk)
        r = is_end ? end_file(f, true) : f->disk->pMethods->xWrite(f->disk, from, n, offset);
    if (r != SQLITE_OK)
        return r;
    if (offset > f->size)
        memset(f->at + f->size, 0, (size_t)(offset - f->size));
    memcpy(f->at + offset, from, (size_t)n);
    if (end > f->size)
        f->size = end;
    return SQLITE_OK;
}

/* Some of the memory is kept for the next use. */
static int file_truncate(sqlite3_file *file, sqlite3_int64 size)
{
    struct memory_file *f = of(file);
    int r = SQLITE_OK;
    if (f->disk)
        r = size ? f->disk->pMethods->xTruncate(f->disk, size) : end_file(f, true);
    if (size < f->size)
        f->size = size;
    if (!f->size && f->room > KEPT_ROOM)
        drop(f);
    return r;
}

static int file_sync(sqlite3_file *file, int flags)
{
    sqlite3_file *disk = of(file)->disk;
    of(file)->is_synced = true;
    return disk ? disk->pMethods->xSync(disk, flags) : SQLITE_OK;
}

static int file_size(sqlite3_file *file, sqlite3_int64 *size)
{
    *size = of(file)->size;
    return SQLITE_OK;
}

static int file_control(sqlite3_file *file, int what, void *arg)
{
    (void)file, (void)what, (void)arg;
    return SQLITE_NOTFOUND;
}

static int file_none(sqlite3_file *file)
{
    (void)file;
    return 0;
}

/* SQLite locks no journal. */
const sqlite3_io_methods memory_file_methods = {
    .iVersion = 1,
    .xClose = file_close,
    .xRead = file_read,
    .xWrite = file_write,
    .xTruncate = file_truncate,
    .xSync = file_sync,
    .xFileSize = file_size,
    .xFileControl = file_control,
    .xSectorSize = file_none,
    .xDeviceCharacteristics = file_none,
};

/* ---- xOpen and xDelete ---- */

/* Reads the super-journal's name at the end of a journal, as SQLite does: the name, its length, the sum of its bytes, the magic. */
static bool read_super(int fd, char *name, uint32_t room)
{
    unsigned char end[16];
    uint32_t length, sum;
    const off_t at = lseek(fd, 0, SEEK_END) - (off_t)sizeof(end);
    if (at < 0 || pread(fd, end, sizeof(end), at) != sizeof(end) ||
        memcmp(end + 8, magic, sizeof(magic)) != 0)
        return false;
    memcpy(&length, end, sizeof(length));
    memcpy(&sum, end + 4, sizeof(sum));
    length = be32toh(length);
    sum = be32toh(sum);
    if (length == 0 || length >= room || length > at ||
        pread(fd, name, length, at - length) != (ssize_t)length)
        return false;
    name[length] = 0;
    for (uint32_t i = 0; i < length; i++)
        sum -= (uint32_t)name[i];
    return sum == 0;
}

/* SQLite plays nothing back of a journal whose super-journal is gone: its transaction is committed. But with journal_mode=TRUNCATE or
 * PERSIST it leaves the file as it is (3.40 at least), writes the next journal over its beginning, finds the old name at the end, and
 * rolls nothing back. So it finds the journal empty. */
static void empty_committed(const char *journal)
{
    char super[PATH_MAX];
    const int fd = open(journal, O_RDWR | O_CLOEXEC);
    if (fd >= 0 && read_super(fd, super, sizeof(super)) && access(super, F_OK) < 0 &&
        errno == ENOENT)
        (void)!ftruncate(fd, 0);
    if (fd >= 0)
        close(fd);
}

int rollback_journal_open(sqlite3_vfs *below, const char *name, sqlite3_file *file, int flags,
                          int *out_flags)
{
    /* SQLite opens a journal for reading to see whether it is hot. A connection that writes has opened its own before. */
    struct connection *c = flags & SQLITE_OPEN_READWRITE ? writer_of(name) : NULL;
    if (c) /* A journal that is opened without CREATE was left on the disk by another process. */
        c->rollback = flags & SQLITE_OPEN_CREATE ? JOURNAL_IN_MEMORY : JOURNAL_ON_DISK;
    if (c && c->rollback == JOURNAL_ON_DISK)
        empty_committed(name);
    if (!c || c->rollback == JOURNAL_ON_DISK)
        return below->xOpen(below, name, file, flags, out_flags);
    /* A journal on the disk was written after SQLite had looked for one, by a process that has died. Nothing of that process's transaction
     * is in the database, since this connection has held SHARED all the time. SQLite itself would overwrite such a journal; a journal in
     * memory would leave it there, to be played back over later commits. While this connection has RESERVED no other one writes one. */
    const int durably = 1;
    int is_left = !c->db->memory || share_had_wal(c), r = SQLITE_OK;
    errno = 0;
    if (is_left)
        r = below->xAccess(below, name, SQLITE_ACCESS_EXISTS, &is_left);
    if (r == SQLITE_OK && is_left)
        r = below->xDelete(below, name, durably);
    if (r != SQLITE_OK && r != SQLITE_IOERR_DELETE_NOENT)
        return fault(
            errno == 0 || errno == EIO ? r : SQLITE_CANTOPEN,
            "cannot delete %s, a journal of another process, which SQLite could play back over "
            "later commits: delete it",
            name);
    *(struct memory_file *)file =
        (struct memory_file){.as_file.pMethods = &memory_file_methods, .name = name, .c = c};
    c->in_memory = (struct memory_file *)file;
    if (out_flags)
        *out_flags = flags;
    return SQLITE_OK;
}

int rollback_journal_delete(sqlite3_vfs *below, const char *name, int sync)
{
    struct connection *c = writer_of(name);
    const int was = c ? c->rollback : JOURNAL_ON_DISK;
    if (c)
        c->rollback = JOURNAL_NONE;
    /* The transaction of a journal in memory is committed or rolled back by now. */
    if (was == JOURNAL_IN_MEMORY)
        return SQLITE_OK;
    const int r = below->xDelete(below, name, sync || (c && c->deletes_durably)); /* Q4 */
    /* With SQLITE_IOCAP_UNDELETABLE_WHEN_OPEN of a VFS above it stays open over transactions. */
    return r == SQLITE_IOERR_DELETE_NOENT && was == JOURNAL_NONE ? SQLITE_OK : r;
}
