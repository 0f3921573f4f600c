/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * `ato sqlite`: runs a program whose SQLite uses libato's VFS by default. The dynamic linker loads
 * libato_sqlite_preload.so (lib/sqlite/preload.c) into it and its children. They note in a record (lib/sqlite/record.h) whether
 * they use the VFS, and for which databases.
 */
#include "deploy.h"
#include "gc.h"
#include "program.h"
#include "text.h"
#include "tool.h"

#include "lib/file/clock.h"
#include "lib/sqlite/record.h"
#include "reflection/pairing/identity.h"

#include "ato.h"

#include <dirent.h>
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define LIBRARY "libato_sqlite_preload.so"

/* The last three as env(1): of the command itself, of a program that cannot be started, and of one that is not there. */
enum {
    NOT_PLAIN = 122,
    NOT_REACHED = 123,
    CANNOT_PREPARE = 125,
    CANNOT_START = 126,
    NOT_FOUND = 127
};

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
static void append(const char *variable, const char *item)
{
    const char *old = getenv(variable);
    char *all;
    if (asprintf(&all, "%s%s%s", old ? old : "", old && *old ? ":" : "", item) < 0 ||
        setenv(variable, all, 1) < 0)
        err(CANNOT_PREPARE, "cannot set %s", variable);
    free(all);
}

/* Sets LD_PRELOAD, and ATO_SQLITE_PATH to the paths of the options, if there are any. */
static void prepare(char *const *paths)
{
    char path[PATH_MAX];
    if (*paths)
        unsetenv("ATO_SQLITE_PATH");
    for (; *paths; paths++) {
        if (!text_resolve(path, *paths))
            err(CANNOT_PREPARE, "--path %s", *paths);
        if (strchr(path, ':'))
            errx(CANNOT_PREPARE,
                 "--path %s: a path must not contain ':', which separates paths in ATO_SQLITE_PATH",
                 path);
        append("ATO_SQLITE_PATH", path);
    }
    if (!find_library(path))
        errx(CANNOT_PREPARE, "there is no " LIBRARY " beside this program or in " LIBDIR
                             ": was libato installed without its VFS for SQLite?");
    if (strpbrk(path, ": "))
        errx(CANNOT_PREPARE, "%s cannot be preloaded: its path contains a blank or ':'", path);
    append("LD_PRELOAD", path);
}

/* ---- the record ---- */

