/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * `ato sqlite`: starts a program whose SQLite uses libato's VFS by default. The dynamic linker loads
 * libato_sqlite_preload.so (lib/sqlite/preload.c) into it.
 */
#include "tool.h"

#include <err.h>
#include <errno.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LIBRARY "libato_sqlite_preload.so"

/* As env(1): of the command itself, of a program that cannot be started, and of one that is not there. */
enum { CANNOT_PREPARE = 125, CANNOT_START = 126, NOT_FOUND = 127 };

/* Finds the library: from the folder of this program, as both are installed, or in the folder of a build; or where it was to be
 * installed. */
static bool find_library(char found[PATH_MAX])
{
    static const char *const places[] = {LIBDIR_FROM_TOOL, "../../lib/sqlite"};
    char self[PATH_MAX], path[2 * PATH_MAX];
    const ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
    self[n < 0 ? 0 : n] = 0;
    const char *folder = dirname(self);
    for (size_t i = 0; n > 0 && i < sizeof(places) / sizeof(*places); i++) {
        (void)snprintf(path, sizeof(path), "%s/%s/" LIBRARY, folder, places[i]);
        if (realpath(path, found))
            return true;
    }
    return realpath(LIBDIR "/" LIBRARY, found) != NULL;
}

/* Adds `item` to the list in the environment's `variable`, behind what is there. */
static bool append(const char *variable, const char *item)
{
    const char *old = getenv(variable);
    char *all;
    if (asprintf(&all, "%s%s%s", old ? old : "", old && *old ? ":" : "", item) < 0)
        return false;
    const bool done = setenv(variable, all, 1) == 0;
    free(all);
    return done;
}

/* Makes a path absolute and free of symbolic links. The file itself may be missing, but not its folder. */
static bool resolve(const char *path, char to[PATH_MAX])
{
    char head[PATH_MAX], tail[PATH_MAX];
    if (realpath(path, to))
        return true;
    if (errno != ENOENT || strlen(path) >= sizeof(head))
        return false;
    const char *name = basename(strcpy(tail, path));
    if (!realpath(dirname(strcpy(head, path)), to))
        return false;
    const size_t n = strlen(to);
    if (n + strlen(name) + 2 > PATH_MAX) {
        errno = ENAMETOOLONG;
        return false;
    }
    (void)sprintf(to + n, "%s%s", n > 1 ? "/" : "", name);
    return true;
}

/* Sets ATO_SQLITE_PATH to the paths of the options, if there are any. */
static bool set_paths(char *const *paths)
{
    char path[PATH_MAX];
    if (*paths)
        unsetenv("ATO_SQLITE_PATH");
    for (; *paths; paths++) {
        if (!resolve(*paths, path)) {
            warn("--path %s", *paths);
            return false;
        }
        if (strchr(path, ':')) {
            warnx(
                "--path %s: a path must not contain ':', which separates paths in ATO_SQLITE_PATH",
                path);
            return false;
        }
        if (!append("ATO_SQLITE_PATH", path)) {
            warn("cannot set ATO_SQLITE_PATH");
            return false;
        }
    }
    return true;
}

static int run(const struct tool_request *request)
{
    char library[PATH_MAX];
    if (!find_library(library)) {
        warnx("there is no " LIBRARY " beside this program or in " LIBDIR
              ": was libato installed without its VFS for SQLite?");
        return CANNOT_PREPARE;
    }
    if (strpbrk(library, ": ")) {
        warnx("%s cannot be preloaded: its path contains a blank or ':'", library);
        return CANNOT_PREPARE;
    }
    if (!set_paths(request->paths))
        return CANNOT_PREPARE;
    if (!append("LD_PRELOAD", library)) {
        warn("cannot set LD_PRELOAD");
        return CANNOT_PREPARE;
    }
    execvp(request->names[0], request->names);
    const int status = errno == ENOENT ? NOT_FOUND : CANNOT_START;
    warn("cannot start %s", request->names[0]);
    return status;
}

const struct tool_command sqlite_command = {
    .name = "sqlite",
    .operands = "PROGRAM [ARG...]",
    .what = "starts a program whose SQLite uses libato",
    .help =
        "Starts PROGRAM, unmodified, with libato's VFS as the default of its SQLite: databases "
        "that\n"
        "it and its children open commit through libato. For programs that load SQLite as a "
        "library\n"
        "(libsqlite3.so), such as SQLite's shell, Python's module sqlite3, or programs in Go with\n"
        "mattn/go-sqlite3 that were built with -tags libsqlite3. Has no effect on a program with\n"
        "SQLite compiled into it, on a static one, and on one with set-user-ID or set-group-ID.\n"
        "\n"
        "--path PATH  only the database PATH, or those in the folder PATH and in folders below "
        "it;\n"
        "             others are left to SQLite's own VFS. May be repeated. Sets ATO_SQLITE_PATH.\n"
        "\n"
        "The SQL statement PRAGMA ato_lock_wait_ms returns one row if a database is open through "
        "libato,\n"
        "and no row otherwise.\n"
        "\n"
        "Exit status: that of PROGRAM; 125 if the library or a PATH is not found, 126 if PROGRAM "
        "cannot\n"
        "be started, 127 if there is no such program.\n",
    .least = 1,
    .starts_program = true,
    .run = run,
};
