/* SPDX-License-Identifier: BSD-3-Clause */
#include "json.h"

#include "text.h"

#include "ato.h"

#include <inttypes.h>
#include <string.h>

static void quote(FILE *out, const char *s)
{
    putc('"', out);
    for (const unsigned char *at = (const unsigned char *)s; *at;) {
        unsigned n = text_character(at);
        if (n == 0)
            fprintf(out, "\\udc%02x", *at++);
        else if (*at == '"' || *at == '\\')
            fprintf(out, "\\%c", *at++);
        else if (*at < 0x20 || *at == 0x7f)
            fprintf(out, "\\u%04x", *at++);
        else
            for (; n; n--)
                putc(*at++, out);
    }
    putc('"', out);
}

/* Returns false if no document is wanted. */
static bool begin(struct json *j, const char *key)
{
    if (!j->out)
        return false;
    if (j->depth) {
        fputs(j->filled[j->depth - 1] ? ",\n" : "\n", j->out);
        j->filled[j->depth - 1] = true;
        fprintf(j->out, "%*s", 2 * j->depth, "");
    }
    if (key) {
        quote(j->out, key);
        fputs(": ", j->out);
    }
    return true;
}

static void open_level(struct json *j, const char *key, char start, char end)
{
    if (!begin(j, key))
        return;
    putc(start, j->out);
    j->filled[j->depth] = false;
    j->ends[j->depth++] = end;
}

void json_start(struct json *j, const char *command, bool wanted)
{
    memset(j, 0, sizeof(*j));
    j->out = wanted ? stdout : NULL;
    open_level(j, NULL, '{', '}');
    json_string(j, "command", command);
    json_string(j, "version", ato_version());
}

void json_finish(struct json *j, int status)
{
    while (j->depth > 1)
        json_end(j);
    json_number(j, "status", (uint64_t)status);
    json_end(j);
    if (j->out)
        putc('\n', j->out);
}

void json_object(struct json *j, const char *key)
{
    open_level(j, key, '{', '}');
}

void json_list(struct json *j, const char *key)
{
    open_level(j, key, '[', ']');
}

void json_end(struct json *j)
{
    if (!j->out)
        return;
    j->depth--;
    if (j->filled[j->depth])
        fprintf(j->out, "\n%*s", 2 * j->depth, "");
    putc(j->ends[j->depth], j->out);
}

void json_string(struct json *j, const char *key, const char *value)
{
    if (begin(j, key) && value)
        quote(j->out, value);
    else if (j->out)
        fputs("null", j->out);
}

void json_number(struct json *j, const char *key, uint64_t value)
{
    if (begin(j, key))
        fprintf(j->out, "%" PRIu64, value);
}

void json_decimal(struct json *j, const char *key, double value)
{
    if (begin(j, key))
        fprintf(j->out, "%.3f", value);
}

void json_bool(struct json *j, const char *key, bool value)
{
    if (begin(j, key))
        fputs(value ? "true" : "false", j->out);
}

void json_known(struct json *j, const char *key, bool known, uint64_t value)
{
    known ? json_number(j, key, value) : json_string(j, key, NULL);
}
