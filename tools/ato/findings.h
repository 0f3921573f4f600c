/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The findings of `ato check`, kept until everything is checked, and the exit status.
 */
#ifndef ATO_TOOLS_FINDINGS_H
#define ATO_TOOLS_FINDINGS_H

#include "json.h"

#include <stddef.h>

enum severity {
    FINDING_NOTE,    /* in order, but recovery or cleaning up is left */
    FINDING_WARNING, /* something is wrong, but no byte is in danger */
    FINDING_ERROR,   /* damaged: a file cannot be mapped, or its bytes cannot be trusted */
    FINDING_BLIND,   /* could not be read */
};

struct findings {
    struct finding *all;
    size_t n, room;
    bool lost; /* no memory for another finding */
};

/* Adds a finding about the file `name`. */
void finding_add(struct findings *f, enum severity severity, const char *name, const char *format,
                 ...) __attribute__((format(printf, 4, 5)));

/* Adds the next step to the last error of those from number `first` on, if there is one. */
void findings_advise(struct findings *f, size_t first, const char *next);

/* TOOL_BAD if there is an error; else TOOL_BLIND if something could not be read; else TOOL_GOOD. */
int findings_status(const struct findings *f);

void findings_say(const struct findings *f); /* prints a line for each */
void findings_write(const struct findings *f, struct json *j);
void findings_free(struct findings *f);

#endif
