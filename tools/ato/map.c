/* SPDX-License-Identifier: BSD-3-Clause */
/* `ato map`: where in a file the slices lie that have their valid copy in the reflection. */
#include "heat.h"
#include "json.h"
#include "text.h"
#include "tool.h"

#include "reflection/media/report.h"

#include <errno.h>
#include <inttypes.h>
#include <langinfo.h>
#include <locale.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { LINES = 16, LEVELS = 8, JSON_CELLS = 1024 };

/* Returns 0 for none, LEVELS for all, and what is between for some. */
static unsigned level(const struct heat_cell *c)
{
    if (!c->reflected || c->reflected == c->slices)
        return c->reflected ? LEVELS : 0;
    return 1 + (unsigned)((double)c->reflected / (double)c->slices * (LEVELS - 1));
}

static unsigned columns(void)
{
    struct winsize size;
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) < 0 || size.ws_col == 0)
        return 80;
    return size.ws_col < 40 ? 40 : size.ws_col > 200 ? 200 : size.ws_col;
}

/* ---- for people ---- */

static void draw(const struct heat *h)
{
    static const char *const blocks[] = {"\u00b7", "\u2581", "\u2582", "\u2583", "\u2584",
                                         "\u2585", "\u2586", "\u2587", "\u2588"};
    static const char *const signs[] = {".", "1", "2", "3", "4", "5", "6", "7", "#"};
    setlocale(LC_CTYPE, "");
    const bool fine = isatty(STDOUT_FILENO) && strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
    const char *const *sign = fine ? blocks : signs;
    const uint64_t width = columns() - 20;
    uint64_t cells;
    const uint64_t each = heat_divide(h, width * LINES, &cells);
    char size[TEXT_SIZE];
    printf("  %s none of the slices, %s some, %s all; a sign stands for %s\n", sign[0], sign[3],
           sign[LEVELS], text_size(size, heat_cell(h, each, 0).pages * PAGE_BYTES));
    for (uint64_t first = 0; first < cells; first += width) {
        const uint64_t end = first + width < cells ? first + width : cells;
        uint64_t reflected = 0, slices = 0;
        printf("  %5.1f %% ", heat_percent(heat_cell(h, each, first).page, h->pages));
        for (uint64_t i = first; i < first + width; i++) {
            if (i >= end) {
                putchar(' ');
                continue;
            }
            const struct heat_cell c = heat_cell(h, each, i);
            reflected += c.reflected;
            slices += c.slices;
            fputs(sign[level(&c)], stdout);
        }
        printf("  %5.1f %%\n", heat_percent(reflected, slices));
    }
}

static void say(const struct heat *h, const struct look *l, const char *name)
{
    char size[TEXT_SIZE];
    text_put(stdout, name);
    printf(": %s, %s: %" PRIu64 " of %" PRIu64 " slices are in the reflection (%.1f %%)\n",
           look_state_name(l->state), text_size(size, h->size), h->reflected, h->slices,
           heat_percent(h->reflected, h->slices));
    if (l->problem[0]) {
        fputs("  problem: ", stdout);
        text_put(stdout, l->problem);
        putchar('\n');
    }
    if (h->bins)
        draw(h);
}

/* ---- for programs ---- */

static void write_json(const struct heat *h, const struct look *l, struct json *j)
{
    uint64_t cells;
    const uint64_t each = heat_divide(h, JSON_CELLS, &cells);
    json_string(j, "state", look_state_name(l->state));
    json_string(j, "problem", l->problem[0] ? l->problem : NULL);
    json_number(j, "size", h->size);
    json_number(j, "pages", h->pages);
    json_number(j, "slices", h->slices);
    json_number(j, "slices_in_reflection", h->reflected);
    json_number(j, "pages_per_cell", each * h->bin_pages);
    json_list(j, "cells");
    for (uint64_t i = 0; i < cells; i++)
        json_number(j, NULL, heat_cell(h, each, i).reflected);
    json_end(j);
}

/* Reads the bitmaps of the file. Returns 0; -1 with a sentence. */
static int read_file(struct heat *h, struct look *l, const char *name,
                     const struct tool_request *request)
{
    struct progress progress;
    if (look_at(l, name) < 0)
        return -1;
    const bool plain = l->state == LOOK_PLAIN;
    if (!plain && (l->state == LOOK_COPIED || l->manifest.fd < 0 ||
                   (l->state != LOOK_BORN && (l->manifest.found != MANIFEST_VALID ||
                                              !l->manifest.has_size || l->reflection < 0))))
        return report_error(EUCLEAN, "is %s, and has no valid reflection",
                            look_state_name(l->state));
    const bool holds = !plain && l->state != LOOK_BORN;
    progress_start(&progress, name, !request->json);
    const int r =
        heat_read(h, holds ? l->reflection : -1, l->reflection_length, l->manifest.record.format,
                  holds ? l->manifest.size : l->identity.size, &progress);
    progress_end(&progress);
    return r;
}

static int run(const struct tool_request *request)
{
    static struct look look;
    static struct heat heat;
    struct json j;
    int status = TOOL_GOOD;
    const char *name = request->names[0], *error = NULL;
    char why[1024 + LOOK_NEXT], text[2048 + LOOK_NEXT];
    if (read_file(&heat, &look, name, request) < 0)
        status = TOOL_BLIND;
    else if ((request->svg && heat_write_svg(&heat, &look, name, request->svg) < 0) ||
             (request->png && heat_write_png(&heat, &look, request->png) < 0))
        status = TOOL_BAD;
    look_why(why, sizeof(why), &look, name);
    if (status != TOOL_GOOD) {
        (void)snprintf(text, sizeof(text), "%s%s%s", report_sentence(),
                       status == TOOL_BLIND && *why ? ": " : "", status == TOOL_BLIND ? why : "");
        error = text;
    }
    if (request->json) {
        json_start(&j, "map");
        json_string(&j, "file", name);
        json_string(&j, "error", error);
        if (status != TOOL_BLIND)
            write_json(&heat, &look, &j);
        json_finish(&j, status);
    } else if (status != TOOL_BLIND) {
        say(&heat, &look, name);
        if (look.problem[0])
            fputs("  ", stdout), text_put(stdout, why), putchar('\n');
    }
    if (error && !request->json) {
        fflush(stdout);
        text_put(stderr, name);
        fputs(": ", stderr);
        text_put(stderr, error);
        putc('\n', stderr);
    }
    look_close(&look);
    return status;
}

const struct tool_command map_command = {
    .name = "map",
    .operands = "FILE",
    .what = "shows where a file's slices are",
    .help =
        "Shows which parts of FILE have slices of 64 bytes whose valid copy is in the reflection:\n"
        "a line of signs for each part of the file, as wide as the terminal, with the place of\n"
        "its first sign in the file, and the share of its slices that are in the reflection. A\n"
        "sign is a block, the higher the more slices; or '.' for none, 1 to 7 for some, '#' for\n"
        "all where the output is no terminal, or its locale not UTF-8. Changes nothing, and waits\n"
        "for no process: of a file that is mapped and being written, the bitmaps are read one\n"
        "after the other.\n"
        "\n"
        "  --svg OUT  writes the map as a picture to the file OUT, too; '--png OUT' likewise.\n"
        "             OUT is replaced, when it is complete. White: no slice of a cell is in the\n"
        "             reflection; yellow to dark red: some to all.\n"
        "\n"
        "Exit status: 0; 1 if a picture could not be written; 2 if FILE could not be read, or its\n"
        "reflection is missing or damaged.\n",
    .least = 1,
    .most = 1,
    .can_draw = true,
    .run = run,
};
