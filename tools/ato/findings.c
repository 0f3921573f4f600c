/* SPDX-License-Identifier: BSD-3-Clause */
#include "findings.h"

#include "text.h"
#include "tool.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

struct finding {
    enum severity severity;
    char *name, *what;
};

static const char *const severities[] = {"note", "warning", "error", "not looked at"};

void finding_add(struct findings *f, enum severity severity, const char *name, const char *format,
                 ...)
{
    struct finding next = {.severity = severity, .name = strdup(name)};
    va_list args;
    va_start(args, format);
    if (vasprintf(&next.what, format, args) < 0)
        next.what = NULL;
    va_end(args);
    if (f->n == f->room && !f->lost) {
        size_t room = f->room ? 2 * f->room : 16;
        struct finding *more = reallocarray(f->all, room, sizeof(*more));
        f->all = more ? more : f->all;
        f->room = more ? room : f->room;
    }
    if (f->n == f->room || !next.name || !next.what) {
        f->lost = true;
        free(next.name);
        free(next.what);
        return;
    }
    f->all[f->n++] = next;
}

void findings_advise(struct findings *f, size_t first, const char *next)
{
    size_t i = f->n;
    char *more;
    while (i > first && f->all[i - 1].severity != FINDING_ERROR)
        i--;
    if (i == first || !*next ||
        asprintf(&more, "%s. %c%s", f->all[i - 1].what, toupper((unsigned char)*next), next + 1) <
            0)
        return;
    free(f->all[i - 1].what);
    f->all[i - 1].what = more;
}

int findings_status(const struct findings *f)
{
    bool seen[FINDING_BLIND + 1] = {false};
    for (size_t i = 0; i < f->n; i++)
        seen[f->all[i].severity] = true;
    if (seen[FINDING_ERROR])
        return TOOL_BAD;
    return seen[FINDING_BLIND] || f->lost ? TOOL_BLIND : TOOL_GOOD;
}

void findings_say(const struct findings *f)
{
    for (size_t i = 0; i < f->n; i++) {
        text_put(stdout, f->all[i].name);
        printf(": %s: ", severities[f->all[i].severity]);
        text_put(stdout, f->all[i].what);
        putchar('\n');
    }
    if (f->lost)
        puts("not all findings are shown: out of memory");
}

void findings_write(const struct findings *f, struct json *j)
{
    json_list(j, "findings");
    for (size_t i = 0; i < f->n; i++) {
        json_object(j, NULL);
        json_string(j, "file", f->all[i].name);
        json_string(j, "severity", severities[f->all[i].severity]);
        json_string(j, "what", f->all[i].what);
        json_end(j);
    }
    json_end(j);
    json_bool(j, "complete", !f->lost);
}

void findings_free(struct findings *f)
{
    for (size_t i = 0; i < f->n; i++) {
        free(f->all[i].name);
        free(f->all[i].what);
    }
    free(f->all);
}
