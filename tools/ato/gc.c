/* SPDX-License-Identifier: BSD-3-Clause */
/* `ato gc`: finds and removes what files and processes that are gone left. */
#include "gc.h"

#include "json.h"
#include "text.h"
#include "tool.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const char *const fates[] = {"kept",    "unsure", "useless",
                                    "removed", "failed", "not looked at"};

void gc_add(struct gc *gc, enum gc_fate fate, const char *kind, const char *path, uint64_t bytes,
            const char *format, ...)
{
    struct gc_item next = {.kind = kind, .bytes = bytes, .fate = fate, .path = strdup(path)};
    va_list args;
    va_start(args, format);
    if (vasprintf(&next.why, format, args) < 0)
        next.why = NULL;
    va_end(args);
    if (gc->n == gc->room) {
        size_t room = gc->room ? 2 * gc->room : 64;
        struct gc_item *more = reallocarray(gc->items, room, sizeof(*more));
        gc->items = more ? more : gc->items;
        gc->room = more ? room : gc->room;
    }
    if (gc->n == gc->room || !next.path || !next.why) {
        gc->lost = true;
        free(next.path);
        free(next.why);
        return;
    }
    gc->items[gc->n++] = next;
}

void gc_step(struct gc *gc)
{
    gc->done++;
    if (gc->total)
        progress_show(&gc->progress, gc->done < gc->total ? gc->done : gc->total, gc->total);
    else
        progress_count(&gc->progress, gc->done);
}

bool gc_wanted(const struct gc *gc, enum gc_fate fate)
{
    return (fate == GC_USELESS && gc->delete >= GC_THE_USELESS) ||
           (fate == GC_UNSURE && gc->delete == GC_ALL);
}

static uint64_t sum(const struct gc *gc, enum gc_fate fate, uint64_t *count)
{
    uint64_t bytes = 0;
    *count = 0;
    for (size_t i = 0; i < gc->n; i++)
        if (gc->items[i].fate == fate) {
            bytes += gc->items[i].bytes;
            ++*count;
        }
    return bytes;
}

static void write_json(const struct gc *gc, int status)
{
    struct json j;
    json_start(&j, "gc");
    json_list(&j, "items");
    for (size_t i = 0; i < gc->n; i++) {
        json_object(&j, NULL);
        json_string(&j, "path", gc->items[i].path);
        json_string(&j, "kind", gc->items[i].kind);
        json_string(&j, "result", fates[gc->items[i].fate]);
        json_string(&j, "why", gc->items[i].why);
        json_number(&j, "bytes", gc->items[i].bytes);
        json_end(&j);
    }
    json_end(&j);
    json_bool(&j, "complete", !gc->lost);
    json_finish(&j, status);
}

static void say_sum(const struct gc *gc, enum gc_fate fate, const char *what)
{
    char size[TEXT_SIZE];
    uint64_t count;
    const uint64_t bytes = sum(gc, fate, &count);
    if (count)
        printf("%s: %" PRIu64 ", %s\n", what, count, text_size(size, bytes));
}

static void say(const struct gc *gc)
{
    char size[TEXT_SIZE];
    for (size_t i = 0; i < gc->n; i++) {
        const struct gc_item *item = &gc->items[i];
        FILE *out = item->fate >= GC_FAILED ? stderr : stdout;
        fflush(stdout);
        text_put(out, item->path);
        fprintf(out, ": %s: %s, ", fates[item->fate], item->kind);
        if (item->fate != GC_BLIND)
            fprintf(out, "%s: ", text_size(size, item->bytes));
        text_put(out, item->why);
        putc('\n', out);
    }
    if (gc->lost)
        fputs("no memory for all that there is: this is a part of it\n", stderr);
    say_sum(gc, GC_REMOVED, "removed");
    say_sum(gc, GC_USELESS, "useless; 'ato gc --delete' removes it");
    say_sum(gc, GC_UNSURE, "unsure, since content is in it; 'ato gc --delete=all' removes it");
    say_sum(gc, GC_KEPT, "kept");
    if (!gc->n)
        puts("nothing was left");
}

static int run(const struct tool_request *request)
{
    static struct gc gc;
    uint64_t failed, blind;
    struct stat st;
    const char *folder = request->count ? request->names[0] : ".";
    gc.delete = !request->deletes ? GC_NOTHING : *request->deletes ? GC_ALL : GC_THE_USELESS;
    progress_start(&gc.progress, folder, !request->json);
    if (stat(folder, &st) == 0 && !S_ISDIR(st.st_mode))
        gc_add(&gc, GC_BLIND, "folder", folder, 0, "it is not a folder");
    else
        gc_folders(&gc, folder);
    gc_shared(&gc);
    progress_end(&gc.progress);
    (void)sum(&gc, GC_FAILED, &failed);
    (void)sum(&gc, GC_BLIND, &blind);
    const int status = failed ? TOOL_BAD : blind || gc.lost ? TOOL_BLIND : TOOL_GOOD;
    if (request->json)
        write_json(&gc, status);
    else
        say(&gc);
    for (size_t i = 0; i < gc.n; i++) {
        free(gc.items[i].path);
        free(gc.items[i].why);
    }
    for (size_t i = 0; i < gc.id_count; i++)
        free(gc.ids[i].manifest);
    free(gc.items);
    free(gc.ids);
    return status;
}

const struct tool_command gc_command = {
    .name = "gc",
    .operands = "[FOLDER]",
    .what = "finds and removes what files that are gone left",
    .help =
        "Looks in FOLDER (by default the working directory) and all folders below it for\n"
        "  - reflections whose file is gone\n"
        "  - reflections and manifests that were set aside (*.stale-*)\n"
        "  - manifests that were never finished\n"
        "and in /dev/shm for shared memory (ato-*) that killed processes left of files there. If\n"
        "FOLDER is /dev/shm, or around it: of any file.\n"
        "Shows what each is, why it was left, and the storage that it takes. Removes nothing\n"
        "without --delete:\n"
        "  --delete      removes what is useless: no content of a file is in it\n"
        "  --delete=all  also what is unsure: reflections that hold content, or lie in a folder\n"
        "                that ATO_REFLECTION_DIR named, of files that are not below FOLDER. If "
        "such a\n"
        "                file was moved, or has a hard link elsewhere, it loses that content!\n"
        "\n"
        "On a terminal a line shows the progress.\n"
        "\n"
        "Each line is 'PATH: result: kind, bytes: why'. Results:\n"
        "  useless        --delete removes it\n"
        "  unsure         --delete=all removes it\n"
        "  kept           never removed: in use, not readable, or not libato's\n"
        "  removed\n"
        "  failed         could not be removed\n"
        "  not looked at  could not be read\n"
        "\n"
        "What a living process uses is never removed: the command takes the locks that a process\n"
        "takes which maps the file, and asks the kernel whether shared memory is open anywhere.\n"
        "Shared memory of other users is kept, unless root asks. Other commands need nothing that\n"
        "this one removes, and the next map of a file makes anew what it needs.\n"
        "\n"
        "Exit status: 0; 1 if something could not be removed; else 2 if something could not be\n"
        "read.\n",
    .most = 1,
    .can_delete = true,
    .run = run,
};
