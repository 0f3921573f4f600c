/* SPDX-License-Identifier: BSD-3-Clause */
/* The VFS as a whole: for register.c and extension.c. */
#ifndef ATO_SQLITE_VFS_H
#define ATO_SQLITE_VFS_H

#include <stdbool.h>

/* SQLITE_OK; SQLITE_ERROR, with a sentence in sqlite3_log(). SQLite is initialised. */
int vfs_register(bool make_default);

#endif
