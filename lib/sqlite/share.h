/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How a database is shared, and SQLite's locks.
 *
 * By the VFS below, SQLite's own, with its locks on the file, which is complete whenever it can be read:
 *
 *   not yet written  the file is plain, and stays as it is. The first transaction that writes (on a disk, the first after that of
 *                    data_may_go_below()) maps it, under EXCLUSIVE. When it gives that
 *                    back, the process goes on in memory; in WAL mode the file is made plain again instead
 *   may not write    the process, to the file: it only reads. A reflection that it finds is mapped for the time of a transaction
 *
 * In memory (share_memory.h): a process that finds a file that is not plain, or others that share it in memory, begins that way; and one
 * that has begun very many transactions in a short time, since these locks cost less. There, once the file is mapped, SHARED is a
 * snapshot (ato_snapshot_begin()), so that readers and the writer do not wait for one another, as in SQLite's WAL mode; unless the file itself is
 * written (share_memory_exclude_all()).
 *
 * The choice is the process's, for each database, and is made when a connection gets SHARED and no other connection of the process
 * has a lock of the VFS below.
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
