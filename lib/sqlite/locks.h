/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * SQLite's locks on a database, in memory that the processes share which have a door (ato_shared()).
 *
 * A process that uses them has a door: a write lock on one byte of its own of the 510 that SQLite's own VFS locks for reading
 * when it reads. So that VFS gets SQLITE_BUSY while any process has a door, and while that VFS reads or writes nobody gets one.
 * The lock belongs to an open file description, so it also tells whether the process lives: the kernel is asked in a conflict.
 *
 * Each connection has a line, in which SHARED is a state: of one that reads a snapshot, or of one that does not. RESERVED and two kinds of
 * PENDING (which EXCLUSIVE follows) are a state in one word, that of the writer: PENDING for all keeps all readers out, as it has to be
 * where the file itself is written; PENDING for a commit only those that read no snapshot. Both words name their owner: the line, the door, and a number that no
 * other process had before. So a word of a dead process is never taken for one of its successor at the same door.
 *
 * The order that keeps readers and the writer apart: a reader stores SHARED, then looks at the writer's word; the writer stores
 * PENDING, then looks at the lines. At least one of them sees the other.
 *
 * The queue of writers. A writer that finds RESERVED taken waits with a ticket in its line. The least ticket is the head: it looks
 * again and again whether RESERVED stays free for a while, which it does not while another writer commits again and again. After
 * TURN_NS, or LONG_TURN_NS if it can wait for long, the head asks for the next turn, in which nobody overtakes it. So a writer makes
 * many transactions in a row, which saves changes of context, and nobody starves. The others sleep until they are the head. A
 * process that is stopped, or killed, when it is the head or its turn comes holds the others up for some milliseconds.
 *
 * Whoever may write to the file may write anything here: a line's number is checked before it is used, and a wait has an end.
 */
#ifndef ATO_SQLITE_LOCKS_H
#define ATO_SQLITE_LOCKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

struct lock_words;

/* LOCKS_FAILED: with errno and ato_errormsg(). LOCKS_UNSETTLED: a dead process has RESERVED or above, and may have been committing:
 * the caller has to map the database, and to try again. */
enum locks_result { LOCKS_OK, LOCKS_BUSY, LOCKS_UNSETTLED, LOCKS_FAILED };

/* A process's access to the locks of a database. */
struct locks {
    struct lock_words *words;
    int fd;         /* whose description has the door */
    uint64_t owner; /* of this process in a word */
    /* Ends what dead processes were committing: LOCKS_OK, LOCKS_UNSETTLED or LOCKS_FAILED. */
    enum locks_result (*settle)(const void *of);
    const void *of;
};

/* Returns CLOCK_MONOTONIC in nanoseconds. */
static inline uint64_t locks_clock(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

/* Sleeps for a moment, between two looks at what tells nobody when it changes. */
static inline void locks_nap(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 200 * 1000}, NULL);
}

/* Gets a door. `fd` is open for writing. *is_first: no other process has one. Returns whether there is one. */
bool locks_open_door(struct locks *l, int fd, bool *is_first);

/* The same for a process that has SQLite's EXCLUSIVE lock, which no process can have beside a door: it gives up the part that it shares
 * with the doors. */
bool locks_open_door_within(struct locks *l, int fd, bool *is_first);

/* For a process that should have SQLite's EXCLUSIVE lock: returns whether it still has locks of SQLite's. It loses all of them when it
 * closes any descriptor of the file. */
bool locks_are_held(int fd);

/* Returns whether no other process has a door. The caller keeps others from opening one. */
bool locks_are_last(const struct locks *l);

/* Gives the words back, if they are attached, and the door. The caller keeps others from opening one, or is not the last one. */
void locks_close_door(struct locks *l, bool is_last);

/* Gets the words behind the door: those of other processes or, if none live, new ones. */
enum locks_result locks_attach(struct locks *l, enum locks_result (*settle)(const void *of),
                               const void *of);

/* Returns whether another program has made the words' memory shorter: no lock that was taken since counts. */
bool locks_are_lost(const struct locks *l);

/* Frees what processes have left that had this door before. To be called before anything else is done with the words. */
enum locks_result locks_succeed(struct locks *l);

/* Takes a line for a connection, and gives it back. Returns -1 if there is none left. */
int locks_take_line(struct locks *l);
void locks_drop_line(struct locks *l, int line);

/* SHARED. sees: the line's connection is going to read a snapshot. Waits up to `wait` nanoseconds for a writer that keeps it out. */
enum locks_result locks_share(struct locks *l, int line, bool sees, uint64_t wait);

/* RESERVED, if it is free and nobody else's turn. A dead process's is freed first. */
enum locks_result locks_try_reserve(struct locks *l, int line);

/* A place in the queue of writers. */
struct locks_place {
    uint64_t ticket; /* 0: not yet in the queue */
    uint64_t began;  /* when the wait did */
    uint64_t head;   /* when it came to the head; 0 */
    bool is_patient; /* it will wait for a second or more */
};

/* RESERVED, or a wait for it in the queue. The line does not have SHARED. *place: zeros, or that of an earlier wait. */
enum locks_result locks_reserve(struct locks *l, int line, struct locks_place *place,
                                uint64_t wait);

/* EXCLUSIVE, from SHARED or above. Waits for readers to end; all: also for those of snapshots. If it is busy, the line may have
 * PENDING. */
enum locks_result locks_exclude(struct locks *l, int line, bool all, uint64_t wait);

/* Gives RESERVED and above back; and SHARED. */
void locks_unreserve(struct locks *l, int line);
void locks_unshare(struct locks *l, int line);

/* Returns whether another line has RESERVED or above, or the next turn. Does not ask whether it lives. */
bool locks_are_contended(const struct locks *l, int line);

/* Does a writer wait in the queue, and was no snapshot refused just now (*was_refused)? Then a commit is early (methods.c). */
bool locks_may_hand_over(const struct locks *l, bool *was_refused);

/* A transaction was refused because its snapshot is not the newest. Beside early commits snapshots never are: they stop for a while, as nobody
 * else would get to write who reads first. */
void locks_note_refusal(struct locks *l);

/* What the write lock is used for, by all processes since the first one came. Times are in nanoseconds; those of holds by the kernel's
 * tick: to some milliseconds. Zeros if the locks are not in memory. */
struct locks_use {
    uint32_t holder; /* its pid, in its own pid namespace; 0: nobody has the lock */
    unsigned waiting;
    uint64_t held; /* by the holder, until now */
    uint64_t holds, waits, longest_hold, longest_wait;
};
void locks_tell_use(const struct locks *l, struct locks_use *use);

/*
 * What the processes tell one another of the file:
 *
 *   LOCKS_WAL      the write-ahead log may exist. It becomes true before there is one
 *   LOCKS_WRITTEN  a process may have begun to write since the first door was opened. It becomes true before that. Else the file is
 *                  plain, and as it was
 *   LOCKS_MASKED   the file has its mask (mask.h). It becomes true after the mask is put on, and false before that is taken off
 */
enum locks_fact { LOCKS_WAL, LOCKS_WRITTEN, LOCKS_MASKED, LOCKS_FACTS };
bool locks_say(const struct locks *l, enum locks_fact fact);
void locks_set(struct locks *l, enum locks_fact fact, bool is_true);

#endif
