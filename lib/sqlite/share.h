/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How a database is shared, and SQLite's locks.
 *
 * By the VFS below, SQLite's own, with its locks on the file, which is complete whenever it can be read:
 *
 *   not yet written  the file is plain, and stays as it is. The first transaction that writes maps it, under EXCLUSIVE. When it gives that
 *                    back, the process goes on in memory; in WAL mode the file is made plain again instead
 *   may not write    the process, to the file: it only reads. A reflection that it finds is mapped for the time of a transaction
 *
 * In memory: the process has a door (locks.h), which keeps SQLite's own VFS out. All locks are words in shared memory, until the last
 * connection of the process is closed. A process that finds a file that is not plain, or other doors, begins that way; and one that has
 * begun very many transactions in a short time, since these locks cost less.
 *
 *   not yet written  the file is plain, and is read as it is: through a mapping that libato does not change (ATO_PLAIN), or by the VFS below
 *   written          a word says so, before the file is changed; every process then has it mapped for writing. Checkpoints of a
 *                    write-ahead log are written to the file itself, which is complete then
 *
 * The choice is the process's, for each database, and is made when a connection gets SHARED and no other connection of the process
 * has a lock of the VFS below.
 *
 * A door is opened under SQLite's PENDING lock (mask_lock()), so that at no time two processes do it. It is closed after the file
 * is unmapped.
 */
#ifndef ATO_SQLITE_SHARE_H
#define ATO_SQLITE_SHARE_H

#include "api.h"

#include <stdbool.h>

struct connection;

/* xLock, xUnlock (from the lock `before`) and xCheckReservedLock. The caller is in the call (methods.c). */
int share_lock(struct connection *c, int level);
int share_unlock(struct connection *c, int before, int level);
int share_look(struct connection *c, int *is_reserved);

/* Returns SQLITE_OK; or `code`, which is logged, if the connection is lost: it is a parent's, or its process is about to end. */
int share_check(const struct connection *c, int code);

/* Maps the database, if the connection would do so when it reads. Returns SQLITE_OK, also if it is not mapped; or an error that is
 * logged. */
int share_begin(struct connection *c);

/* To be called when SQLite does something else than to ask for RESERVED after SHARED: reads another page than the first one, or locks
 * another database. */
void share_read_on(struct connection *c);

/* xSleep. Returns true if this thread is asking a busy handler: then it waits for the lock meanwhile. */
bool share_sleep(int microseconds);

/* Returns the connection that this thread locked last, if its locks are in memory and the name is the very pointer that SQLite
 * has for its journal or write-ahead log; else NULL. */
struct connection *share_in_memory(const char *name);

/* Whether its write-ahead log may exist. Else neither this nor a rollback journal is on the disk. */
bool share_had_wal(const struct connection *c);

/* To be called with EXCLUSIVE, at the end of a transaction: forgets a write-ahead log that SQLite has deleted. */
void share_forget_wal(struct connection *c);

/* To be called when a connection is closed, before it is freed: gives its locks back. */
void share_end(struct connection *c);

#endif
