/* SPDX-License-Identifier: BSD-3-Clause */
/* Makes libato's VFS the default of the programs of SQLite's own tests. They are built with
 * SQLITE_EXTRA_INIT=ato_suite_init, which sqlite3_initialize() calls last, and again after each sqlite3_shutdown().
 * With ATO_SUITE_VFS=stock in the environment SQLite's own VFS stays the default, so that the same program shows
 * SQLite's own results. */
#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>

#include "ato_sqlite.h"

int ato_suite_init(const char *unused);

int ato_suite_init(const char *unused)
{
    const char *vfs = getenv("ATO_SUITE_VFS");

    (void)unused;
    if (vfs && strcmp(vfs, "stock") == 0) {
        return SQLITE_OK;
    }
    return ato_vfs_register(1) == 0 ? SQLITE_OK : SQLITE_ERROR;
}
