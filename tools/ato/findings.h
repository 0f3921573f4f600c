/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What `ato check` found, kept until all is looked at. And what of it the exit status says.
 */
#ifndef ATO_TOOLS_FINDINGS_H
#define ATO_TOOLS_FINDINGS_H

#include "json.h"

#include <stddef.h>

enum severity {
    FINDING_NOTE,    /* in order, but something is left to do or to clear away */
    FINDING_WARNING, /* not as it should be; no byte is in danger */
    FINDING_ERROR,   /* damaged: a file cannot be mapped, or its bytes cannot be trusted */
    FINDING_BLIND,   /* could not be looked at */
};

struct findings {
    struct finding *all;
    size_t n, room;
    bool lost; /* no memory for another one */
};

/* About the file `name`. */
void finding_add(struct findings *f, enum severity severity, const char *name, const char *format,
                 ...) __attribute__((format(printf, 4, 5)));

/* TOOL_BAD if there is an error; else TOOL_BLIND if something could not be looked at; else TOOL_GOOD. */
int findings_status(const struct findings *f);

void findings_say(const struct findings *f); /* a line each */
void findings_write(const struct findings *f, struct json *j);
void findings_free(struct findings *f);

#endif
