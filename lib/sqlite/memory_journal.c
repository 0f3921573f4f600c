/* SPDX-License-Identifier: BSD-3-Clause */
#include "memory_journal.h"

#include "fault.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

static int journal_close(sqlite3_file *file)
{
    bytes_free(&((struct memory_journal *)file)->bytes);
    return SQLITE_OK;
}

static int journal_read(sqlite3_file *file, void *to, int n, sqlite3_int64 offset)
{
    return bytes_read(&((struct memory_journal *)file)->bytes, to, n, offset);
}

static int journal_write(sqlite3_file *file, const void *from, int n, sqlite3_int64 offset)
{
    return bytes_write(&((struct memory_journal *)file)->bytes, from, n, offset);
}

static int journal_truncate(sqlite3_file *file, sqlite3_int64 size)
{
    bytes_cut(&((struct memory_journal *)file)->bytes, size);
    return SQLITE_OK;
}

static int journal_size(sqlite3_file *file, sqlite3_int64 *size)
{
    *size = ((struct memory_journal *)file)->bytes.size;
    return SQLITE_OK;
}

static int journal_sync(sqlite3_file *file, int flags)
{
    (void)file, (void)flags;
    return SQLITE_OK;
}

static int journal_lock(sqlite3_file *file, int level)
{
    (void)file, (void)level;
    return SQLITE_OK;
}

static int journal_reserved(sqlite3_file *file, int *reserved)
{
    (void)file;
    *reserved = 0;
    return SQLITE_OK;
}

static int journal_control(sqlite3_file *file, int what, void *arg)
{
    (void)file, (void)what, (void)arg;
    return SQLITE_NOTFOUND;
}

static int journal_none(sqlite3_file *file)
{
    (void)file;
    return 0;
}

static const sqlite3_io_methods methods = {
    .iVersion = 1,
    .xClose = journal_close,
    .xRead = journal_read,
    .xWrite = journal_write,
    .xTruncate = journal_truncate,
    .xSync = journal_sync,
    .xFileSize = journal_size,
    .xLock = journal_lock,
    .xUnlock = journal_lock,
    .xCheckReservedLock = journal_reserved,
    .xFileControl = journal_control,
    .xSectorSize = journal_none,
    .xDeviceCharacteristics = journal_none,
};

enum journal_left memory_journal_on_disk(const char *name)
{
    struct stat st;
    char first = 0;
    if (stat(name, &st) < 0)
        return errno == ENOENT || errno == ENAMETOOLONG ? JOURNAL_NONE : JOURNAL_UNKNOWN;
    if (!S_ISREG(st.st_mode))
        return JOURNAL_NO_FILE;
    const int fd = open(name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    const ssize_t n = fd < 0 ? -1 : pread(fd, &first, 1, 0);
    if (fd >= 0)
        (void)close(fd);
    return n < 0 ? JOURNAL_UNKNOWN : first ? JOURNAL_HOT : JOURNAL_COLD;
}

/* The journal was written after SQLite had looked for one, by a process that has died. Nothing of that process's transaction is
 * in the database, since this connection has held SHARED all the time. SQLite itself would overwrite such a journal; a journal
 * in memory would leave it there, to be played back over later commits. */
static int delete_left(sqlite3_vfs *below, const char *name)
{
    const int durably = 1;
    const int r = below->xDelete(below, name, durably);
    if (r == SQLITE_OK || r == SQLITE_IOERR_DELETE_NOENT ||
        memory_journal_on_disk(name) == JOURNAL_COLD)
        return SQLITE_OK;
    return fault(SQLITE_CANTOPEN,
                 "cannot delete %s, the journal of a dead process, which SQLite would play back "
                 "over later commits: delete it",
                 name);
}

int memory_journal_open(struct memory_journal *j, sqlite3_vfs *below, const char *name,
                        enum journal_left left)
{
    const int r = left == JOURNAL_NONE ? SQLITE_OK : delete_left(below, name);
    if (r == SQLITE_OK)
        *j = (struct memory_journal){.as_file.pMethods = &methods};
    return r;
}
