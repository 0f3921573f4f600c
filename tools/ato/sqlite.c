/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * `ato sqlite`: runs a program whose SQLite uses libato's VFS by default. The dynamic linker loads
 * libato_sqlite_preload.so (lib/sqlite/preload.c) into it and its children. They note in a record (lib/preload/record.h) whether
 * they use the VFS, and for which databases.
 */
#include "leftovers.h"
#include "preloaded.h"
#include "tool.h"

#include "lib/preload/record.h"

#include <err.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static const struct preloading preloading = {"libato_sqlite_preload.so", "libsqlite3-mod-ato",
                                             "../../lib/sqlite", "ATO_SQLITE_PATH",
                                             RECORD_VARIABLE};

/* Returns whether SQLite is compiled into the program of that file. */
static bool has_sqlite(const char *path)
{
    char format[32]; /* of each SQLite; put together here, for else this program would have it */
    struct stat st;
    const int fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    const void *all = MAP_FAILED;
    const int n = snprintf(format, sizeof(format), "sqlite_%s_%%s_%%d", "autoindex");
    if (fd >= 0 && fstat(fd, &st) == 0)
        all = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    const bool has = all != MAP_FAILED && memmem(all, (size_t)st.st_size, format, (size_t)n + 1);
    if (fd >= 0)
        close(fd);
    return has;
}

/* Says why no database was opened, as far as it is known. */
static void report(const struct preloaded_end *end, const char *program)
{
    const struct record *r = end->record;
    const char *paths = getenv(preloading.paths);
    if (r->reached && paths && *paths)
        warnx("%s opened no database through libato: its SQLite was reached, but opened none at or "
              "below %s (--path)",
              program, paths);
    else if (r->reached)
        warnx("%s opened no database through libato: its SQLite was reached, but opened no file, "
              "or only with another VFS (vfs=) or with nolock=1",
              program);
    else if (!r->loaded)
        warnx("%s used no SQLite through libato: %s", program,
              *end->obstacle ? end->obstacle : "the dynamic linker did not load libato into it");
    else if (has_sqlite(end->file))
        warnx("%s used no SQLite through libato: it has an SQLite compiled in, which cannot be "
              "reached; it needs one as a library (libsqlite3.so)",
              program);
    else
        warnx(
            "%s used no SQLite through libato before it ended: neither it nor its children loaded "
            "an SQLite that can be reached; ato(1) says which cannot",
            program);
}

/* ---- the command ---- */

static int run(const struct tool_request *request)
{
    static struct preloaded_end end;
    preloaded_run(&end, &preloading, request);
    const bool good = !request->tidy || leftovers_make_plain(end.record, "databases", NULL);
    if (!end.record->opened)
        report(&end, request->names[0]);
    return preloaded_end_status(&end, request, good ? 0 : PRELOADED_NOT_PLAIN);
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
