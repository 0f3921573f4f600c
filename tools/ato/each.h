/* SPDX-License-Identifier: BSD-3-Clause */
/* What the commands have in common that do one thing to each of their files. */
#ifndef ATO_TOOLS_EACH_H
#define ATO_TOOLS_EACH_H

#include "json.h"
#include "tool.h"

/* Does it to one file. Writes an element of the list "files" to j, or says it if that is NULL. Returns TOOL_... */
typedef int each_file(const char *name, const struct tool_request *request, struct json *j);

/* Calls `file` for each operand. Returns the exit status. */
int each_run(const struct tool_request *request, const char *command, each_file *file);

#endif
