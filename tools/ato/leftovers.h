/* SPDX-License-Identifier: BSD-3-Clause */
/* What the processes of a preloaded program left: the files that their record names become plain again. */
#ifndef ATO_TOOLS_LEFTOVERS_H
#define ATO_TOOLS_LEFTOVERS_H

#include <stdbool.h>

struct record;

/* Makes each file of the record plain, as `ato deploy` does, if it still lies in its folder and no process has it mapped. Says on standard
 * error what stays, and why; `files` says what they are. `variable`: of the environment of processes below another command that makes
 * it plain when they have ended, so that nothing is said; NULL: there are none. Returns false if one is not plain and no process has it
 * mapped, or if not all could be noted. */
bool leftovers_make_plain(const struct record *shared, const char *files, const char *variable);

#endif
