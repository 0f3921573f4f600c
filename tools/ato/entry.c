/* SPDX-License-Identifier: BSD-3-Clause */
#include "entry.h"

#include "reflection/pairing/folder.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum entry entry_of(const char *name, uint64_t *number)
{
    char *end;
    if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0 || strcmp(name, FOLDER_NOTE) == 0)
        return ENTRY_COMMON;
    errno = 0;
    *number = name[0] >= '1' && name[0] <= '9' ? strtoull(name, &end, 10) : 0;
    if (!*number || errno)
        return ENTRY_OTHER;
    if (!*end)
        return ENTRY_REFLECTION;
    if (strcmp(end, ".manifest") == 0)
        return ENTRY_MANIFEST;
    if (folder_is_unfinished(end, ".manifest"))
        return ENTRY_UNFINISHED;
    if (strncmp(end, ".stale-", 7) == 0 && strspn(end + 7, "0123456789abcdef") == 8 &&
        (!end[15] || strcmp(end + 15, ".manifest") == 0))
        return ENTRY_SET_ASIDE;
    return ENTRY_OTHER;
}
