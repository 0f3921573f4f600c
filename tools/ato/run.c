/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * `ato run`: runs a program whose shared mappings of files are mappings of libato. The dynamic linker loads
 * libato_run_preload.so (lib/run) into it and its children. They note in a record (lib/preload/record.h) for which files.
 */
#include "leftovers.h"
#include "preloaded.h"
#include "text.h"
#include "tool.h"

#include "lib/preload/record.h"

#include <err.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct preloading preloading = {"libato_run_preload.so", "ato", "../../lib/run",
                                             "ATO_RUN_PATH", "ATO_RUN_RECORD"};

/* Says why no file was mapped, as far as it is known. */
static void report(const struct preloaded_end *end, const char *program)
{
    const struct record *r = end->record;
    const char *paths = getenv(preloading.paths);
    if (!r->loaded)
        warnx("%s mapped no file through libato: %s", program,
              *end->obstacle ? end->obstacle : "the dynamic linker did not load libato into it");
    else if (!r->reached)
        warnx("%s mapped no file through libato: it did not ask the C library for a shared, "
              "writable mapping of a file (mappings by system calls of its own, as in Go, are not "
              "served)",
              program);
    else if (r->wanted)
        warnx("%s mapped no file through libato: none of its mappings could be served", program);
    else if (paths && *paths)
        warnx("%s mapped no file through libato: it mapped none that is at or below %s (--path)",
              program, paths);
    else
        warnx("%s mapped no file through libato: it mapped only files below /dev, or files that "
              "are known for sharing memory, as lock.mdb of LMDB; --path FILE includes such a file",
              program);
}

/* Says what is lost. Returns whether anything is. */
static bool tell_losses(const struct record *r)
{
    bool any = false;
    for (const char *at = NULL; (at = record_next(r, at));)
        if (strncmp(at, RECORD_LOSS, strlen(RECORD_LOSS)) == 0) {
            fputs("ato: ", stderr), text_put(stderr, at + strlen(RECORD_LOSS)), putc('\n', stderr);
            any = true;
        }
    return any;
}

static int run(const struct tool_request *request)
{
    static struct preloaded_end end;
    if (request->require ? setenv("ATO_RUN_REQUIRE", "1", 1) : unsetenv("ATO_RUN_REQUIRE"))
        err(PRELOADED_CANNOT_PREPARE, "cannot set ATO_RUN_REQUIRE");
    preloaded_run(&end, &preloading, request);
    const bool lost = tell_losses(end.record);
    const bool plain = leftovers_make_plain(end.record, "files", preloading.record);
    if (!end.record->opened)
        report(&end, request->names[0]);
    const int trouble = plain ? 0 : PRELOADED_NOT_PLAIN;
    return preloaded_end_status(&end, request, lost ? PRELOADED_LOSS : trouble);
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
