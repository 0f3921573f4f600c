/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The heat map as a picture: a grid of cells, from the start of the file to its end, line by line. White: all slices are valid in
 * the file itself; from yellow to dark red: some to all are valid in the reflection. The axis at the left says where in the file
 * a line begins, that at the top how far a cell is from there; below is the scale of colours.
 *
 * Both kinds of pictures are drawn by the same code, on a canvas. libpng draws no text, so there are some letters here.
 */
#include "heat.h"

#include "text.h"

#include "reflection/media/report.h"

#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#ifdef HAVE_PNG
#include <png.h>
#endif

enum { COLUMNS = 64, LINES = 64, CELL = 10 };

/* Where the parts are: GRID, the upper left corner of the grid; the scale has STEPS boxes of WIDE. */
enum {
    GRID_X = 88,
    GRID_Y = 64,
    TICK = 6,
    WIDTH = GRID_X + COLUMNS * CELL + 24,
    BELOW = 56,
    STEPS = 16,
    WIDE = 16
};

struct grid {
    uint64_t each, cells, lines;
};

static struct grid divide(const struct heat *h)
{
    struct grid g;
    g.each = heat_divide(h, COLUMNS * LINES, &g.cells);
    g.lines = g.cells ? (g.cells - 1) / COLUMNS + 1 : 1;
    return g;
}

static unsigned height_of(const struct grid *g)
{
    return GRID_Y + (unsigned)g->lines * CELL + BELOW;
}

typedef unsigned char colour[3];

static const colour black = {0x20, 0x20, 0x20};

/* Of a share: 0 is none. */
static void colour_of(double share, colour rgb)
{
    static const colour first = {255, 224, 102}, last = {150, 0, 24};
    for (int i = 0; i < 3; i++)
        rgb[i] = share <= 0 ? 255 : (unsigned char)(first[i] + (int)((last[i] - first[i]) * share));
}

/* ---- the canvas ---- */

struct canvas {
    FILE *svg;             /* NULL: pixels */
    unsigned char *pixels; /* RGB, WIDTH of them in a line */
};

/* `title`: what a viewer shows of an SVG's box; NULL. */
static void draw_box(const struct canvas *c, unsigned x, unsigned y, unsigned wide, unsigned high,
                     const colour rgb, const char *title)
{
    if (c->svg)
        fprintf(c->svg,
                title ? "<rect x=\"%u\" y=\"%u\" width=\"%u\" height=\"%u\" "
                        "fill=\"#%02x%02x%02x\"><title>%s</title></rect>\n"
                      : "<rect x=\"%u\" y=\"%u\" width=\"%u\" height=\"%u\" "
                        "fill=\"#%02x%02x%02x\"/>\n",
                x, y, wide, high, rgb[0], rgb[1], rgb[2], title);
    else
        for (unsigned dy = 0; dy < high; dy++)
            for (unsigned dx = 0; dx < wide; dx++)
                memcpy(c->pixels + ((y + dy) * WIDTH + x + dx) * 3, rgb, 3);
}

enum { GLYPH_X = 3, GLYPH_Y = 5, DOT = 2, PITCH = (GLYPH_X + 1) * DOT };

/* Draws text that ends (`ends`) or begins at x, and has its upper edge at y. It has only these letters. */
static void draw_text(const struct canvas *c, unsigned x, unsigned y, bool ends, const char *text)
{
    /* Each with five rows of three dots, from the top; the highest bit of a row is the left one. */
    static const struct {
        char letter;
        unsigned char rows[GLYPH_Y];
    } glyphs[] = {{'0', {7, 5, 5, 5, 7}}, {'1', {2, 6, 2, 2, 7}}, {'2', {7, 1, 7, 4, 7}},
                  {'3', {7, 1, 3, 1, 7}}, {'4', {5, 5, 7, 1, 1}}, {'5', {7, 4, 7, 1, 7}},
                  {'6', {7, 4, 7, 5, 7}}, {'7', {7, 1, 2, 2, 2}}, {'8', {7, 5, 7, 5, 7}},
                  {'9', {7, 5, 7, 1, 7}}, {'.', {0, 0, 0, 0, 2}}, {'%', {5, 1, 2, 4, 5}},
                  {'+', {0, 2, 7, 2, 0}}, {'K', {5, 5, 6, 5, 5}}, {'M', {5, 7, 7, 5, 5}},
                  {'G', {7, 4, 5, 5, 7}}, {'T', {7, 2, 2, 2, 2}}, {'i', {2, 0, 2, 2, 2}},
                  {'B', {6, 5, 6, 5, 6}}, {'n', {0, 0, 6, 5, 5}}, {'o', {0, 0, 7, 5, 7}},
                  {'e', {0, 7, 7, 4, 7}}};
    if (c->svg) {
        fprintf(c->svg, "<text x=\"%u\" y=\"%u\"%s>%s</text>\n", x, y + GLYPH_Y * DOT,
                ends ? " text-anchor=\"end\"" : "", text);
        return;
    }
    x -= ends ? (unsigned)strlen(text) * PITCH : 0;
    for (; *text; text++, x += PITCH)
        for (size_t i = 0; i < sizeof(glyphs) / sizeof(*glyphs); i++)
            for (unsigned dot = 0; glyphs[i].letter == *text && dot < GLYPH_X * GLYPH_Y; dot++)
                if (glyphs[i].rows[dot / GLYPH_X] >> (GLYPH_X - 1 - dot % GLYPH_X) & 1)
                    draw_box(c, x + dot % GLYPH_X * DOT, y + dot / GLYPH_X * DOT, DOT, DOT, black,
                             NULL);
}

