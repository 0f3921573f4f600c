/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * PRAGMAs of the VFS:
 *
 *   ato_stat              what ato_stat() says of the database, as JSON
 *   ato_read_policy [= P] how it is read, by all connections of the process: lazy, gather, adaptive, eager
 *   ato_unmap [= M]       what the last connection leaves, if it is this one: plain, fast
 */
#ifndef ATO_SQLITE_PRAGMA_H
#define ATO_SQLITE_PRAGMA_H

struct connection;

/* FCNTL_PRAGMA: its argument. SQLITE_NOTFOUND: another pragma. */
int pragma(struct connection *c, char **words);

#endif
