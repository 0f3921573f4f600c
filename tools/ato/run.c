/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * `ato run`: runs a program whose shared mappings of files are mappings of libato. The dynamic linker loads
 * libato_run_preload.so (lib/run) into it and its children. They note in a record (lib/sqlite/record.h) for which files.
 */
#include "leftovers.h"
#include "preloaded.h"
#include "program.h"
#include "tool.h"

#include "lib/sqlite/record.h"

#include <err.h>
#include <stdlib.h>

static const struct preloading preloading = {"libato_run_preload.so", "../../lib/run",
                                             "ATO_RUN_PATH", "ATO_RUN_RECORD"};

enum { NOT_PLAIN = 122 }; /* the exit status; the others of this command are those of preloaded.h */

/* Says why no file was mapped, as far as it is known. */
static void report(const struct preloaded_end *end, const char *program)
{
    const struct record *r = end->record;
    const char *paths = getenv(preloading.paths);
    if (!r->loaded)
        warnx("%s mapped no file through libato: %s", program,
              *end->obstacle ? end->obstacle : "the dynamic linker did not load libato into it");
    else if (!r->reached)
        warnx("%s mapped no file through libato: it made no shared, writable mapping of a file",
              program);
    else
        warnx("%s mapped no file through libato: of those that it mapped none could be served%s%s",
              program, paths && *paths ? ", or none is at or below " : "",
              paths && *paths ? paths : "");
}

static int run(const struct tool_request *request)
{
    static struct preloaded_end end;
    if (request->require ? setenv("ATO_RUN_REQUIRE", "1", 1) : unsetenv("ATO_RUN_REQUIRE"))
        err(PRELOADED_CANNOT_PREPARE, "cannot set ATO_RUN_REQUIRE");
    preloaded_run(&end, &preloading, request);
    const bool good = leftovers_make_plain(end.record, "files");
    if (!end.record->opened)
        report(&end, request->names[0]);
    const int status = program_end_alike(end.status);
    if (request->require && !end.record->opened)
        return PRELOADED_IN_VAIN;
    return status || good ? status : NOT_PLAIN;
}

const struct tool_command run_command = {
    .name = "run",
    .operands = "PROGRAM [ARG...]",
    .what = "runs a program whose mapped files are crash-safe",
    .help = "Runs PROGRAM, unmodified: of the files that it and its children map with mmap(),\n"
            "shared and writable, msync(), fsync() and the like become atomic commits. After a\n"
            "crash such a file is as one of them left it. It has no effect on a static program,\n"
            "and under sudo; a line on standard error says what is not served.\n",
    .least = 1,
    .options = HAS(PATH) | HAS(REQUIRE),
    .starts_program = true,
    .run = run,
};
