/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * For programs that nobody can change: LD_PRELOAD=libato_sqlite_preload.so, as `ato sqlite` sets it, makes the VFS the default
 * of the program's SQLite, for the databases below ATO_SQLITE_PATH.
 *
 * SQLite calls sqlite3_os_init() to register its own VFSs, when it is initialised: after a sqlite3_config() of the program, and
 * once more after a sqlite3_shutdown(). It calls the function of this library in place of its own, which this one calls.
 *
 * The library is not linked with SQLite: programs without SQLite are preloaded too, and a program may bring an SQLite of its own,
 * or load one where only a plugin sees it. So the functions are looked up in the library that makes the call.
 *
 * A program may load a library with RTLD_DEEPBIND, as PHP loads its modules. This library and the libraries that it needs look up
 * functions in each other first, so that SQLite would call its own sqlite3_os_init(). An SQLite that is loaded already keeps the
 * order that it was loaded with. So dlopen() here loads SQLite first.
 */
#include "api.h"
#include "vfs.h"

#include "lib/preload/record.h"

#include <dlfcn.h>
#include <stdlib.h>

SQLITE_EXTENSION_INIT1

#define LOOK_UP(name) (api.name = (__typeof__(api.name))dlsym(sqlite, "sqlite3_" #name))

/* Looks up all functions that lib/sqlite calls. Those that SQLite does not have are newer than what vfs_register() calls to find
 * out that SQLite is too old. */
static void look_up(void *sqlite)
{
    static sqlite3_api_routines api;
    LOOK_UP(db_filename);
    LOOK_UP(filename_journal);
    LOOK_UP(filename_wal);
    LOOK_UP(get_autocommit);
    LOOK_UP(libversion);
    LOOK_UP(libversion_number);
    LOOK_UP(log);
    LOOK_UP(mprintf);
    LOOK_UP(next_stmt);
    LOOK_UP(sql);
    LOOK_UP(stmt_busy);
    LOOK_UP(strlike);
    LOOK_UP(stmt_readonly);
    LOOK_UP(stricmp);
    LOOK_UP(txn_state);
    LOOK_UP(uri_boolean);
    LOOK_UP(uri_key);
    LOOK_UP(uri_parameter);
    LOOK_UP(vfs_find);
    LOOK_UP(vfs_register);
    sqlite3_api = &api;
}

static void __attribute__((constructor)) loaded(void)
{
    record_set(offsetof(struct record, loaded));
}

#define EXPORTED __attribute__((visibility("default")))
EXPORTED int sqlite3_os_init(void);
EXPORTED void *dlopen(const char *file, int mode);

void *dlopen(const char *file, int mode)
{
    static void *(*found)(const char *, int);
    void *(*next)(const char *, int) = __atomic_load_n(&found, __ATOMIC_RELAXED);
    if (!next) {
        next = (void *(*)(const char *, int))dlsym(RTLD_NEXT, "dlopen");
        __atomic_store_n(&found, next, __ATOMIC_RELAXED);
    }
    /* Not beside an SQLite that the program brings for all: it would call that one's functions. */
    if (file && mode & RTLD_DEEPBIND && !dlsym(RTLD_DEFAULT, "sqlite3_libversion"))
        (void)next("libsqlite3.so.0", RTLD_LAZY);
    /* A tail call: the linker searches as the library says which it returns to. */
    return next(file, mode);
}

int sqlite3_os_init(void)
{
    static void *first;
    void *user = NULL;
    Dl_info info;
    void *sqlite = dladdr(__builtin_return_address(0), &info)
                       ? dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD)
                       : NULL;
    int (*own)(void) = sqlite ? (int (*)(void))dlsym(sqlite, "sqlite3_os_init") : NULL;
    const int r = own ? own() : SQLITE_ERROR;
    if (r != SQLITE_OK)
        return r;
    /* The VFS ato calls the functions of one SQLite, which stays loaded. A second one in the process is left as it is; another
     * thread may be initialising it now. */
    const bool is_first = __atomic_compare_exchange_n(&first, &user, sqlite, false,
                                                      __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    if (!is_first && user != sqlite)
        return SQLITE_OK;
    look_up(sqlite);
    return vfs_register(true, secure_getenv("ATO_SQLITE_PATH"));
}