/* A place in the file, for an axis: "384 KiB", "1.5 GiB". */
enum { PLACE = 24 };
static const char *place(char to[PLACE], const char *sign, uint64_t bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double rest = (double)bytes;
    unsigned unit = 0;
    for (; rest >= 1024 && unit < 4; unit++)
        rest /= 1024;
    if (bytes)
        (void)snprintf(to, PLACE, "%s%.4g %s", sign, rest, units[unit]);
    else
        (void)snprintf(to, PLACE, "%s0", sign);
    return to;
}

static void draw_axes(const struct canvas *c, const struct heat *h, const struct grid *g)
{
    enum { EACH_LINES = 4, EACH_COLUMNS = 16 };
    const uint64_t cell = g->each * h->bin_pages * PAGE_BYTES;
    const unsigned columns = g->cells < COLUMNS ? (unsigned)g->cells : COLUMNS;
    char text[PLACE];
    for (unsigned line = 0; line < g->lines; line += EACH_LINES) {
        draw_box(c, GRID_X - TICK, GRID_Y + line * CELL, TICK, 1, black, NULL);
        draw_text(c, GRID_X - TICK - 4, GRID_Y + line * CELL, true,
                  place(text, "", line * COLUMNS * cell));
    }
    for (unsigned column = 0; column < columns; column += EACH_COLUMNS) {
        draw_box(c, GRID_X + column * CELL, GRID_Y - TICK, 1, TICK, black, NULL);
        draw_text(c, GRID_X + column * CELL, GRID_Y - TICK - 14, false,
                  place(text, "+", column * cell));
    }
}

static void draw_cells(const struct canvas *c, const struct heat *h, const struct grid *g)
{
    for (uint64_t i = 0; i < g->cells; i++) {
        const struct heat_cell cell = heat_cell(h, g->each, i);
        char title[160];
        colour rgb;
        (void)snprintf(title, sizeof(title),
                       "pages %" PRIu64 "-%" PRIu64 ": %" PRIu64 " of %" PRIu64 " slices",
                       cell.page, cell.page + cell.pages - 1, cell.reflected, cell.slices);
        colour_of(cell.reflected ? (double)cell.reflected / (double)cell.slices : 0, rgb);
        draw_box(c, GRID_X + (unsigned)(i % COLUMNS) * CELL,
                 GRID_Y + (unsigned)(i / COLUMNS) * CELL, CELL - 1, CELL - 1, rgb, title);
    }
}

static void draw_scale(const struct canvas *c, const struct grid *g)
{
    const unsigned y = GRID_Y + (unsigned)g->lines * CELL + 16, x = GRID_X + 3 * WIDE;
    colour rgb;
    colour_of(0, rgb);
    draw_box(c, GRID_X, y, WIDE, WIDE, rgb, NULL);
    draw_text(c, GRID_X, y + WIDE + 4, false, "none");
    for (unsigned i = 0; i < STEPS; i++) {
        colour_of((i + 0.5) / STEPS, rgb);
        draw_box(c, x + i * WIDE, y, WIDE, WIDE, rgb, NULL);
    }
    draw_text(c, x, y + WIDE + 4, false, "0 %");
    draw_text(c, x + STEPS * WIDE / 2, y + WIDE + 4, false, "50 %");
    draw_text(c, x + STEPS * WIDE, y + WIDE + 4, true, "100 %");
}

static void draw(const struct canvas *c, const struct heat *h, const struct grid *g)
{
    draw_axes(c, h, g);
    draw_cells(c, h, g);
    draw_scale(c, g);
}

/* ---- the file that is written ---- */

struct output {
    FILE *file;
    char temporary[PATH_MAX]; /* "": the file itself is written to: a device or a pipe */
};

