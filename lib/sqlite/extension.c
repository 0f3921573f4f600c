/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * For any program: `.load libato_sqlite` in SQLite's shell, or SELECT load_extension('libato_sqlite'); then
 * open databases with ?vfs=ato.
 */
#include "api.h"
#include "vfs.h"

#include <stddef.h>

SQLITE_EXTENSION_INIT1

__attribute__((visibility("default"))) int sqlite3_extension_init(sqlite3 *db, char **sentence,
                                                                  const sqlite3_api_routines *api);

int sqlite3_extension_init(sqlite3 *db, char **sentence, const sqlite3_api_routines *api)
{
    SQLITE_EXTENSION_INIT2(api);
    (void)db;
    /* If the VFS is registered already it may be the default one, and stays so. */
    if (sqlite3_vfs_find("ato") || vfs_register(false, NULL) == SQLITE_OK)
        return SQLITE_OK_LOAD_PERMANENTLY;
    *sentence = sqlite3_mprintf("cannot register the VFS ato (SQLite %s)", sqlite3_libversion());
    return SQLITE_ERROR;
}
