/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The end of a transaction. SQLite says what becomes of it by these calls:
 *
 *   commit    FCNTL_SYNC without a name; xSync with something staged; COMMIT_PHASETWO, for a new size that comes after the
 *             commit, and for what a VFS above holds back until then
 *   prepare   FCNTL_SYNC with the name of a super-journal (super_journal.h)
 *   abandon   the lock drops below RESERVED, or the database is closed
 *
 * Errors are logged.
 */
#ifndef ATO_SQLITE_TRANSACTION_H
#define ATO_SQLITE_TRANSACTION_H

struct connection;

/* Commits what is staged, if anything is. Returns SQLITE_OK; `code`, or a code that says more: it is staged still. */
int transaction_commit(struct connection *c, int code);

/* Drops what is staged. */
void transaction_abandon(struct connection *c);

/* FCNTL_SYNC: commits, or prepares if `super` is not NULL. */
int transaction_sync(struct connection *c, const char *super);

/* FCNTL_COMMIT_PHASETWO. */
int transaction_end(struct connection *c);

#endif