static int begin(struct output *o, const struct look *l, const char *out)
{
    struct stat own, there;
    const bool exists = stat(out, &there) == 0;
    o->temporary[0] = '\0';
    if (exists && fstat(l->fd, &own) == 0 && own.st_dev == there.st_dev &&
        own.st_ino == there.st_ino)
        return report_error(EEXIST, "%s is the file whose map is asked for: choose another name",
                            out);
    int fd = -1;
    if (exists && !S_ISREG(there.st_mode)) {
        o->file = fopen(out, "we");
    } else if (snprintf(o->temporary, PATH_MAX, "%s.XXXXXX", out) >= PATH_MAX) {
        return report_error(ENAMETOOLONG, "the name %s is too long", out);
    } else {
        const mode_t mask = umask(0);
        umask(mask);
        fd = mkstemp(o->temporary);
        o->file = fd >= 0 && fchmod(fd, 0666 & ~mask) == 0 ? fdopen(fd, "w") : NULL;
    }
    if (o->file)
        return 0;
    report_errno(errno, "cannot write %s", out);
    KEEP_ERRNO();
    if (fd >= 0) {
        close(fd);
        unlink(o->temporary);
    }
    return -1;
}

static int end(struct output *o, const char *out, bool good)
{
    const bool written = good && fflush(o->file) == 0 && !ferror(o->file);
    const int error = errno;
    const bool closed = fclose(o->file) == 0;
    if (written && closed && (!o->temporary[0] || rename(o->temporary, out) == 0))
        return 0;
    report_errno(written ? errno : error, "cannot write %s", out);
    KEEP_ERRNO();
    if (o->temporary[0])
        unlink(o->temporary);
    return -1;
}

/* ---- SVG ---- */

/* Writes a name as text of XML, which may have no control characters and has to be UTF-8. */
static void put_name(FILE *out, const char *name)
{
    for (const unsigned char *at = (const unsigned char *)name; *at;) {
        const unsigned n = text_character(at);
        if (*at < 32 || *at == 127 || n == 0)
            fprintf(out, "\\x%02x", *at++);
        else if (strchr("<>&\"", *at))
            fprintf(out, "&#%u;", *at++);
        else
            at += fwrite(at, 1, n, out);
    }
}

int heat_write_svg(const struct heat *h, const struct look *l, const char *name, const char *out)
{
    const struct grid g = divide(h);
    struct output o;
    char size[TEXT_SIZE];
    if (begin(&o, l, out) < 0)
        return -1;
    const struct canvas c = {.svg = o.file};
    fprintf(o.file,
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<svg xmlns=\"http://www.w3.org/2000/svg\" "
            "width=\"%d\" height=\"%u\" font-family=\"sans-serif\" font-size=\"12\">\n"
            "<rect width=\"100%%\" height=\"100%%\" fill=\"#eee\"/>\n<text x=\"4\" y=\"16\">",
            WIDTH, height_of(&g));
    put_name(o.file, name);
    fprintf(o.file,
            ": %s; %" PRIu64 " of %" PRIu64 " slices are in the reflection (%.1f %%)</text>\n"
            "<text x=\"%d\" y=\"%u\">share of the slices of a cell (%s)</text>\n",
            text_size(size, h->size), h->reflected, h->slices,
            heat_percent(h->reflected, h->slices), GRID_X + (STEPS + 4) * WIDE,
            GRID_Y + (unsigned)g.lines * CELL + 28,
            place((char[PLACE]){0}, "", g.each * h->bin_pages * PAGE_BYTES));
    draw(&c, h, &g);
    fputs("</svg>\n", o.file);
    return end(&o, out, true);
}

/* ---- PNG ---- */

#ifdef HAVE_PNG
int heat_write_png(const struct heat *h, const struct look *l, const char *out)
{
    static const colour grey = {0xee, 0xee, 0xee};
    const struct grid g = divide(h);
    png_image image = {.version = PNG_IMAGE_VERSION,
                       .width = WIDTH,
                       .height = height_of(&g),
                       .format = PNG_FORMAT_RGB};
    struct output o;
    const struct canvas c = {.pixels = malloc(PNG_IMAGE_SIZE(image))};
    if (!c.pixels)
        return report_error(ENOMEM, "no memory for a picture");
    if (begin(&o, l, out) < 0) {
        free(c.pixels);
        return -1;
    }
    draw_box(&c, 0, 0, WIDTH, height_of(&g), grey, NULL);
    draw(&c, h, &g);
    errno = EIO;
    const bool good = png_image_write_to_stdio(&image, o.file, 0, c.pixels, 0, NULL);
    free(c.pixels);
    return end(&o, out, good);
}
#else
int heat_write_png(const struct heat *h, const struct look *l, const char *out)
{
    (void)h;
    (void)l;
    return report_error(ENOTSUP, "cannot write %s: this 'ato' was built without libpng; use --svg",
                        out);
}
#endif
