/* SPDX-License-Identifier: BSD-3-Clause */
#include "each.h"

#include "text.h"

#include <stdarg.h>
#include <stdio.h>

int outcome_set(struct outcome *o, enum result result, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    (void)vsnprintf(o->why, sizeof(o->why), format, args);
    va_end(args);
    o->result = result;
    return -1;
}

int outcome_status(const struct outcome *o)
{
    return o->result == BLIND ? TOOL_BLIND : o->result >= MAPPED ? TOOL_BAD : TOOL_GOOD;
}

void outcome_show(const struct outcome *o, const struct tool_request *request, struct json *j,
                  const char *format, ...)
{
    const bool good = outcome_status(o) == TOOL_GOOD;
    char text[2 * TEXT_WORD] = "";
    va_list args;
    json_string(j, "file", o->name);
    json_string(j, "error", good ? NULL : o->why);
    if (j->out || (good && request->quiet))
        return;
    va_start(args, format);
    (void)vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    fflush(stdout);
    FILE *out = good ? stdout : stderr;
    text_put(out, o->name);
    fputs(good && !*text ? "" : ": ", out);
    text_put(out, good ? text : o->why);
    putc('\n', out);
    fflush(out);
}

int each_run(const struct tool_request *request, const char *command, each_file *file)
{
    struct json j;
    int status = TOOL_GOOD;
    json_start(&j, command, request->json);
    json_list(&j, "files");
    for (int i = 0; i < request->count; i++) {
        json_object(&j, NULL);
        status = tool_worst(status, file(request->names[i], request, &j));
        json_end(&j);
    }
    json_finish(&j, status);
    return status;
}
