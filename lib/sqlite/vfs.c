/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The VFS `ato`: which module handles which file. Databases are handled by methods.c. Their rollback journals
 * (rollback_journal.c) and super-journals (super_journal.c) are in memory. All else (WALs, temporary files, paths, time, random
 * numbers) is left to the VFS below, SQLite's own.
 */
#include "vfs.h"

#include "ato.h"
#include "database.h"
#include "fault.h"
#include "memory_file.h"
#include "methods.h"
#include "rollback_journal.h"
#include "super_journal.h"

#include <pthread.h>
#include <sys/stat.h>

static sqlite3_vfs *below(sqlite3_vfs *vfs)
{
    return vfs->pAppData;
}

/* ---- files ---- */

/* Returns whether this VFS handles a database. If the name is a folder's, say, the VFS below reports the error. Without SQLite's
 * locks (nolock=1) nothing keeps other connections from what is staged. */
static bool is_mine(const char *name)
{
    struct stat st;
    return (stat(name, &st) < 0 || S_ISREG(st.st_mode)) && !sqlite3_uri_boolean(name, "nolock", 0);
}

static int vfs_open(sqlite3_vfs *vfs, const char *name, sqlite3_file *file, int flags,
                    int *out_flags)
{
    file->pMethods = NULL;
    if (name && (flags & SQLITE_OPEN_MAIN_DB) && is_mine(name))
        return methods_open((struct connection_file *)file, below(vfs), name, flags, out_flags);
    if (name && (flags & SQLITE_OPEN_SUPER_JOURNAL))
        return super_open(below(vfs), name, file, flags, out_flags);
    if (name && (flags & SQLITE_OPEN_MAIN_JOURNAL))
        return rollback_journal_open(below(vfs), name, file, flags, out_flags);
    return below(vfs)->xOpen(below(vfs), name, file, flags, out_flags);
}

static int vfs_delete(sqlite3_vfs *vfs, const char *name, int sync)
{
    bool mine;
    int r = super_delete(name, &mine);
    if (mine)
        return r;
    return rollback_journal_delete(below(vfs), name, sync);
}

static int vfs_access(sqlite3_vfs *vfs, const char *name, int flags, int *result)
{
    if (!super_exists(name))
        return below(vfs)->xAccess(below(vfs), name, flags, result);
    *result = 1;
    return SQLITE_OK;
}

/* ---- calls of the VFS below ---- */

static int vfs_full_pathname(sqlite3_vfs *vfs, const char *name, int n, char *out)
{
    return below(vfs)->xFullPathname(below(vfs), name, n, out);
}

static void *vfs_dl_open(sqlite3_vfs *vfs, const char *name)
{
    return below(vfs)->xDlOpen(below(vfs), name);
}

static void vfs_dl_error(sqlite3_vfs *vfs, int n, char *sentence)
{
    below(vfs)->xDlError(below(vfs), n, sentence);
}

static void (*vfs_dl_sym(sqlite3_vfs *vfs, void *handle, const char *symbol))(void)
{
    return below(vfs)->xDlSym(below(vfs), handle, symbol);
}

static void vfs_dl_close(sqlite3_vfs *vfs, void *handle)
{
    below(vfs)->xDlClose(below(vfs), handle);
}

static int vfs_randomness(sqlite3_vfs *vfs, int n, char *out)
{
    return below(vfs)->xRandomness(below(vfs), n, out);
}

static int vfs_sleep(sqlite3_vfs *vfs, int microseconds)
{
    return below(vfs)->xSleep(below(vfs), microseconds);
}

static int vfs_current_time(sqlite3_vfs *vfs, double *days)
{
    return below(vfs)->xCurrentTime(below(vfs), days);
}

static int vfs_get_last_error(sqlite3_vfs *vfs, int n, char *sentence)
{
    return below(vfs)->xGetLastError(below(vfs), n, sentence);
}

