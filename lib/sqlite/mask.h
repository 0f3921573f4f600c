/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The masked header, for which SQLite's own VFS refuses a database: part of the database may be in its reflection, and that
 * VFS would read a mixture of old and new pages.
 *
 * In SQLite's header (<https://sqlite.org/fileformat.html>, 1.3) bytes 18 and 19 are 1, or 2 in WAL mode, and bytes 21 to 23 are
 * fixed: 64, 32, 32. Bytes 24 to 27 are the change counter, which bytes 92 to 95 repeat. A masked header has
 *
 *   - 191 in byte 21. If the plain header says WAL mode, bytes 18 and 19 are 1 and byte 22 is 33: SQLite's own VFS would open
 *     the log, and keep its lock, before it looks at byte 21
 *   - in the highest bit of byte 24 the inverse of that of byte 92
 *
 * A connection of SQLite's own VFS that finds a counter it has not seen drops its cache, reads the header, and returns
 * SQLITE_NOTADB for a wrong byte 21.
 *
 * Connections through `ato` see the plain header: the VFS translates what they read and write. A masked header can be
 * translated without knowing anything else.
 *
 * The plain bytes 21 to 27 are the file's guard (ato_set_guard()): every way to make the file plain puts them back, by one store
 * of both words. The order otherwise is:
 *
 *   1. Before the first write to a file that is not masked: the guard is durable. Its counter is far ahead of the file's: if the
 *      process is killed before step 2, other programs may write to the file, and the counter that is put back has to be new to all
 *      of them. Mostly the file was mapped with this guard; it is set anew if the counter has changed since, or if the database
 *      was in WAL mode.
 *   2. Byte 21, then the counter, are masked in the file itself, durably. Each is one store of an aligned word (the first slice
 *      is home, for an unmasked file has nothing in its reflection), so that a kill leaves no part of it elsewhere.
 *   3. All later writes of the header, to either copy, are masked.
 *   4. The last process that unmaps the file makes it plain, which takes the mask off. While it stays mapped (for WAL mode): all
 *      is deployed; the counter, then byte 21, are unmasked in the file itself.
 *
 * A kill between these steps leaves the file masked with a guard, or unmasked with nothing in its reflection. An
 * unmasked file is an ordinary database, perhaps with a guard, whose bytes are not put back while byte 21 is plain. Other
 * programs may write to it. In a masked file only the counter may be plain. It means the same, but connections of SQLite's
 * own VFS may have cached that counter with pages from before the mask, or with byte 21 of the mask. So it is raised
 * and masked before the next write, and before the mask is taken off.
 *
 * So the mask stays from the first write until the last process unmaps the file, and longer after a kill or with unmap=fast. Not
 * masked are: a database that was only read; one in WAL mode and one with its rollback journal on the disk (connection.h), since
 * nothing of them is in the reflection.
 *
 * Beside a masked file no hot rollback journal lies on the disk, which SQLite's own VFS would play back before it reads the
 * header: a process looks for one before it maps the file (share_memory.c). The first transaction that writes, by the locks of the VFS
 * below, deletes one before its first write (journals.c; but not with journal_mode=MEMORY or OFF, where SQLite opens no journal).
 */
#ifndef ATO_SQLITE_MASK_H
#define ATO_SQLITE_MASK_H

#include "ato.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* Bytes of the header that are needed to mask and to unmask it, and bytes in the guard. */
enum { MASK_HEADER = 96, MASK_GUARDED = 7 };

/* Returns whether a file that begins with these MASK_HEADER bytes is masked. */
bool mask_is_on(const void *header);

/* Returns whether a plain header says that the database is in WAL mode. */
bool mask_is_wal(const void *header);

/* Returns the length of the database that a plain header says; 0 if it does not say. */
off_t mask_length(const void *header);

/* Returns the change counter of a plain header. */
uint32_t mask_counter(const void *header);

/* Masks a plain header. Leaves other bytes as they are: false. */
bool mask_cover(void *header);

/* Unmasks a header, if it is masked. Leaves other bytes as they are. */
void mask_uncover(void *header);

/* Reads the header through the view, masked as it is. `length` is the length of the file: a load behind its end raises SIGBUS.
 * Returns 0; 1 if the file is too short for a header; -1 with errno and ato_errormsg(). */
int mask_read(char *view, off_t length, void *header);

/* Returns whether the file itself has no mask, and is not a new one: if it had one, another program has overwritten it. */
bool mask_is_lost(const char *view);

/* For a plain file: sets the options of ato_mmap_opt() that give it the guard of step 1; `h` then has the bytes. `fd`: the file. */
void mask_expect(int fd, unsigned char h[MASK_HEADER], struct ato_options *o);

/* Does steps 1 and 2. The caller holds the EXCLUSIVE lock, has no transaction of libato open in this file, and knows that the file
 * is not shorter than the view, and has a guard if it is masked. Guard and mask are durable on return. Returns 0; 1 if the file has
 * no header yet: nothing is done, and the caller calls mask_set_plain() before it commits one; -1 with errno and ato_errormsg(). */
int mask_put_on(char *view);

/* Sets the guard to the plain form of this header, which may be masked. Returns 0, or -1 as above. */
int mask_set_plain(char *view, const void *header);

/* Takes SQLite's PENDING lock (F_WRLCK), for a caller that has no lock of SQLite's; gives it back (F_UNLCK). Until then no
 * other process begins to use the database, through any VFS, or makes a masked file plain. Returns 0; -1 if another
 * process has it, or writes by SQLite's own VFS, or is just getting a lock. */
int mask_lock(int fd, short type);

/* Takes it, and waits for that, unless a connection of this process has it. Returns false if another process has it for seconds. */
bool mask_wait_for_lock(int fd);

/* To be called before the file is made plain by ato_munmap_opt(): for a masked file sets `plain` to what its guard has to be by
 * then (ato_unmap_options.guard_plain), or takes the mask off, if the database is in WAL mode; else leaves `plain` as it is.
 * plain[0] is not 0 once it is set. `fd` is the file, open for writing.
 * Returns 0; 1 if another connection writes: the file must not be made plain then; -1 as above. It may hold mask_lock(): the caller
 * gives that back, or closes `fd`, when the file is unmapped. Meanwhile SQLite's own VFS reads nothing: it could cache byte 21
 * beside the counter that stays, and would not look again. And no other process commits what the guard does not know. */
int mask_refresh(char *view, int fd, unsigned char plain[MASK_GUARDED]);

/* Deploys all of the file, then takes the mask off, if there is one. `fd` is a descriptor of the file.
 * The caller has mask_lock() or the EXCLUSIVE lock; or SHARED, which keeps others from EXCLUSIVE, and has staged nothing. The
 * database becomes as long as the file: an end that was yet to be cut off stays, since other programs may write there from now on.
 * Returns 0; -1 as above. */
int mask_take_off(char *view, int fd);

#endif
