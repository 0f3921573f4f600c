/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Byte locks that tell who lives: open file description locks (Linux 3.15).
 *
 * The kernel drops them when the last descriptor of the description closes, at the latest at the
 * death of the process, and it does so for every pid namespace. Things to know:
 *   - asking about a byte through the description that locked it says 'free': one's own byte is
 *     never asked about;
 *   - a forked child shares the description: its F_UNLCK would drop its parent's lock, so a child
 *     only ever closes; and a mapping of the locked descriptor would pin the lock, so it is never
 *     mapped;
 *   - the bytes need not exist: locks and content are unrelated.
 */
#ifndef ATO_REFLECTION_LOCKS_H
#define ATO_REFLECTION_LOCKS_H

#include <sys/types.h>

#ifdef ATO_SEAM
extern unsigned locks_patience_ms; /* of locks_wait() */
#endif

enum locks_answer { LOCKS_MINE, LOCKS_FREE, LOCKS_TAKEN, LOCKS_FAILED /* errno */ };

/* Exclusive, on [start, start + n). */
enum locks_answer locks_try(int fd, off_t start, off_t n); /* MINE, TAKEN or FAILED */
enum locks_answer locks_share(int fd, off_t start,
                              off_t n);                    /* as locks_try(), with others who do */
enum locks_answer locks_ask(int fd, off_t start, off_t n); /* FREE, TAKEN or FAILED */
int locks_wait(int fd, off_t start, off_t n); /* 0, or -1 and errno: EBUSY after half a minute */
int locks_drop(int fd, off_t start, off_t n);
void locks_let_others(void); /* long enough for who waits in locks_wait() */
/* Before one locks by a descriptor that nobody knows of but its opener: a child that is forked from then on closes
 * it (locks_forget()), or would keep the locks when its parent is killed. Until locks_close(). */
void locks_keep(int fd);
void locks_forget(void);

/* Drops all, and closes: not by closing alone, since a child that was forked meanwhile may have the descriptor,
 * and with it the locks, for as long as it lives. -1 is left alone; errno is kept. */
void locks_close(int fd);

#endif
