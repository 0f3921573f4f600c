/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * libato's VFS for SQLite, for programs that link SQLite (pkg-config libato-sqlite). Others load the extension
 * libato_sqlite.so, which needs no header. Both are described in ato_sqlite(7).
 */
#ifndef ATO_SQLITE_H
#define ATO_SQLITE_H 1

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/*
 * Register the VFS `ato` over the VFS that is SQLite's default at that moment; once more: changes only
 * whether it is the default. make_default: databases opened from now on without ?vfs= are opened through it.
 * Calls sqlite3_initialize(). Never undone: the library stays loaded. After sqlite3_shutdown() SQLite's own VFS is
 * the default again, until this is called once more.
 * Returns SQLITE_OK, or SQLITE_ERROR with a sentence in sqlite3_log(): SQLite is older than 3.34, there is no
 * VFS beneath, or it is not one of Unix. Since 0.1.
 */
int ato_vfs_register(int make_default);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
