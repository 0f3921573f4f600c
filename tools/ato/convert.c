/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * `ato convert`: gives files a reflection of the other format.
 *
 * A file is made plain, as by `ato deploy`, and then mapped once, which gives it an empty reflection of the new format: one step,
 * the birth of its manifest. Until that is done the file is as it was, or plain: an interruption loses nothing, and the next
 * `ato convert` goes on.
 */
#include "deploy.h"

#include "reflection/format/layout.h"
#include "reflection/media/report.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static const char has_log[] =
    "has a log, as every file in domain disk, and no reflection of either format";

/* Maps the file, which is plain, once. format: enum layout_format. */
static void bear(struct outcome *o, int format, int domain, const char *folder)
{
    const struct ato_options options = {.struct_size = sizeof(options),
                                        .format = format + ATO_FORMAT_DENSE,
                                        .domain = domain,
                                        .max_size = 1,
                                        .reflection_dir = folder};
    struct ato_stat st = {.struct_size = sizeof(st)};
    const int fd CLOSING = look_open(o->name, O_RDWR);
    if (fd < 0) {
        outcome_set(o, BLIND,
                    "cannot open it for writing, which is needed to give it a reflection: %s",
                    report_reason(errno));
        return;
    }
    void *at = ato_mmap_opt(1, fd, 0, &options);
    if (at == MAP_FAILED || ato_stat(at, &st) < 0)
        outcome_set(o, FAILED, "%s", ato_errormsg());
    const bool logged = st.format == ATO_FORMAT_LOG; /* so it is made plain again */
    if (at != MAP_FAILED && ato_munmap(at, 1, logged ? ATO_UNMAP_SPATIAL : ATO_UNMAP_FAST) < 0)
        outcome_set(o, FAILED, "%s", ato_errormsg());
    if (o->result <= DONE && logged)
        outcome_set(o, REFUSED, has_log);
    else if (o->result <= DONE && st.format != options.format)
        outcome_set(o, MAPPED,
                    "another process has mapped it meanwhile, with the other format; try again");
}

static int do_file(const char *name, const struct tool_request *request, struct json *j)
{
    static struct look look;
    struct deployed d = {.o.name = name};
    char folder[sizeof(look.folder.path)] = "";
    int to = (int)request->to - 1;
    bool had_it = false;
    if (look_at(&look, name) < 0)
        outcome_set(&d.o, BLIND, "%s", report_sentence());
    const bool has = d.o.result != BLIND && look.state != LOOK_PLAIN && look.state != LOOK_COPIED &&
                     look.manifest.found == MANIFEST_VALID;
    const int is = has ? (int)look.manifest.record.format : -1,
              domain = has ? (int)look.manifest.record.domain : 0;
    const bool refused = look.state >= LOOK_COPIED;
    if (has)
        memcpy(folder, look.folder.path, sizeof(folder));
    if (to < 0)
        to = is == LAYOUT_DENSE ? LAYOUT_SPARSE : LAYOUT_DENSE;
    had_it = is == to && look.state == LOOK_CLEAN;
    look_close(&look);
    if (d.o.result != BLIND && !has && !refused && !request->to)
        outcome_set(&d.o, REFUSED, "has no reflection: say which format it shall have, with --to");
    else if (is == LAYOUT_LOG)
        outcome_set(&d.o, REFUSED, has_log);
    else if (d.o.result != BLIND && !had_it) {
        deploy_file(&d, name, request); /* refuses what is mapped or damaged */
        if (d.o.result == SKIPPED)
            outcome_set(&d.o, REFUSED, "is a folder");
        if (d.o.result <= DONE)
            bear(&d.o, to, domain, *folder ? folder : NULL);
    }
    const bool good = d.o.result <= DONE;
    outcome_show(&d.o, request, j, "its reflection is %s%s", look_format_name(to),
                 had_it ? " already" : "");
    json_string(j, "format", good ? look_format_name(to) : NULL);
    json_bool(j, "changed", good && !had_it);
    json_number(j, "slices_brought_home", d.slices);
    look_holders_write(&d.holders, j);
    return outcome_status(&d.o);
}

static int run(const struct tool_request *request)
{
    ato_set_log(NULL, NULL); /* this command uses the library: its log goes where ATO_LOG says */
    return each_run(request, "convert", do_file);
}

const struct tool_command convert_command = {
    .name = "convert",
    .operands = "FILE...",
    .what = "gives a file a reflection of the other format",
    .help = "Changes the format of the reflection of each FILE, from dense (the fastest) to\n"
            "sparse (for few updates far apart) or back; a plain file needs --to. The file is\n"
            "deployed first, as by 'ato deploy', and the same files are refused. A guard ends.\n"
            "In domain disk files have a log, and are refused.\n",
    .least = 1,
    .options = HAS(JSON) | HAS(QUIET) | HAS(TO),
    .run = run,
};
