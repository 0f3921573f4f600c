/* SPDX-License-Identifier: BSD-3-Clause */
/* `ato reclaim`: gives back the space of reflections that is not needed, by ato_reclaim(). A file may be mapped meanwhile. */
#include "deploy.h"
#include "text.h"

#include "reflection/media/report.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

static void reclaim(struct outcome *o, const struct look *l)
{
    const size_t length = l->identity.size ? l->identity.size : 1;
    struct ato_options options = deploy_options(l);
    options.max_size = length;
    const int fd CLOSING = look_open(o->name, O_RDWR);
    if (fd < 0) {
        outcome_set(o, BLIND, "cannot open it for writing, which is needed to give space back: %s",
                    report_reason(errno));
        return;
    }
    char *at = ato_mmap_opt(length, fd, 0, &options);
    const off_t size = at == MAP_FAILED ? -1 : ato_size(at);
    if (at == MAP_FAILED || (size > 0 && ato_reclaim(at, (size_t)size) < 0))
        outcome_set(o, FAILED, "%s", ato_errormsg());
    if (at != MAP_FAILED && ato_munmap(at, length, ATO_UNMAP_FAST) < 0)
        outcome_set(o, FAILED, "%s", ato_errormsg());
}

static int do_file(const char *name, const struct tool_request *request, struct json *j)
{
    static struct look look;
    struct outcome o = {.name = name, .result = DONE};
    char before_text[TEXT_SIZE], left_text[TEXT_SIZE];
    if (look_at(&look, name) < 0)
        outcome_set(&o, BLIND, "%s", report_sentence());
    const uint64_t before = look.reflection_storage;
    uint64_t left = before;
    if (o.result == DONE && look.state >= LOOK_COPIED) {
        look_why(o.why, sizeof(o.why), &look, name);
        o.result = REFUSED;
    }
    if (o.result == DONE && look.state != LOOK_PLAIN) {
        reclaim(&o, &look);
        look_close(&look);
        if (look_at(&look, name) == 0)
            left = look.reflection_storage;
    }
    look_close(&look);
    if (!before)
        outcome_show(&o, request, j, "is plain");
    else
        outcome_show(&o, request, j, "its reflection took %s, and takes %s",
                     text_size(before_text, before), text_size(left_text, left));
    json_number(j, "storage_before", before);
    json_number(j, "storage", left);
    return outcome_status(&o);
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
    .help = "Gives back the space of those pages in the reflection of each FILE in which nothing\n"
            "is valid. The content does not change; 'ato deploy' gives back all. Processes may\n"
            "have the file mapped: on a disk the space is given back when the last of them unmaps\n"
            "it.\n",
    .least = 1,
    .options = HAS(JSON) | HAS(QUIET),
    .run = run,
};
