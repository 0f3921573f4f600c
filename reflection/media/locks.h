/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Byte locks that show which processes are alive: open file description locks (Linux 3.15).
 *
 * The kernel drops them when the last descriptor of the open file description is closed, at the latest when
 * the process dies, and in every pid namespace. Consequences:
 *   - asking about a byte through the description that locked it says 'free', so a process never
 *     asks about its own byte;
 *   - a forked child shares the description: its F_UNLCK would drop its parent's lock, so a child
 *     only closes;
 *   - a mapping of the locked descriptor would keep the lock, so it is never mapped;
 *   - the bytes need not exist: locks and content are unrelated.
 */
#ifndef ATO_REFLECTION_MEDIA_LOCKS_H
#define ATO_REFLECTION_MEDIA_LOCKS_H

#include <fcntl.h>

extern unsigned locks_patience_ms; /* of locks_wait(); tests change it */

/* ENOSYS: there are no open file description locks here: gVisor, for one, has none. */
enum locks_answer { LOCKS_MINE, LOCKS_FREE, LOCKS_TAKEN, LOCKS_FAILED /* errno */ };

/* Locks on [start, start + n). `type`: F_WRLCK, exclusive; or F_RDLCK, shared, for a descriptor that may only read. */
enum locks_answer locks_try(int fd, short type, off_t start, off_t n); /* MINE, TAKEN or FAILED */
enum locks_answer locks_ask(int fd, off_t start, off_t n);             /* FREE, TAKEN or FAILED */
/* 0, or -1 and errno: EBUSY after half a minute */
int locks_wait(int fd, short type, off_t start, off_t n);
int locks_drop(int fd, off_t start, off_t n);
/* To be called before a lock is taken that outlives the call. Until locks_close() a forked child closes the descriptor
 * (locks_forget()); else the child would keep the locks when its parent is killed. */
void locks_keep(int fd);
void locks_forget(void);

/* Drops all locks, then closes. Closing alone is not enough: a child forked meanwhile may have the
 * descriptor, and would keep the locks as long as it lives. Does nothing for fd -1; keeps errno. */
void locks_close(int fd);

#endif
