/* SPDX-License-Identifier: BSD-3-Clause */
#include "text.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <libgen.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

unsigned text_character(const unsigned char *at)
{
    static const struct {
        unsigned char mask, head;
        uint32_t least;
    } kinds[] = {{0x80, 0x00, 0}, {0xe0, 0xc0, 0x80}, {0xf0, 0xe0, 0x800}, {0xf8, 0xf0, 0x10000}};
    for (unsigned n = 1; n <= 4; n++) {
        if ((at[0] & kinds[n - 1].mask) != kinds[n - 1].head)
            continue;
        uint32_t code = at[0] & (unsigned char)~kinds[n - 1].mask;
        for (unsigned i = 1; i < n; i++) {
            if ((at[i] & 0xc0) != 0x80)
                return 0;
            code = code << 6 | (at[i] & 0x3f);
        }
        return code >= kinds[n - 1].least && code <= 0x10ffff && (code < 0xd800 || code > 0xdfff)
                   ? n
                   : 0;
    }
    return 0;
}

/* U+0080 to U+009F are control characters too. */
static int is_control(const unsigned char *at)
{
    return at[0] < 0x20 || at[0] == 0x7f || (at[0] == 0xc2 && at[1] < 0xa0);
}

void text_put(FILE *out, const char *s)
{
    for (const unsigned char *at = (const unsigned char *)s; *at;) {
        unsigned n = text_character(at);
        if (n == 0 || is_control(at)) {
            fprintf(out, "\\x%02x", *at++);
            continue;
        }
        for (; n; n--)
            putc(*at++, out);
    }
}

const char *text_word(char to[TEXT_WORD], const char *name)
{
    enum { LONGEST = sizeof("$'\\001'") };
    size_t n = 0;
    if (*name == '-') /* no option */
        n = (size_t)sprintf(to, "./");
    for (const unsigned char *at = (const unsigned char *)name; *at && n + LONGEST < TEXT_WORD;) {
        unsigned bytes = text_character(at);
        if (bytes == 0 || is_control(at)) {
            n += (size_t)sprintf(to + n, "$'\\%03o'", *at++);
            continue;
        }
        if (bytes == 1 && !isalnum(*at) && !strchr("/._-+,:@%", *at))
            to[n++] = '\\';
        for (; bytes; bytes--)
            to[n++] = (char)*at++;
    }
    to[n] = 0;
    return n + LONGEST < TEXT_WORD ? to : strcpy(to, "FILE");
}

bool text_resolve(char to[PATH_MAX], const char *path)
{
    char head[PATH_MAX], tail[PATH_MAX];
    if (realpath(path, to))
        return true;
    if (errno != ENOENT || strlen(path) >= sizeof(head))
        return false;
    const char *name = basename(strcpy(tail, path));
    if (!realpath(dirname(strcpy(head, path)), to))
        return false;
    const size_t n = strlen(to);
    if (n + strlen(name) + 2 > PATH_MAX) {
        errno = ENAMETOOLONG;
        return false;
    }
    (void)sprintf(to + n, "%s%s", n > 1 ? "/" : "", name);
    return true;
}

const char *text_size(char to[TEXT_SIZE], uint64_t bytes)
{
    static const char *const units[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    double rest = (double)bytes / 1024;
    unsigned unit = 0;
    while (rest >= 1024 && unit < 5) {
        rest /= 1024;
        unit++;
    }
    if (bytes < 1024)
        snprintf(to, TEXT_SIZE, "%" PRIu64 " bytes", bytes);
    else
        snprintf(to, TEXT_SIZE, "%" PRIu64 " bytes (%.1f %s)", bytes, rest, units[unit]);
    return to;
}

void text_item(const char *what, const char *format, ...)
{
    char value[4 * PATH_MAX];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(value, sizeof(value), format, args);
    va_end(args);
    printf("  %-12s ", what);
    text_put(stdout, value);
    putchar('\n');
}

void text_progress(void *progress, uint64_t done, uint64_t total)
{
    struct text_progress *p = progress;
    const unsigned percent = total ? (unsigned)((double)done * 100 / (double)total) : 100;
    if (!p->shown || percent == p->percent || !isatty(STDERR_FILENO))
        return;
    p->percent = percent;
    fprintf(stderr, "\r%3u %%", percent);
    fflush(stderr);
}

void text_progress_end(const struct text_progress *p)
{
    if (p->shown && p->percent)
        fputs("\r      \r", stderr);
}
