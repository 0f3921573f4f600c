/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which commits are under way, for who takes a lock over from a process that was killed.
 *
 * A commit whose words are durable is going to be shown, also if its process is killed in between: by whoever comes
 * by what it held, perhaps much later. To itself that is all or nothing. But other locks than libato's were given up
 * with the process: who has got one reads, without a wait, what was there before, and bases on that what it writes
 * next. So each thread says in shared memory that it is in a commit, from before the first word is stored until
 * the last one is shown, and ato_settle() waits for those that it finds, and frees the dead.
 *
 * It cannot ask for the dead alone: the kernel gives up a process's POSIX locks and robust mutexes before those of
 * open file descriptions, by which libato knows that it lives (peers_is_dead()).
 */
#ifndef ATO_LIB_SETTLE_H
#define ATO_LIB_SETTLE_H

#include "file.h"

void settle_raise_threads(uint16_t *threads, unsigned thread);

/* shared_showing.commits */
#define SETTLE_UNDER_WAY 0xffffull
#define SETTLE_OVER      0x10000ull /* one of them */

static inline uint64_t *settle_commits(const struct file *f, unsigned thread)
{
    return &shared_showing_of(&f->shared, f->pairing.slot, thread)->commits;
}

/* Of the calling thread, before the first word is stored; perhaps again before the end. */
static inline void settle_begin(const struct file *f)
{
    const unsigned thread = thread_number();
    uint64_t *at = settle_commits(f, thread);
    uint16_t *threads = &f->shared.slots[f->pairing.slot].threads;
    if (__builtin_expect(__atomic_load_n(threads, __ATOMIC_RELAXED) <= thread, 0))
        settle_raise_threads(threads, thread);
    tally_add_at(at, thread == THREAD_SHARED, 1);
    /* Who finds a word (takeover.c) would have found this. */
    __atomic_thread_fence(__ATOMIC_RELEASE);
}

/* Behind the last that is shown. */
static inline void settle_end(const struct file *f)
{
    const unsigned thread = thread_number();
    uint64_t *at = settle_commits(f, thread);
    /* Release: who finds it over finds what was shown. */
    if (__builtin_expect(thread == THREAD_SHARED, 0))
        __atomic_fetch_add(at, SETTLE_OVER - 1, __ATOMIC_RELEASE);
    else
        __atomic_store_n(at, __atomic_load_n(at, __ATOMIC_RELAXED) + SETTLE_OVER - 1,
                         __ATOMIC_RELEASE);
}

#endif
