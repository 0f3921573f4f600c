/* SPDX-License-Identifier: BSD-3-Clause */
/* The findings of `ato check`: shown one by one, and the exit status. */
#ifndef ATO_TOOLS_FINDINGS_H
#define ATO_TOOLS_FINDINGS_H

#include "json.h"

enum severity {
    FINDING_NOTE,    /* in order, but recovery or cleaning up is left */
    FINDING_WARNING, /* something is wrong, but no byte is in danger */
    FINDING_ERROR,   /* damaged: a file cannot be mapped, or its bytes cannot be trusted */
    FINDING_BLIND,   /* could not be read */
};

struct findings {
    struct json json; /* the list "findings" is open */
    const char *next; /* the next steps of a user, which errors end with; "" */
    int status; /* TOOL_BAD if there is an error; else TOOL_BLIND if something could not be read; else TOOL_GOOD */
};

/* Shows a finding about the file `name`. */
void finding_add(struct findings *f, enum severity severity, const char *name, const char *format,
                 ...) __attribute__((format(printf, 4, 5)));

#endif
