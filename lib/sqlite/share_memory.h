/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How does a process share a database in memory?
 *
 * The process has a door (locks.h), which keeps SQLite's own VFS out. All locks are words in shared memory, until the last
 * connection of the process is closed. A door is opened under SQLite's PENDING lock (mask_lock()), so that at no time two processes
 * do it. It is closed after the file is unmapped (database.c).
 *
 *   not yet written  the file is plain, and is read as it is: through a mapping that libato does not change (ATO_PLAIN), or by the VFS below
 *   written          a word says so, before the file is changed; every process then has it mapped for writing. Checkpoints of a
 *                    write-ahead log are written to the file itself, which is complete then
 *
 * When a process begins, it looks for what a dead one has left: a hot journal, a mask without a guard, slices of a program that uses
 * libato itself. All errors are logged.
 */
#ifndef ATO_SQLITE_SHARE_MEMORY_H
#define ATO_SQLITE_SHARE_MEMORY_H

#include "api.h"

#include <stdbool.h>

struct connection;

/* Begins, if the file is not plain and the process may write to it. joins: also if it is plain, and others share it so, or it is read
 * very often. Returns SQLITE_OK, also if the process does not begin; SQLITE_BUSY; or an error. */
int share_memory_begin(struct connection *c, bool joins);

/* Begins at the end of the first transaction that wrote. `level`: the lock that the connection keeps. It has EXCLUSIVE of the VFS below,
 * and db->mapping is held. Returns false if that is not possible. */
bool share_memory_go_on(struct connection *c, int level);

/* Maps the database, and looks whether libato knows what goes with the header: a guard with a mask; without one no slices, left by a
 * program that uses libato itself. With db->mapping. is_first: no other process has the database. */
int share_memory_map(struct connection *c, bool is_first);

/* To be called when the connection is opened by this one of SQLite's. */
void share_memory_set_opener(struct connection *c, const sqlite3 *opener);

/* SQLite's locks in memory: xLock and xUnlock. */
int share_memory_lock(struct connection *c, int level);
void share_memory_unlock(struct connection *c, int level);

/* Does the connection's transaction write to another database, too? */
bool share_memory_writes_several(const struct connection *c);

/* With EXCLUSIVE, before the file itself is written or gets a write-ahead log: waits for those who read snapshots. Returns SQLITE_OK;
 * SQLITE_BUSY. */
int share_memory_exclude_all(struct connection *c);

/* Returns whether the connection is executing a statement that may write to this database: not one that may write to a temporary
 * one, or whose transaction writes to another one already. */
bool share_memory_is_going_to_write(const struct connection *c);

/* To be called when SQLite does something else than to ask for RESERVED after SHARED: reads another page than the first one, or locks
 * another database. */
void share_memory_read_on(struct connection *c);

/* xSleep. Returns true if this thread is asking a busy handler: then it waits for the lock meanwhile. */
bool share_memory_sleep(int microseconds);

#endif