static int vfs_current_time64(sqlite3_vfs *vfs, sqlite3_int64 *milliseconds)
{
    return below(vfs)->xCurrentTimeInt64(below(vfs), milliseconds);
}

static int vfs_set_system_call(sqlite3_vfs *vfs, const char *name, sqlite3_syscall_ptr call)
{
    return below(vfs)->xSetSystemCall(below(vfs), name, call);
}

static sqlite3_syscall_ptr vfs_get_system_call(sqlite3_vfs *vfs, const char *name)
{
    return below(vfs)->xGetSystemCall(below(vfs), name);
}

static const char *vfs_next_system_call(sqlite3_vfs *vfs, const char *name)
{
    return below(vfs)->xNextSystemCall(below(vfs), name);
}

/* ---- registration ---- */

/* The handles of this VFS. */
union handle {
    struct connection_file connection;
    struct memory_file journal;
};

static sqlite3_vfs ato = {
    .iVersion = 3,
    .zName = "ato",
    .xOpen = vfs_open,
    .xDelete = vfs_delete,
    .xAccess = vfs_access,
    .xFullPathname = vfs_full_pathname,
    .xDlOpen = vfs_dl_open,
    .xDlError = vfs_dl_error,
    .xDlSym = vfs_dl_sym,
    .xDlClose = vfs_dl_close,
    .xRandomness = vfs_randomness,
    .xSleep = vfs_sleep,
    .xCurrentTime = vfs_current_time,
    .xGetLastError = vfs_get_last_error,
    .xCurrentTimeInt64 = vfs_current_time64,
    .xSetSystemCall = vfs_set_system_call,
    .xGetSystemCall = vfs_get_system_call,
    .xNextSystemCall = vfs_next_system_call,
};

static void before_fork(void)
{
    super_before_fork();
    database_before_fork();
}

static void after_fork_in_parent(void)
{
    database_after_fork(false);
    super_after_fork(false);
}

static void after_fork_in_child(void)
{
    database_after_fork(true);
    super_after_fork(true);
}

/* For a program that ends without closing its databases, as SQLite's shell does after an error. A destructor runs after the
 * handlers of atexit(3), which may close them. */
static void __attribute__((destructor)) at_exit(void)
{
    database_at_exit();
}

int vfs_register(bool make_default)
{
    if (sqlite3_libversion_number() < OLDEST_SQLITE)
        return fault(SQLITE_ERROR, "SQLite %s is too old: 3.34 or newer is needed",
                     sqlite3_libversion());
    /* A VFS of this name that is registered already only changes its place in SQLite's list. */
    sqlite3_vfs *other = sqlite3_vfs_find(ato.zName);
    if (other && other != &ato)
        /* The program has this code twice, linked and loaded: the two would drop each other's locks. */
        return sqlite3_vfs_register(other, make_default);
    if (!ato.pAppData) {
        sqlite3_vfs *unix_vfs = sqlite3_vfs_find(NULL);
        if (!unix_vfs || unix_vfs->iVersion < 3 || !unix_vfs->xGetSystemCall ||
            (size_t)unix_vfs->szOsFile < sizeof(union handle))
            return fault(SQLITE_ERROR, "there is no VFS for Unix that is SQLite's default");
        /* libato registers its fork handlers first. Handlers that are registered last run first before a fork, so that
         * the locks of this VFS are taken before libato's, as in all other calls. */
        ato_tx *nothing = ato_tx_begin(0);
        if (!nothing)
            return fault(SQLITE_NOMEM, "libato: %s", ato_errormsg());
        (void)ato_tx_abort(nothing);
        if (pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child) != 0)
            return fault(SQLITE_NOMEM, "no memory to register the handlers of fork");
        ato.pAppData = unix_vfs;
        ato.mxPathname = unix_vfs->mxPathname;
        ato.szOsFile = unix_vfs->szOsFile;
    }
    return sqlite3_vfs_register(&ato, make_default);
}
