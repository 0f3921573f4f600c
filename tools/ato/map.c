/* SPDX-License-Identifier: BSD-3-Clause */
/* `ato map`: where in a file the slices lie that have their valid copy in the reflection. */
#include "each.h"
#include "text.h"

#include "reflection/format/layout.h"
#include "reflection/media/report.h"

#include <inttypes.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { LINES = 16, CELLS = 1024 };

/* The file in cells, and of each how many slices are valid in the reflection. */
struct map {
    uint64_t size, pages, slices;
    uint64_t each; /* pages of a cell; the last one may have fewer */
    uint64_t cells, reflected;
    uint64_t count[LINES * 1024];
};

static void count(void *arg, const struct look_word *at)
{
    struct map *m = arg;
    uint64_t word = at->word;
    /* After an interrupted shrink there may be words behind the end, which do not count. */
    if (at->page >= m->pages || at->again)
        return;
    const uint64_t here = m->slices - at->page * PAGE_SLICES;
    if (here < PAGE_SLICES)
        word &= (1ull << here) - 1;
    m->count[at->page / m->each] += bitmap_count(word);
    m->reflected += bitmap_count(word);
}

/* Reads the bitmaps into at most `most` cells. */
static void read_file(struct map *m, const struct look *l, uint64_t most, struct outcome *o)
{
    const bool holds = l->state != LOOK_PLAIN && l->state != LOOK_BORN;
    if (holds && (l->state == LOOK_COPIED || l->manifest.found != MANIFEST_VALID ||
                  !l->manifest.has_size || l->reflection < 0)) {
        char why[sizeof(o->why) - 128];
        look_why(why, sizeof(why), l, o->name);
        outcome_set(o, BLIND, "is %s, and has no valid reflection%s%s", look_state_name(l->state),
                    *why ? ": " : "", why);
        return;
    }
    m->size = holds ? l->manifest.size : l->identity.size;
    m->pages = layout_pages(m->size);
    m->slices = m->size / SLICE_BYTES + (m->size % SLICE_BYTES != 0);
    m->each = m->pages ? (m->pages - 1) / most + 1 : 1;
    m->cells = m->pages ? (m->pages - 1) / m->each + 1 : 0;
    if (holds && look_each_word(l->reflection, l->reflection_length, l->manifest.record.format,
                                count, m) < 0)
        outcome_set(o, BLIND, "%s", report_sentence());
}

static double percent(uint64_t part, uint64_t whole)
{
    return whole ? 100.0 * (double)part / (double)whole : 0;
}

/* Each line is a part of the file: where it begins, a sign for each cell, and the share of its slices. */
static void draw(const struct map *m, uint64_t width)
{
    char size[TEXT_SIZE];
    printf("  . none of the slices, 1 to 7 some, # all; a sign stands for %s\n",
           text_size(size, m->each * PAGE_BYTES));
    for (uint64_t first = 0; first < m->cells; first += width) {
        uint64_t reflected = 0, slices = 0;
        printf("  %5.1f %% ", percent(first * m->each, m->pages));
        for (uint64_t i = first; i < first + width; i++) {
            const uint64_t before = i * m->each * PAGE_SLICES, all = m->each * PAGE_SLICES,
                           has = i >= m->cells              ? 0
                                 : m->slices - before < all ? m->slices - before
                                                            : all;
            putchar(i >= m->cells        ? ' '
                    : m->count[i] == 0   ? '.'
                    : m->count[i] == has ? '#'
                                         : (int)('1' + m->count[i] * 7 / has));
            reflected += has ? m->count[i] : 0;
            slices += has;
        }
        printf("  %5.1f %%\n", percent(reflected, slices));
    }
}

static int run(const struct tool_request *request)
{
    static struct look look;
    static struct map m;
    struct json j;
    struct winsize window = {0};
    struct outcome o = {.name = request->names[0], .result = DONE};
    char size[TEXT_SIZE], why[sizeof(o.why)];
    (void)ioctl(STDOUT_FILENO, TIOCGWINSZ, &window);
    const uint64_t columns = window.ws_col < 40    ? window.ws_col ? 40 : 80
                             : window.ws_col > 200 ? 200
                                                   : window.ws_col;
    if (look_at(&look, o.name) < 0)
        outcome_set(&o, BLIND, "%s", report_sentence());
    else
        read_file(&m, &look, request->json ? CELLS : (columns - 20) * LINES, &o);
    const int status = outcome_status(&o);
    json_start(&j, "map", request->json);
    outcome_show(&o, request, &j,
                 "%s, %s: %" PRIu64 " of %" PRIu64 " slices are in the reflection (%.1f %%)",
                 look_state_name(look.state), text_size(size, m.size), m.reflected, m.slices,
                 percent(m.reflected, m.slices));
    if (status == TOOL_GOOD) {
        json_string(&j, "state", look_state_name(look.state));
        json_string(&j, "problem", look.problem[0] ? look.problem : NULL);
        json_number(&j, "size", m.size);
        json_number(&j, "pages", m.pages);
        json_number(&j, "slices", m.slices);
        json_number(&j, "slices_in_reflection", m.reflected);
        json_number(&j, "pages_per_cell", m.each);
        json_list(&j, "cells");
        for (uint64_t i = 0; i < m.cells; i++)
            json_number(&j, NULL, m.count[i]);
        json_end(&j);
    }
    if (status == TOOL_GOOD && !request->json) {
        if (look.problem[0]) {
            look_why(why, sizeof(why), &look, o.name);
            text_item("problem", "%s", why);
        }
        draw(&m, columns - 20);
    }
    json_finish(&j, status);
    look_close(&look);
    return status;
}

const struct tool_command map_command = {
    .name = "map",
    .operands = "FILE",
    .what = "shows where a file's slices are",
    .help =
        "Shows which parts of FILE have slices of 64 bytes whose valid copy is in the\n"
        "reflection: each line is as wide as the terminal, with the place of its first sign\n"
        "in the file, and the share of its slices. Changes nothing, and waits for no process.\n",
    .least = 1,
    .most = 1,
    .options = HAS(JSON),
    .run = run,
};
