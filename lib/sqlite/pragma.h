/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * PRAGMAs of the VFS:
 *
 *   ato_stat              the fields of struct ato_status, as JSON
 *   ato_read_policy [= P] the read policy of the database in this process: lazy, gather, adaptive, eager
 *   ato_unmap [= M]       how the file is unmapped if this connection is closed last: plain, fast
 */
#ifndef ATO_SQLITE_PRAGMA_H
#define ATO_SQLITE_PRAGMA_H

struct connection;

/* `words` is the argument of FCNTL_PRAGMA. SQLITE_NOTFOUND: the pragma is not this VFS's. */
int pragma(struct connection *c, char **words);

#endif
