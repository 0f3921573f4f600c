/* SPDX-License-Identifier: BSD-3-Clause */
/* Makes one file plain: for `ato deploy`, `ato convert`, `ato cp` and `ato sqlite`. */
#ifndef ATO_TOOLS_DEPLOY_H
#define ATO_TOOLS_DEPLOY_H

#include "each.h"

#include "ato.h"

struct deployed {
    struct outcome o;
    uint64_t slices; /* that were deployed */
    struct look_holders holders;
};

/* Shows a bar, and the sides that can be chosen, unless the request is quiet or for programs. */
void deploy_file(struct deployed *d, const char *name, const struct tool_request *request);

/* The options to map a file in the domain of its manifest: this process would record another domain there, and the next user would
 * rely on it if this process dies. */
struct ato_options deploy_options(const struct look *l);

#endif
