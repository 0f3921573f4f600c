/* SPDX-License-Identifier: BSD-3-Clause */
/* Registration of the VFS: for register.c and extension.c. */
#ifndef ATO_SQLITE_VFS_H
#define ATO_SQLITE_VFS_H

#include <stdbool.h>

/* The caller has initialised SQLite. Returns SQLITE_OK, or an error that is logged. */
int vfs_register(bool make_default);

#endif
