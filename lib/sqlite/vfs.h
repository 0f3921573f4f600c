/* SPDX-License-Identifier: BSD-3-Clause */
/* Registration of the VFS: for register.c, extension.c and preload.c. */
#ifndef ATO_SQLITE_VFS_H
#define ATO_SQLITE_VFS_H

#include <stdbool.h>

/* The caller has initialised SQLite. `only_below`, of the first call: paths, separated by ':'. Databases elsewhere are left to the
 * VFS below. NULL or empty: none is. Returns SQLITE_OK, or an error that is logged. */
int vfs_register(bool make_default, const char *only_below);

#endif
