/* SPDX-License-Identifier: BSD-3-Clause */
/* What the commands have in common that do one thing to each of their files: what became of a file, and how that is shown. */
#ifndef ATO_TOOLS_EACH_H
#define ATO_TOOLS_EACH_H

#include "json.h"
#include "look.h"
#include "tool.h"

enum result {
    WAS_PLAIN,
    DONE,
    SKIPPED, /* a folder */
    MAPPED,
    REFUSED,
    FAILED,
    BLIND, /* it could not be read */
};

struct outcome {
    const char *name; /* of the file */
    enum result result;
    char why[1024 + LOOK_NEXT]; /* from MAPPED on: a sentence */
};

/* Sets the result and the sentence. Returns -1. */
int outcome_set(struct outcome *o, enum result result, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Returns TOOL_... */
int outcome_status(const struct outcome *o);

/* Shows it: the keys "file" and "error", or a line: the sentence, or if it is good the one of the format, unless that is not wanted. */
void outcome_show(const struct outcome *o, const struct tool_request *request, struct json *j,
                  const char *format, ...) __attribute__((format(printf, 4, 5)));

/* Does it to one file: writes the keys of an object of the list "files", or says it. Returns TOOL_... */
typedef int each_file(const char *name, const struct tool_request *request, struct json *j);

/* Calls `file` for each operand. Returns the exit status. */
int each_run(const struct tool_request *request, const char *command, each_file *file);

#endif
