/* SPDX-License-Identifier: BSD-3-Clause */
/* `ato gc`: finds and removes what files and processes that are gone left. */
#include "gc.h"

#include "text.h"
#include "tool.h"

#include "reflection/media/report.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/stat.h>

void gc_add(struct gc *gc, enum gc_fate fate, const char *kind, const char *path, uint64_t bytes,
            const char *format, ...)
{
    static const char *const fates[] = {"kept",    "unsure", "useless",
                                        "removed", "failed", "not looked at"};
    char why[2048], size[TEXT_SIZE];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(why, sizeof(why), format, args);
    va_end(args);
    gc->count[fate]++;
    gc->bytes[fate] += bytes;
    json_object(&gc->json, NULL);
    json_string(&gc->json, "path", path);
    json_string(&gc->json, "kind", kind);
    json_string(&gc->json, "result", fates[fate]);
    json_string(&gc->json, "why", why);
    json_number(&gc->json, "bytes", bytes);
    json_end(&gc->json);
    if (gc->json.out)
        return;
    FILE *out = fate >= GC_FAILED ? stderr : stdout;
    fflush(stdout);
    text_put(out, path);
    fprintf(out, ": %s: %s, ", fates[fate], kind);
    if (fate != GC_BLIND)
        fprintf(out, "%s: ", text_size(size, bytes));
    text_put(out, why);
    putc('\n', out);
}

bool gc_wanted(const struct gc *gc, enum gc_fate fate)
{
    return (fate == GC_USELESS && gc->delete) || (fate == GC_UNSURE && gc->delete == DELETE_ALL);
}

void gc_settle(struct gc *gc, enum gc_fate fate, const char *kind, const char *path, uint64_t bytes,
               int removed, const char *why)
{
    if (!gc_wanted(gc, fate) || removed == 0)
        gc_add(gc, gc_wanted(gc, fate) ? GC_REMOVED : fate, kind, path, bytes, "%s", why);
    else if (removed < 0)
        gc_add(gc, GC_FAILED, kind, path, bytes, "cannot remove it: %s", report_reason(errno));
    else
        gc_add(gc, GC_KEPT, kind, path, bytes, "a process is just using it");
}

static int run(const struct tool_request *request)
{
    static const char *const sums[GC_FATES] = {
        [GC_REMOVED] = "removed",
        [GC_USELESS] = "useless; 'ato gc --delete' removes it",
        [GC_UNSURE] = "unsure, since content is in it; 'ato gc --delete=all' removes it",
        [GC_KEPT] = "kept"};
    struct gc gc = {.delete = request->deletes};
    struct stat st;
    char size[TEXT_SIZE];
    bool any = false;
    const char *folder = request->count ? request->names[0] : ".";
    json_start(&gc.json, "gc", request->json);
    json_list(&gc.json, "items");
    if (stat(folder, &st) == 0 && !S_ISDIR(st.st_mode))
        gc_add(&gc, GC_BLIND, "folder", folder, 0, "it is not a folder");
    else
        gc_folders(&gc, folder);
    gc_shared(&gc);
    const int status = gc.count[GC_FAILED] ? TOOL_BAD : gc.count[GC_BLIND] ? TOOL_BLIND : TOOL_GOOD;
    json_finish(&gc.json, status);
    for (int fate = 0; fate < GC_FATES; fate++) {
        any |= gc.count[fate] > 0;
        if (!request->json && sums[fate] && gc.count[fate])
            printf("%s: %" PRIu64 ", %s\n", sums[fate], gc.count[fate],
                   text_size(size, gc.bytes[fate]));
    }
    if (!request->json && !any)
        puts("nothing was left");
    while (gc.ids) {
        struct gc_id *next = gc.ids->next;
        free(gc.ids);
        gc.ids = next;
    }
    return status;
}

const struct tool_command gc_command = {
    .name = "gc",
    .operands = "[FOLDER]",
    .what = "finds and removes what files that are gone left",
    .help = "Looks in FOLDER (by default the working directory) and all folders below it for\n"
            "reflections whose file is gone, and what was set aside or left over; and in /dev/shm\n"
            "for the shared memory of files there (if FOLDER is /dev/shm, or around it: of any\n"
            "file). Each is a line, 'PATH: result: kind, bytes: why'; removes nothing without\n"
            "--delete. What is unsure holds content of a file that was removed, or is elsewhere\n"
            "and then loses it: look first! What a process uses is kept.\n",
    .most = 1,
    .options = HAS(JSON) | HAS(DELETE),
    .run = run,
};
