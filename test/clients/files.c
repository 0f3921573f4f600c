/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Preloaded into the programs of a suite, with stock SQLite as with libato's VFS:
 *
 *   - a database ":memory:" is opened as a new file in the folder ATO_CLIENTS_FILES
 *   - the first database of a process tells its VFS: a line of the file ATO_CLIENTS_RESULTS
 */
#include <dlfcn.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef int open_function(const char *, sqlite3 **, int, const char *);
typedef int control_function(sqlite3 *, const char *, int, void *);

/* Looks up a function of the SQLite that the caller of sqlite3_open_v2() uses: it may be in a library that only that one sees. */
static void *look_up(const void *caller, const char *name)
{
    Dl_info info;
    void *found = dlsym(RTLD_NEXT, name), *library;
    if (!found && dladdr(caller, &info) &&
        (library = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD)))
        found = dlsym(library, name);
    return found;
}

static void tell_vfs(control_function *control, sqlite3 *db)
{
    static int told;
    char *vfs = NULL;
    const char *results = getenv("ATO_CLIENTS_RESULTS");
    FILE *out;
    if (results && !__atomic_exchange_n(&told, 1, __ATOMIC_RELAXED) &&
        control(db, "main", SQLITE_FCNTL_VFSNAME, &vfs) == SQLITE_OK && vfs &&
        (out = fopen(results, "a"))) {
        (void)fprintf(out, "the VFS\t%s\n", vfs);
        (void)fclose(out);
    }
}

int sqlite3_open_v2(const char *name, sqlite3 **db, int flags, const char *vfs)
{
    static int number;
    const void *caller = __builtin_return_address(0);
    open_function *open = (open_function *)look_up(caller, "sqlite3_open_v2");
    control_function *control = (control_function *)look_up(caller, "sqlite3_file_control");
    const char *folder = getenv("ATO_CLIENTS_FILES");
    char path[4096];
    if (folder && name && strcmp(name, ":memory:") == 0 && flags & SQLITE_OPEN_CREATE) {
        (void)snprintf(path, sizeof(path), "%s/%d-%d.db", folder, (int)getpid(),
                       __atomic_fetch_add(&number, 1, __ATOMIC_RELAXED));
        name = path;
    }
    const int r = open(name, db, flags, vfs);
    if (r == SQLITE_OK && name && *name == '/')
        tell_vfs(control, *db);
    return r;
}
