/* SPDX-License-Identifier: BSD-3-Clause */
/* For programs that are linked with SQLite. */
#include "ato_sqlite.h"

#include "api.h"
#include "vfs.h"

#include <stddef.h>

int ato_vfs_register(int make_default)
{
    int r = sqlite3_initialize();
    return r == SQLITE_OK ? vfs_register(make_default, NULL) : r;
}
