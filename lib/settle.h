/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which commits are under way, for a program that takes a lock over from a process that was killed.
 *
 * When the words of a commit are durable, the commit is going to become visible, even if its process is killed
 * before that: the process that frees what the dead one held makes it visible, perhaps much later. For libato's
 * readers and writers the commit is there as a whole or not at all. But locks other than libato's are freed when
 * the process dies: the program that gets such a lock next reads the old data, without a wait, and bases on it what
 * it writes. So each thread notes in shared memory that it is in a commit, from before the first word is stored
 * until the last one is visible. ato_settle() waits for the commits that it finds, and frees what dead processes
 * held.
 *
 * It cannot wait for dead processes only: the kernel frees a process's POSIX locks and robust mutexes before its
 * open file description locks, by which libato knows that it is alive (peers_is_dead()).
 */
#ifndef ATO_LIB_SETTLE_H
#define ATO_LIB_SETTLE_H

#include "file.h"

void settle_raise_threads(uint16_t *threads, unsigned thread);

/* shared_showing.commits */
#define SETTLE_UNDER_WAY 0xffffull
#define SETTLE_OVER      0x10000ull /* one commit that is over */

static inline uint64_t *settle_commits(const struct file *f, unsigned thread)
{
    return &shared_showing_of(&f->shared, f->pairing.slot, thread)->commits;
}

/* Notes that the calling thread begins a commit to the file. Called before the first word is stored; may be nested. */
static inline void settle_begin(const struct file *f)
{
    const unsigned thread = thread_number();
    uint64_t *at = settle_commits(f, thread);
    uint16_t *threads = &f->shared.slots[f->pairing.slot].threads;
    if (__builtin_expect(__atomic_load_n(threads, __ATOMIC_RELAXED) <= thread, 0))
        settle_raise_threads(threads, thread);
    tally_add_at(at, thread == THREAD_SHARED, 1);
    /* A process that finds a word of the commit (takeover.c) would also have found this note. */
    __atomic_thread_fence(__ATOMIC_RELEASE);
}

/* Notes that the commit is over. Called after its last change has become visible. */
static inline void settle_end(const struct file *f)
{
    const unsigned thread = thread_number();
    uint64_t *at = settle_commits(f, thread);
    /* Release: a process that sees the commit over sees its changes. */
    if (__builtin_expect(thread == THREAD_SHARED, 0))
        __atomic_fetch_add(at, SETTLE_OVER - 1, __ATOMIC_RELEASE);
    else
        __atomic_store_n(at, __atomic_load_n(at, __ATOMIC_RELAXED) + SETTLE_OVER - 1,
                         __ATOMIC_RELEASE);
}

#endif
