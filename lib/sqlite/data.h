/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reads and writes of a database: through the mapping where the connection has one (share.h), else by the VFS below, SQLite's own.
 * Writes to the mapping are staged (pending.h), with the header masked (mask.h). What is not staged, as a checkpoint, is written by
 * the VFS below, to a file that is complete and has no mask. All errors are logged.
 */
#ifndef ATO_SQLITE_DATA_H
#define ATO_SQLITE_DATA_H

#include "api.h"

#include <stdbool.h>

struct connection;

/* xRead, xWrite and xTruncate. */
int data_read(struct connection *c, void *to, int n, sqlite3_int64 offset);
int data_write(struct connection *c, const void *from, int n, sqlite3_int64 offset);
int data_resize(struct connection *c, sqlite3_int64 size);

/* FCNTL_SIZE_HINT: the database is going to have this size. */
int data_expect(struct connection *c, sqlite3_int64 size);

/* To be called before a commit, with something staged: stages what SQLite leaves for later, and sets the guard of a new file.
 * After an error what is staged must not be committed, nor rolled back by SQLite. */
int data_finish(struct connection *c);

/* To be called before a change that the VFS below makes, to a file that is complete and has no mask then. */
int data_begin_below(struct connection *c, int code);

/*
 * Returns whether the next commit is to be made by the VFS below, with its journal on the disk (rollback_journal_put()): the first to
 * a plain database on a disk since the process opened it. That is five syncs, of which SQLite's own VFS makes as many. A mapping costs nine more, once, and
 * saves four with each commit: it is made when the process goes on to commit. A transaction that SQLite has written a part of before its
 * commit, which its first page is not in, is staged. So is one where a power cut has left a pairing, which a map removes.
 */
bool data_may_go_below(const struct connection *c);

/*
 * To be called before a transaction whose journal is in memory changes anything: there may be a file with the journal's name, which would be
 * played back over it. SQLite would write over that file: it could not delete its own (locking mode EXCLUSIVE), or keeps its open
 * (journal mode TRUNCATE), and another process that could not begin to write was killed.
 */
int data_delete_left_journal(const struct connection *c);

/* Does so for the rest of a transaction: its rollback journal is put on the disk (`durably`, if that file itself is written to at once)
 * before anything that was staged is written again. */
int data_go_below(struct connection *c, int (*put_journal)(void *journal, bool durably),
                  void *journal);

/* Drops what is staged, unless it is committed. */
void data_give_up(struct connection *c);

/* xFileSize: includes what is staged. */
int data_length(struct connection *c, sqlite3_int64 *size);

/* Makes the file complete and takes its mask off, after a switch to WAL mode. A failure is logged; the next checkpoint tries
 * again. */
void data_complete(struct connection *c);

#endif
