/* SPDX-License-Identifier: BSD-3-Clause */
#include "progress.h"

#include "text.h"

#include "lib/file/clock.h"

#include <inttypes.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

/* HEAD: columns of what is before the name. */
enum { BAR = 30, HEAD = BAR + 8, LINE = 120, COUNT_NS = 100 * 1000 * 1000 };

/* Columns that the bar may use: not the last one, after which some terminals begin a new line. */
static int columns(void)
{
    struct winsize size;
    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) < 0 || size.ws_col == 0)
        return 79;
    return size.ws_col > LINE ? LINE : size.ws_col - 1;
}

void progress_start(struct progress *p, const char *name, bool wanted)
{
    const char *slash = strrchr(name, '/');
    p->name = slash && slash[1] ? slash + 1 : name;
    p->shown = wanted && isatty(STDERR_FILENO);
    p->percent = 101;
    p->next_ns = 0;
    progress_show(p, 0, 1);
}

/* Shows a line. The name comes last, since it may be cut off. */
static void put(const struct progress *p, const char *head)
{
    char text[4 * LINE] = "";
    FILE *out = fmemopen(text, sizeof(text) - 1, "w");
    if (!out)
        return;
    fprintf(out, "%*s  ", HEAD, head);
    text_put(out, p->name);
    fclose(out);
    fprintf(stderr, "\r%.*s", columns(), text);
    fflush(stderr);
}

void progress_show(struct progress *p, uint64_t done, uint64_t total)
{
    char bar[BAR + 1], head[2 * HEAD];
    unsigned percent = total ? (unsigned)((double)done * 100 / (double)total) : 100;
    if (!p->shown || percent == p->percent)
        return;
    p->percent = percent;
    for (unsigned i = 0; i < BAR; i++)
        bar[i] = i < percent * BAR / 100 ? '#' : '.';
    bar[BAR] = '\0';
    snprintf(head, sizeof(head), "[%s] %3u %%", bar, percent);
    put(p, head);
}

void progress_count(struct progress *p, uint64_t n)
{
    char head[2 * HEAD];
    const uint64_t now = p->shown ? clock_ns() : 0;
    if (!p->shown || now < p->next_ns)
        return;
    p->next_ns = now + COUNT_NS;
    snprintf(head, sizeof(head), "%" PRIu64 " looked at", n);
    put(p, head);
}

void progress_end(struct progress *p)
{
    if (p->shown)
        fprintf(stderr, "\r%*s\r", columns(), "");
    fflush(stderr);
    p->shown = false;
}
