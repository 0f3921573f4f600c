/* SPDX-License-Identifier: BSD-3-Clause */
/* Which commits of a process are under way: noted in shared memory for ato_settle() (settle.c), and for
 * transactions that have read the file (notes.c). */
#ifndef ATO_LIB_FILE_UNDER_WAY_H
#define ATO_LIB_FILE_UNDER_WAY_H

#include "lib/file/attach.h"

#include <stddef.h>

/* shared_thread.commits */
#define UNDER_WAY_NOW  0xffffull
#define UNDER_WAY_OVER 0x10000ull /* one commit that is over */

/* Return how many slots may have commits, and how many threads of a slot. Limited to what the object has room for. */
static inline unsigned under_way_slots(const struct shared *s)
{
    const unsigned slots = __atomic_load_n(&s->header->slots_used, __ATOMIC_ACQUIRE);
    return slots < MANIFEST_SLOTS ? slots : MANIFEST_SLOTS;
}

static inline unsigned under_way_threads(const struct shared *s, unsigned slot)
{
    const unsigned threads = __atomic_load_n(&s->slots[slot].threads, __ATOMIC_ACQUIRE);
    return threads <= THREAD_SHARED ? threads : THREAD_SHARED + 1;
}

static inline uint64_t under_way_look(const struct shared *s, unsigned slot, unsigned thread)
{
    return __atomic_load_n(&shared_thread_of(s, slot, thread)->commits, __ATOMIC_ACQUIRE);
}

/* Waits until what the threads of a slot's process have begun now is over. `counter`: offset in struct shared_thread of what counts that.
 * Calls look_after() now and then; returns -1 as soon as that does, else 0. */
int under_way_wait(struct file *f, unsigned slot, size_t counter,
                   int (*look_after)(struct file *f, uint32_t holder, uint64_t until),
                   uint64_t until);

/* The same for all processes that use the file. */
int under_way_wait_all(struct file *f, size_t counter,
                       int (*look_after)(struct file *f, uint32_t holder, uint64_t until),
                       uint64_t until);

/* Where the calling thread counts its commits to the file. */
static inline struct tally under_way_of(const struct file *f)
{
    const unsigned thread = thread_number();
    return (struct tally){&f->threads[thread].commits, thread == THREAD_SHARED};
}

/* Notes that the calling thread begins a commit to the file. Called before the first word is stored; may be nested. Returns
 * under_way_of(). */
static inline struct tally under_way_begin(const struct file *f)
{
    const struct tally t = under_way_of(f);
    if (__builtin_expect(!__atomic_load_n(t.of, __ATOMIC_RELAXED), 0)) /* its first commit */
        attach_raise_threads(&f->shared.slots[f->pairing.slot].threads, thread_number());
    tally_add_at(t.of, t.shared, 1);
    /* A process that finds a word of the commit (takeover.c) would also have found this note. */
    __atomic_thread_fence(__ATOMIC_RELEASE);
    return t;
}

/* Notes that the commit is over. Called after its last change has become visible. */
static inline void under_way_end(struct tally t)
{
    /* Release: a process that sees the commit over sees its changes. */
    if (__builtin_expect(t.shared, 0))
        __atomic_fetch_add(t.of, UNDER_WAY_OVER - 1, __ATOMIC_RELEASE);
    else
        __atomic_store_n(t.of, __atomic_load_n(t.of, __ATOMIC_RELAXED) + UNDER_WAY_OVER - 1,
                         __ATOMIC_RELEASE);
}

#endif
