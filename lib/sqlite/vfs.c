/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The VFS `ato`: which module handles which file. Databases are handled by methods.c, their rollback journals by journals.c.
 * All else (super-journals, WALs, temporary files, paths, time, random numbers) is left to the VFS below, SQLite's own.
 */
#include "vfs.h"

#include "lib/preload/record.h"

#include "connection.h"
#include "database.h"
#include "fault.h"
#include "journals.h"
#include "share.h"
#include "share_memory.h"

#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static sqlite3_vfs *below; /* NULL: not registered yet */
size_t connection_offset;

/* A copy of the VFS below, for all that this one leaves to it. Such calls find that VFS's own pAppData here. */
static sqlite3_vfs ato;

static char *paths; /* below which databases are handled by this VFS; NULL: all are */

/* ---- files ---- */

static bool is_below(const char *name, const char *path)
{
    size_t n = strlen(path);
    while (n && path[n - 1] == '/')
        n--;
    return strncmp(name, path, n) == 0 && (name[n] == '/' || !name[n]);
}

/* Returns whether a database has one of `paths` or lies below it. SQLite names the file without symbolic links from 3.39
 * on, and as the program does before. */
static bool is_chosen(const char *name)
{
    bool chosen = !paths;
    for (const char *at = paths, *end; !chosen && *at; at = end + (*end == ':')) {
        char path[PATH_MAX];
        end = strchrnul(at, ':');
        (void)snprintf(path, sizeof(path), "%.*s", (int)(end - at), at);
        if (*path == '/') {
            char *real = NULL;
            chosen =
                is_below(name, path) || ((real = realpath(path, NULL)) && is_below(name, real));
            free(real);
        } else if (*path) {
            (void)fault(SQLITE_WARNING,
                        "ATO_SQLITE_PATH: %s is ignored, since it does not begin with /", path);
        }
    }
    return chosen;
}

static int vfs_open(sqlite3_vfs *vfs, const char *name, sqlite3_file *file, int flags,
                    int *out_flags)
{
    struct stat st;
    (void)vfs;
    file->pMethods = NULL;
    /* If the name is a folder's, say, the VFS below reports the error. Without SQLite's locks (nolock=1) nothing keeps other connections
     * from what is staged. */
    if (name && (flags & SQLITE_OPEN_MAIN_DB) && (stat(name, &st) < 0 || S_ISREG(st.st_mode)) &&
        !sqlite3_uri_boolean(name, "nolock", 0) && is_chosen(name)) {
        const int r = methods_open(below, name, file, flags, out_flags);
        if (r == SQLITE_OK)
            record_set(offsetof(struct record, opened));
        return r;
    }
    if (name && (flags & SQLITE_OPEN_MAIN_JOURNAL))
        return rollback_journal_open(below, name, file, flags, out_flags);
    return below->xOpen(below, name, file, flags, out_flags);
}

static int vfs_delete(sqlite3_vfs *vfs, const char *name, int sync)
{
    (void)vfs;
    return rollback_journal_delete(below, name, sync);
}

static int vfs_access(sqlite3_vfs *vfs, const char *name, int flags, int *result)
{
    (void)vfs;
    const struct connection *c = share_in_memory(name);
    *result = 0;
    return c && !share_had_wal(c) ? SQLITE_OK : below->xAccess(below, name, flags, result);
}

static int vfs_sleep(sqlite3_vfs *vfs, int microseconds)
{
    (void)vfs;
    return share_memory_sleep(microseconds) ? microseconds : below->xSleep(below, microseconds);
}

/* ---- registration ---- */

/* Looks for the VFS below, and makes this one from it. */
static int begin(const char *only_below)
{
    sqlite3_vfs *unix_vfs = sqlite3_vfs_find(NULL);
    if (!unix_vfs || unix_vfs->iVersion < 3 || !unix_vfs->xGetSystemCall ||
        (size_t)unix_vfs->szOsFile < sizeof(struct memory_file))
        return fault(SQLITE_ERROR, "there is no VFS for Unix that is SQLite's default");
    /* Handlers that are registered last run first before a fork: libato has registered its own when it was loaded. So the locks of
     * this VFS are taken before libato's, as in all other calls. */
    if (pthread_atfork(database_lock, database_unlock, database_after_fork_in_child) != 0)
        return fault(SQLITE_NOMEM, "no memory to register the handlers of fork");
    if (only_below && *only_below && !(paths = strdup(only_below)))
        return fault(SQLITE_NOMEM, "no memory for the paths of databases");
    below = unix_vfs;
    ato = *below;
    ato.iVersion = 3; /* a newer one may have functions behind those that are copied */
    ato.zName = "ato";
    connection_offset = (size_t)below->szOsFile;
    ato.szOsFile += (int)sizeof(struct connection *);
    ato.xOpen = vfs_open;
    ato.xDelete = vfs_delete;
    ato.xAccess = vfs_access;
    ato.xSleep = vfs_sleep;
    record_set(offsetof(struct record, reached));
    return SQLITE_OK;
}

int vfs_register(bool make_default, const char *only_below)
{
    if (sqlite3_libversion_number() < OLDEST_SQLITE)
        return fault(SQLITE_ERROR, "SQLite %s is too old: 3.34 or newer is needed",
                     sqlite3_libversion());
    /* A VFS of this name that is registered already only changes its place in SQLite's list. */
    sqlite3_vfs *other = sqlite3_vfs_find("ato");
    if (other && other != &ato)
        /* The program has this code twice, linked and loaded: the two would drop each other's locks. */
        return sqlite3_vfs_register(other, make_default);
    const int r = below ? SQLITE_OK : begin(only_below);
    return r == SQLITE_OK ? sqlite3_vfs_register(&ato, make_default) : r;
}
