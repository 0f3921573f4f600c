/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The header that other programs refuse: while part of a database may be in its reflection, SQLite's own VFS would
 * read a mixture of old and new pages.
 *
 * In SQLite's header (<https://sqlite.org/fileformat.html>, 1.3) byte 19 is the version of the format that a program has
 * to know to read the file, 1 with rollback journals and 2 with a WAL, and bytes 24 to 27 count the changes. A masked header
 * has 255 less the version in place of the version, and the counter with its highest bit turned. SQLite's own VFS finds
 * a counter that it has never seen, drops what it has cached, reads the header and says SQLITE_NOTADB, for a version
 * above 2. (Byte 18, the version to write the file, stays: a connection that finds one above 2 there only reads, for as
 * long as it is open.)
 *
 * Connections through ato see the plain header: what they read and write is translated. The translation needs nothing
 * but the header itself.
 *
 * The bytes of the plain header are the file's guard (ato_set_guard()): whatever makes the file plain puts them back.
 * From the first write of the first transaction on:
 *
 *   1. The guard is durable. Its counter is far ahead of the file's: were the process killed before (2), others may
 *      write to the file, and the counter that is put back must be new to all of them.
 *   2. The mask is durable in the file's own copy of the first slice, before anything of the transaction counts.
 *   3. All later writes of the header, to either copy, are masked.
 *
 * A database in WAL mode is not masked, for nothing of it is in the reflection; nor is one with a journal on the disk
 * (connection.h). One that is read eagerly is masked for as long as a transaction writes. Beside a masked file there is never a rollback journal on the disk that
 * counts: SQLite's own VFS plays one back before it reads the header.
 *
 * A process that is killed in (2) may leave the mask in the reflection only. The file's own copy of that slice counts then,
 * and others may write to it: the VFS and `ato deploy` drop the other one.
 *
 * A process that is killed between (1) and (2), or after the mask was taken off and before the guard was, leaves a guard
 * that is of no use. Others may write to such a file; the VFS, when it closes the file, and `ato deploy` remove the guard.
 * (Another program that maps the file and unmaps it puts back what the header said before.)
 */
#ifndef ATO_SQLITE_MASK_H
#define ATO_SQLITE_MASK_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* The part of the header that has to be known to tell whether it is masked. */
enum { MASK_HEADER = 28 };

/* Does a file that begins with these MASK_HEADER bytes have a mask? */
bool mask_is_on(const void *header);

/* Is this the header of a database, without a mask? */
bool mask_is_plain(const void *header);

/* Does `view` begin with this header, the file with that one, because a process was killed before the mask was in the file?
 * Then the file is right by itself. 1; 0; -1 with errno and ato_errormsg(). */
int mask_is_half_on(char *view, const void *header, const void *in_file);

/* Does a plain header say that the database is in WAL mode? */
bool mask_is_wal(const void *header);

/* Translates the n bytes at this offset of the file, in either direction. */
void mask_translate(void *bytes, size_t n, off_t offset);

/* Does steps 1 and 2. The caller has the EXCLUSIVE lock, and no transaction of libato in this file, which has this length.
 * If the file has no header yet, the call does nothing, and the caller sets the guard by mask_set_plain() when it commits
 * the header. `*guarded`: whether the caller knows that a file with a mask has a guard. If not, the call looks, which takes
 * longer; it becomes true when there is one. Durable when it returns. 0; -1 with errno and ato_errormsg(). */
int mask_put_on(char *view, off_t length, bool *guarded);

/* The guard's bytes become these MASK_HEADER bytes' plain ones, masked or not. 0; -1 as above. */
int mask_set_plain(char *view, const void *header);

/* Nobody else puts a mask on or takes it off, or writes to the file (except a checkpoint), until this is given back. Who has
 * no lock of SQLite's may take it, and who has SHARED. It is not RESERVED, with which SQLite takes a journal that a dead
 * process left for one in use. 0; -1: somebody writes, or is just getting a lock. */
int mask_lock(int fd);
void mask_unlock(int fd);

/* Brings the guard, if there is one, up to date, for who makes the file plain next, or removes the one of a file without a
 * mask. `fd`: the file, open for writing. Takes that lock. 0; 1: somebody else writes, and the file must not be made plain;
 * -1 as above. */
int mask_refresh(char *view, int fd);

/* Brings all of the file home, then takes the mask off, if there is one. The caller has mask_lock() or the EXCLUSIVE lock,
 * or nobody else has the file, of which fd is a descriptor. The database becomes as long as the file: an end that was still to be cut off
 * stays, since others may write there from then on. 0; -1 as above. */
int mask_take_off(char *view, int fd);

#endif
