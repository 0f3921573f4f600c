/* SPDX-License-Identifier: BSD-3-Clause */
#include "journal.h"

#include "connection.h"

static int journal_close(sqlite3_file *file)
{
    struct journal *j = (struct journal *)file;
    if (j->connection)
        connection_lose_journal(j->connection);
    bytes_free(&j->bytes);
    return SQLITE_OK;
}

static int journal_read(sqlite3_file *file, void *to, int n, sqlite3_int64 offset)
{
    return bytes_read(&((struct journal *)file)->bytes, to, n, offset);
}

static int journal_write(sqlite3_file *file, const void *from, int n, sqlite3_int64 offset)
{
    return bytes_write(&((struct journal *)file)->bytes, from, n, offset);
}

static int journal_truncate(sqlite3_file *file, sqlite3_int64 size)
{
    bytes_cut(&((struct journal *)file)->bytes, size);
    return SQLITE_OK;
}

static int journal_size(sqlite3_file *file, sqlite3_int64 *size)
{
    *size = ((struct journal *)file)->bytes.size;
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

void journal_open(struct journal *j, struct connection *c, const char *name)
{
    /* A VFS above that hands copies of names down leaves in the dark which of several it is. */
    const bool its_own = c->without_locks && connection_owns_name(c, name);
    *j = (struct journal){.as_file.pMethods = &methods, .connection = its_own ? c : NULL};
    c->journaled = true;
}
