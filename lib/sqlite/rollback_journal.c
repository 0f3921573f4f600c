/* SPDX-License-Identifier: BSD-3-Clause */
#include "rollback_journal.h"

#include "connection.h"
#include "database.h"
#include "fault.h"
#include "memory_file.h"

#include <fcntl.h>
#include <unistd.h>

/* SQLite plays a journal back (it is hot) unless its first byte is 0. */
static bool is_cold(const char *name)
{
    char first = 1;
    const int fd = open(name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    const bool is_read = fd >= 0 && pread(fd, &first, 1, 0) >= 0;
    if (fd >= 0)
        (void)close(fd);
    return is_read && first == 0;
}

/* A journal on the disk was written after SQLite had looked for one, by a process that has died. Nothing of that process's
 * transaction is in the database, since this connection has held SHARED all the time. SQLite itself would overwrite such a
 * journal; a journal in memory would leave it there, to be played back over later commits. While this connection has RESERVED
 * no other one writes a journal. */
static int delete_left(sqlite3_vfs *below, const char *name)
{
    const int durably = 1;
    int is_left = 1;
    int r = below->xAccess(below, name, SQLITE_ACCESS_EXISTS, &is_left);
    if (r == SQLITE_OK && is_left)
        r = below->xDelete(below, name, durably);
    if (r == SQLITE_OK || r == SQLITE_IOERR_DELETE_NOENT || is_cold(name))
        return SQLITE_OK;
    return fault(SQLITE_CANTOPEN,
                 "cannot delete %s, the journal of a dead process, which SQLite would play back "
                 "over later commits: delete it",
                 name);
}

int rollback_journal_open(sqlite3_vfs *below, const char *name, sqlite3_file *file, int flags,
                          int *out_flags)
{
    /* SQLite opens a journal for reading to see whether it is hot. A connection that writes has opened its own before. */
    struct connection *c = flags & SQLITE_OPEN_READWRITE ? database_find(name, true) : NULL;
    if (c) {
        /* A journal that is opened without CREATE was left on the disk by another process. */
        c->journaled = flags & SQLITE_OPEN_CREATE && !c->wants.journal_file;
        c->plays_back = !c->journaled;
    }
    if (!c || c->plays_back)
        return below->xOpen(below, name, file, flags, out_flags);
    if (out_flags)
        *out_flags = flags;
    const int r = delete_left(below, name);
    if (r == SQLITE_OK)
        memory_file_open(file, name, NULL);
    return r;
}

int rollback_journal_delete(sqlite3_vfs *below, const char *name, int sync)
{
    struct connection *c = database_find(name, true);
    const bool in_memory = c && c->journaled;
    if (c)
        c->plays_back = c->journaled = false;
    /* The transaction of a journal in memory is committed or rolled back by now. */
    if (in_memory)
        return SQLITE_OK;
    return below->xDelete(below, name, sync);
}