/* Makes the record, and names it in the environment. Returns its descriptor; -1 with errno. */
static int make_record(struct record **record)
{
    enum { FAR = 100 }; /* beyond the numbers that scripts use */
    char value[128], token[33];
    uint8_t random[16];
    const int made = memfd_create("ato-sqlite", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    int fd = -1;
    if (made >= 0 && identity_random(random, sizeof(random)) == 0 &&
        ftruncate(made, RECORD_BYTES) == 0 &&
        fcntl(made, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0 &&
        (fd = fcntl(made, F_DUPFD, FAR)) < 0)
        fd = fcntl(made, F_DUPFD, STDERR_FILENO + 1);
    *record =
        fd < 0 ? MAP_FAILED : mmap(NULL, RECORD_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (*record == MAP_FAILED)
        return -1;
    close(made);
    memcpy((*record)->token, random, sizeof(random));
    identity_hex(random, token);
    (void)snprintf(value, sizeof(value), "/proc/%d/fd/%d %s", (int)getpid(), fd, token);
    return setenv(RECORD_VARIABLE, value, 1) == 0 ? fd : -1;
}

/* Returns the record's next database after `at`, NULL at first; NULL: there is none. */
static const char *next_database(const struct record *r, const char *at)
{
    const char *end =
        r->databases + (r->used < sizeof(r->databases) ? r->used : sizeof(r->databases));
    at = at ? at + strnlen(at, (size_t)(end - at)) : r->databases;
    while (at < end && !*at) /* a process may have died before it filled its bytes */
        at++;
    return at < end && memchr(at, 0, (size_t)(end - at)) ? at : NULL;
}

/* Notes the same in the record of an `ato sqlite` that started this one. */
static void tell(struct record *outer, const struct record *r)
{
    outer->loaded |= r->loaded;
    outer->reached |= r->reached;
    outer->opened |= r->opened;
    outer->lost |= r->lost;
    for (const char *at = NULL; (at = next_database(r, at));)
        record_add(outer, at);
}

/* Says why no database was opened. A program that was reached may have needed none, or one in memory. */
static void report(const struct record *r, const char *program, bool is_required)
{
    const char *paths = getenv("ATO_SQLITE_PATH");
    if (r->reached && paths && *paths)
        warnx("%s opened no database through libato: its SQLite was reached, but opened none at or "
              "below %s (--path)",
              program, paths);
    else if (r->reached && is_required)
        warnx("%s opened no database through libato: its SQLite was reached, but opened no file, "
              "or only with another VFS (vfs=) or with nolock=1",
              program);
    else if (r->reached)
        return;
    else if (r->loaded)
        warnx("%s used no SQLite through libato: neither it nor its children loaded an SQLite "
              "that can be reached (not one that is compiled in, was linked with -Bsymbolic, or is "
              "loaded with RTLD_DEEPBIND by another name than libsqlite3.so.0; nor in a program "
              "under sudo)",
              program);
    else
        warnx("%s used no SQLite through libato: nothing can be preloaded into a static program, "
              "or one with another user's rights (sudo)",
              program);
}

/* ---- what the program left ---- */

/* Finds the name that a file got in its folder: programs write to one name, and rename it. Returns false if it has none there. */
static bool find_renamed(char now[PATH_MAX], const char *path, uintmax_t device, uintmax_t inode)
{
    const int n = (int)(strrchr(path, '/') + 1 - path);
    struct stat st;
    bool found = false;
    (void)snprintf(now, PATH_MAX, "%.*s", n, path);
    DIR *folder = opendir(now);
    for (const struct dirent *e; folder && !found && (e = readdir(folder));)
        found = e->d_ino == inode &&
                snprintf(now, PATH_MAX, "%.*s%s", n, path, e->d_name) < PATH_MAX &&
                lstat(now, &st) == 0 && st.st_dev == device && st.st_ino == inode;
    if (folder)
        closedir(folder);
    return found;
}

/* Makes a database plain. Processes that died with the program may have it for a moment yet, of *left_ms milliseconds. Returns
 * false if it is left as it is, and no process has it mapped. Says why it is not plain. */
static bool tidy_one(const char *entry, unsigned *left_ms)
{
    static const struct tool_request quiet = {.quiet = true};
    struct deployed d;
    struct stat st;
    uintmax_t device, inode;
    int at = 0;
    if (sscanf(entry, "%ju:%ju:%n", &device, &inode, &at) != 2 || entry[at] != '/')
        return true;
    const char *path = entry + at;
    char now[PATH_MAX], name[LOOK_NAME], word[TEXT_WORD];
    if (stat(path, &st) < 0 || st.st_dev != device || st.st_ino != inode) {
        if (!find_renamed(now, path, device, inode))
            return true; /* it was removed, or moved to another folder */
        path = now;
    }
    for (;;) {
        deploy_file(&d, path, &quiet);
        if (d.o.result != MAPPED || !*left_ms)
            break;
        clock_nap(5000000);
        *left_ms -= *left_ms < 5 ? *left_ms : 5;
    }
    const int fd = d.o.result <= DONE ? look_open(path, O_RDWR) : -1;
    if (fd >= 0) {
        gc_shared_locks(fd);
        close(fd);
    }
    if (d.o.result < MAPPED)
        return true;
    fputs("ato: ", stderr), text_put(stderr, path);
    if (d.o.result == MAPPED) {
        fprintf(stderr, " is still open in %s: when that has ended, run 'ato deploy %s'\n",
                d.holders.count ? look_holder_name(name, &d.holders.first[0]) : "a process",
                text_word(word, path));
        return true;
    }
    fputs(" is not plain: ", stderr), text_put(stderr, d.o.why), putc('\n', stderr);
    return false;
}

static bool tidy(const struct record *shared)
{
    unsigned left_ms = 200;
    static struct record r; /* children that still run may change the shared one */
    bool good = !shared->lost;
    memcpy(&r, shared, sizeof(r));
    ato_set_log(NULL, NULL); /* this uses the library: its log goes where ATO_LOG says */
    for (const char *at = NULL; (at = next_database(&r, at));)
        good &= tidy_one(at, &left_ms);
    if (shared->lost)
        warnx(
            "the program had more databases than can be noted: 'ato deploy' makes the rest plain");
    return good;
}

/* ---- the command ---- */

static int run(const struct tool_request *request)
{
    struct record *record, *outer = record_open(getenv(RECORD_VARIABLE));
    prepare(request->paths);
    const int fd = make_record(&record);
    if (fd < 0)
        err(CANNOT_PREPARE,
            "cannot make the memory in which the program's processes note what they use");
    const struct program_end end = program_run(request->names, fd);
    if (end.error) {
        errno = end.error;
        warn("cannot start %s", request->names[0]);
        return end.error == ENOENT ? NOT_FOUND : CANNOT_START;
    }
    if (outer)
        tell(outer, record);
    const bool good = !request->tidy || tidy(record);
    if (!record->opened)
        report(record, request->names[0], request->require);
    const int status = program_end_alike(end.status);
    if (request->require && !record->opened)
        return NOT_REACHED;
    return status || good ? status : NOT_PLAIN;
}

const struct tool_command sqlite_command = {
    .name = "sqlite",
    .operands = "PROGRAM [ARG...]",
    .what = "runs a program whose SQLite uses libato",
    .help = "Runs PROGRAM, unmodified, with libato's VFS as the default of its SQLite: databases\n"
            "that it and its children open commit through libato. For programs that load SQLite\n"
            "as a library (libsqlite3.so); it has no effect on one with SQLite compiled into it,\n"
            "on a static one, and under sudo. A line on standard error says so at the end.\n",
    .least = 1,
    .options = HAS(PATH) | HAS(REQUIRE) | HAS(TIDY),
    .starts_program = true,
    .run = run,
};
