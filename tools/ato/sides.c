/* SPDX-License-Identifier: BSD-3-Clause */
#include "sides.h"

#include "sqlite_hold.h"
#include "text.h"

#include "reflection/format/layout.h"
#include "reflection/media/report.h"

#include <inttypes.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { RANGES = 8 }; /* page ranges that are listed */

struct pages {
    uint64_t count, first, last; /* the last range, which may get longer */
    unsigned ranges;
    FILE *out;
    const struct look *look;
};

static void end_range(struct pages *p)
{
    if (!p->count || p->ranges > RANGES)
        return;
    if (p->ranges == RANGES)
        fputs(", ...", p->out);
    else
        fprintf(p->out, p->first == p->last ? "%s%" PRIu64 : "%s%" PRIu64 "-%" PRIu64,
                p->ranges ? ", " : "", p->first, p->last);
    p->ranges++;
}

static void add_page(struct pages *p, uint64_t page)
{
    if (p->count && page == p->last + 1) {
        p->last = page;
    } else {
        end_range(p);
        p->first = p->last = page;
    }
    p->count++;
}

/* Returns true if the slices that are valid in the reflection have other bytes in the file. */
static bool differs(const struct look *l, const struct look_word *w)
{
    const uint64_t at = layout_refpage(l->manifest.record.format, w->place);
    unsigned char home[PAGE_BYTES] = {0}, there[PAGE_BYTES] = {0};
    if (pread(l->fd, home, sizeof(home), (off_t)(w->page * PAGE_BYTES)) < 0 ||
        pread(l->reflection, there, sizeof(there), (off_t)at) < 0)
        return true;
    for (unsigned slice = 0; slice < PAGE_BYTES / SLICE_BYTES; slice++)
        if (w->word >> slice & 1 &&
            memcmp(home + slice * SLICE_BYTES, there + slice * SLICE_BYTES, SLICE_BYTES) != 0)
            return true;
    return false;
}

static void look_at_page(void *arg, const struct look_word *w)
{
    struct pages *p = arg;
    if (differs(p->look, w))
        add_page(p, w->page);
}

static void say_time(FILE *out, int64_t seconds)
{
    const time_t at = (time_t)seconds;
    struct tm tm;
    char text[64];
    if (localtime_r(&at, &tm) && strftime(text, sizeof(text), "%Y-%m-%d %H:%M:%S", &tm))
        fputs(text, out);
}

void sides_say(FILE *out, const char *name, const struct look *l)
{
    char size[TEXT_SIZE];
    const struct manifest_record *r = &l->manifest.record;
    struct pages pages = {.out = out, .look = l};
    struct stat st;
    char header[16] = {0};
    if (!(l->ways & WAY_FILE))
        return;
    text_put(out, name);
    fprintf(out, l->ways & WAY_REFLECTION ? ": the sides are\n" : ": the only side is\n");
    fprintf(out, "  --prefer=file        the file as it is: %s", text_size(size, l->identity.size));
    if (fstat(l->fd, &st) == 0)
        fputs(", written at ", out), say_time(out, st.st_mtim.tv_sec);
    fprintf(out,
            "\n                       without what only its reflection has: older and newer parts "
            "may be mixed%s\n",
            pread(l->fd, header, sizeof(header), 0) > 0 && sqlite_is_header(header)
                ? "; afterwards, run PRAGMA integrity_check"
                : "");
    if (!(l->ways & WAY_REFLECTION))
        return;
    fputs("  --prefer=reflection  the file with the slices of its reflection", out);
    if (r->state == MANIFEST_CLEAN)
        fputs(", unmapped at ", out), say_time(out, r->clean_mtime_sec);
    fputs("\n                       pages of 4096 bytes that differ: ", out);
    if (look_each_word(l->reflection, l->reflection_length, r->format, look_at_page, &pages) < 0) {
        fputs("not known: ", out), text_put(out, report_sentence()), putc('\n', out);
        return;
    }
    end_range(&pages);
    fputs(pages.count ? "\n" : "none, both sides are the same\n", out);
    fputs(l->state == LOOK_APART && !l->is_mixed
              ? "                       right if file and reflection were saved together, while no "
                "program had the file open\n"
              : "                       a mixture, if another file was copied over this one\n",
          out);
    fputs("  To be able to choose again, copy the file and its reflection first.\n", out);
}
