/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The heat map as a picture: a grid of cells, from the start of the file to its end, line by line. White: all slices are valid in
 * the file itself; from yellow to dark red: some to all are valid in the reflection.
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

static void colour(const struct heat_cell *c, unsigned char rgb[3])
{
    static const unsigned char first[3] = {255, 224, 102}, last[3] = {150, 0, 24};
    for (int i = 0; i < 3; i++)
        rgb[i] = !c->reflected
                     ? 255
                     : (unsigned char)(first[i] + (int)((double)(last[i] - first[i]) *
                                                        (double)c->reflected / (double)c->slices));
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
    enum { TEXT = 44 };
    const struct grid g = divide(h);
    struct output o;
    char size[TEXT_SIZE];
    unsigned char rgb[3];
    if (begin(&o, l, out) < 0)
        return -1;
    fprintf(o.file,
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<svg xmlns=\"http://www.w3.org/2000/svg\" "
            "width=\"%d\" height=\"%" PRIu64 "\" font-family=\"sans-serif\" font-size=\"12\">\n"
            "<rect width=\"100%%\" height=\"100%%\" fill=\"#eee\"/>\n<text x=\"4\" y=\"16\">",
            COLUMNS * CELL, TEXT + g.lines * CELL);
    put_name(o.file, name);
    fprintf(
        o.file,
        ": %s</text>\n<text x=\"4\" y=\"34\">%" PRIu64 " of %" PRIu64
        " slices are in the reflection (%.1f %%); white: none, dark red: all of a cell</text>\n",
        text_size(size, h->size), h->reflected, h->slices, heat_percent(h->reflected, h->slices));
    for (uint64_t i = 0; i < g.cells; i++) {
        const struct heat_cell c = heat_cell(h, g.each, i);
        colour(&c, rgb);
        fprintf(o.file,
                "<rect x=\"%" PRIu64 "\" y=\"%" PRIu64
                "\" width=\"%d\" height=\"%d\" fill=\"#%02x%02x%02x\"><title>pages %" PRIu64
                "-%" PRIu64 ": %" PRIu64 " of %" PRIu64 " slices</title></rect>\n",
                i % COLUMNS * CELL, TEXT + i / COLUMNS * CELL, CELL - 1, CELL - 1, rgb[0], rgb[1],
                rgb[2], c.page, c.page + c.pages - 1, c.reflected, c.slices);
    }
    fputs("</svg>\n", o.file);
    return end(&o, out, true);
}

/* ---- PNG ---- */

#ifdef HAVE_PNG
int heat_write_png(const struct heat *h, const struct look *l, const char *out)
{
    const struct grid g = divide(h);
    png_image image = {.version = PNG_IMAGE_VERSION,
                       .width = COLUMNS * CELL,
                       .height = (png_uint_32)g.lines * CELL,
                       .format = PNG_FORMAT_RGB};
    struct output o;
    unsigned char *pixels = malloc(PNG_IMAGE_SIZE(image));
    if (!pixels)
        return report_error(ENOMEM, "no memory for a picture");
    if (begin(&o, l, out) < 0) {
        free(pixels);
        return -1;
    }
    memset(pixels, 0xee, PNG_IMAGE_SIZE(image));
    for (uint64_t i = 0; i < g.cells; i++) {
        const struct heat_cell c = heat_cell(h, g.each, i);
        for (int y = 0; y < CELL - 1; y++)
            for (int x = 0; x < CELL - 1; x++)
                colour(&c, pixels + ((i / COLUMNS * CELL + (uint64_t)y) * COLUMNS * CELL +
                                     i % COLUMNS * CELL + (uint64_t)x) *
                                        3);
    }
    errno = EIO;
    const bool good = png_image_write_to_stdio(&image, o.file, 0, pixels, 0, NULL);
    free(pixels);
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
