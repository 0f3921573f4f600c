/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * `ato reclaim`: gives back the space of reflections that is not needed, by ato_reclaim(). A file may be mapped meanwhile.
 *
 * A file is mapped in the domain of its manifest, as by `ato deploy`.
 */
#include "each.h"
#include "json.h"
#include "look.h"
#include "progress.h"
#include "text.h"
#include "tool.h"

#include "reflection/media/report.h"

#include "ato.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Bytes of the file between two looks at the progress. */
#define STEP (256ull << 20)

struct reclaimed {
    const char *name;
    int status;                 /* TOOL_... */
    uint64_t before, left;      /* bytes that the reflection takes */
    char why[1024 + LOOK_NEXT]; /* if the status is not good */
};

static void end_as(struct reclaimed *r, int status, const char *why)
{
    r->status = status;
    snprintf(r->why, sizeof(r->why), "%s", why);
}

/* In steps; the whole file is tried, whatever fails. */
static void give_back(struct reclaimed *r, char *at, uint64_t size, bool quiet)
{
    struct progress progress;
    progress_start(&progress, r->name, !quiet);
    for (uint64_t from = 0; from < size; from += STEP) {
        const uint64_t left = size - from;
        if (ato_reclaim(at + from, left < STEP ? left : STEP) < 0)
            end_as(r, TOOL_BAD, ato_errormsg());
        progress_show(&progress, from, size);
    }
    progress_end(&progress);
}

static void reclaim(struct reclaimed *r, const struct look *l, bool quiet)
{
    const bool known = l->manifest.found == MANIFEST_VALID;
    const size_t length = l->identity.size ? l->identity.size : 1;
    const struct ato_options options = {.struct_size = sizeof(options),
                                        .read_policy = ATO_READ_GATHER,
                                        .max_size = length,
                                        .domain = known ? (int)l->manifest.record.domain : 0};
    int fd = look_open(r->name, O_RDWR);
    if (fd < 0) {
        r->status = TOOL_BLIND;
        (void)snprintf(r->why, sizeof(r->why),
                       "cannot open it for writing, which is needed to give space back: %s",
                       report_reason(errno));
        return;
    }
    char *at = ato_mmap_opt(length, fd, 0, &options);
    if (at == MAP_FAILED) {
        end_as(r, TOOL_BAD, ato_errormsg());
    } else {
        const off_t size = ato_size(at);
        give_back(r, at, size > 0 ? (uint64_t)size : 0, quiet);
        if (ato_munmap(at, length, ATO_UNMAP_FAST) < 0)
            end_as(r, TOOL_BAD, ato_errormsg());
    }
    close(fd);
}

static void look_and_reclaim(struct reclaimed *r, const char *name, bool quiet)
{
    static struct look look;
    *r = (struct reclaimed){.name = name};
    if (look_at(&look, name) < 0)
        end_as(r, TOOL_BLIND, report_sentence());
    r->before = r->left = look.reflection_storage;
    if (!r->status && look.state >= LOOK_COPIED) {
        r->status = TOOL_BAD;
        look_why(r->why, sizeof(r->why), &look, name);
    }
    const bool has_reflection = !r->status && look.state != LOOK_PLAIN;
    if (has_reflection)
        reclaim(r, &look, quiet);
    look_close(&look);
    if (!has_reflection)
        return;
    if (look_at(&look, name) == 0)
        r->left = look.reflection_storage;
    look_close(&look);
}

static void say(const struct reclaimed *r, bool quiet)
{
    char before[TEXT_SIZE], left[TEXT_SIZE];
    FILE *out = r->status ? stderr : stdout;
    if (!r->status && quiet)
        return;
    text_put(out, r->name);
    if (r->status)
        fputs(": ", out), text_put(out, r->why), putc('\n', out);
    else if (!r->before)
        fputs(": is plain\n", out);
    else
        fprintf(out, ": its reflection took %s, and takes %s\n", text_size(before, r->before),
                text_size(left, r->left));
    fflush(out);
}

static void write_json(struct json *j, const struct reclaimed *r)
{
    json_object(j, NULL);
    json_string(j, "file", r->name);
    json_string(j, "error", r->status ? r->why : NULL);
    json_number(j, "storage_before", r->before);
    json_number(j, "storage", r->left);
    json_end(j);
}

static int do_file(const char *name, const struct tool_request *request, struct json *j)
{
    struct reclaimed r;
    look_and_reclaim(&r, name, request->quiet || j);
    if (j)
        write_json(j, &r);
    else
        say(&r, request->quiet);
    return r.status;
}

static int run(const struct tool_request *request)
{
    ato_set_log(NULL, NULL); /* this command uses the library: its log goes where ATO_LOG says */
    return each_run(request, "reclaim", do_file);
}

const struct tool_command reclaim_command = {
    .name = "reclaim",
    .operands = "FILE...",
    .what = "gives back space of reflections that is not needed",
    .help =
        "Gives back the space of those pages in the reflection of each FILE in which nothing is\n"
        "valid, and says how much it took before and takes now. The content does not change, and\n"
        "nothing is copied: 'ato deploy' gives back all. Processes may have the file mapped, and\n"
        "write to it; the next write to such a page takes space again. On a disk the space is\n"
        "given back when the last of them unmaps the file.\n"
        "\n"
        "--quiet: no bar, and no line for a file without an error.\n"
        "\n"
        "Exit status: 0 done, or plain; 1 some could not be mapped, or space could not be given\n"
        "back; else 2 if some could not be read, or not be opened for writing.\n",
    .least = 1,
    .can_be_quiet = true,
    .run = run,
};
