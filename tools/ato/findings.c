/* SPDX-License-Identifier: BSD-3-Clause */
#include "findings.h"

#include "look.h"
#include "tool.h"

#include <ctype.h>
#include <stdarg.h>
#include <string.h>

void finding_add(struct findings *f, enum severity severity, const char *name, const char *format,
                 ...)
{
    static const char *const severities[] = {"note", "warning", "error", "not looked at"};
    char what[2048 + LOOK_NEXT];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(what, 2048, format, args);
    va_end(args);
    const size_t n = strlen(what);
    if (severity == FINDING_ERROR && *f->next)
        (void)snprintf(what + n, sizeof(what) - n, ". %c%s", toupper((unsigned char)*f->next),
                       f->next + 1);
    if (severity >= FINDING_ERROR)
        f->status = tool_worst(f->status, severity == FINDING_ERROR ? TOOL_BAD : TOOL_BLIND);
    json_object(&f->json, NULL);
    json_string(&f->json, "file", name);
    json_string(&f->json, "severity", severities[severity]);
    json_string(&f->json, "what", what);
    json_end(&f->json);
    if (f->json.out)
        return;
    text_put(stdout, name);
    printf(": %s: ", severities[severity]);
    text_put(stdout, what);
    putchar('\n');
}
