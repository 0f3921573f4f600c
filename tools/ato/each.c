/* SPDX-License-Identifier: BSD-3-Clause */
#include "each.h"

int each_run(const struct tool_request *request, const char *command, each_file *file)
{
    struct json j;
    int status = TOOL_GOOD;
    if (request->json) {
        json_start(&j, command);
        json_list(&j, "files");
    }
    for (int i = 0; i < request->count; i++)
        status = tool_worst(status, file(request->names[i], request, request->json ? &j : NULL));
    if (request->json)
        json_finish(&j, status);
    return status;
}
