/* SPDX-License-Identifier: BSD-3-Clause */
/* Makes one file plain: for `ato deploy` and `ato convert`. */
#ifndef ATO_TOOLS_DEPLOY_H
#define ATO_TOOLS_DEPLOY_H

#include "look.h"
#include "tool.h"

enum deploy_result {
    WAS_PLAIN,
    MADE_PLAIN,
    SKIPPED, /* a folder */
    MAPPED,
    REFUSED,
    FAILED,
    BLIND,
};

struct deployed {
    const char *name;
    enum deploy_result result;
    char why[1024 + LOOK_NEXT];
    uint64_t slices; /* that were deployed */
    struct look_holders holders;
};

void deploy_file(struct deployed *d, const char *name, const struct tool_request *request);

/* Returns the exit status that goes with a result. */
int deploy_status(enum deploy_result result);

/* Makes a file plain, as `ato deploy` does, if it is clean and nobody has it mapped. Says nothing. */
void deploy_quietly(const char *name);

#endif
