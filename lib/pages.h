/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reservations of pages, and the first touch of their states.
 *
 * Guarantees, for one page state s:
 *   P1  s.bitmap, s.version and s.flags change only while s.holder is the changer's.
 *   P2  s.bitmap changes only while s.version is even, and only to what the media hold durably.
 *   P3  After a release, whoever reserves next sees all that the releaser stored: non-temporal stores
 *       too, by the fences of a commit, or W4 in hold.c.
 * Plain operations reserve several pages in ascending order of (file id, page), everywhere: among them no
 * cycle of waiting can close. Transactions reserve in any order; they wait by the rules of waits.h.
 *
 * Sleeping and waking are modelled in pages.pml, marks and first touch in read.pml, both of which
 * tools/check-models checks: who changes the order of a step here changes it there.
 *
 * Reading follows no lock: see read.c for why a stale read is harmless.
 */
#ifndef ATO_LIB_PAGES_H
#define ATO_LIB_PAGES_H

#include "../reflection/seam.h"
#include "file.h"

/* Once for the process, before the first reservation. */
void pages_set_up(void);

/* Every thread of the process passes a full barrier. False: the kernel cannot do that. */
bool pages_barrier(void);

/* How to wait for a page that somebody else has. Zeros: until it is free. */
struct patience {
    bool not_for_tx;   /* not for one that a transaction has */
    uint32_t epoch;    /* of whose write it is (tx_place()): not for one that this has; 0: none's */
    uint64_t deadline; /* of CLOCK_MONOTONIC, ns; 0: none */
};

/* Is a page that of a transaction for which one does not wait so? */
bool pages_is_not_for(const struct file *f, const struct page_state *s,
                      const struct patience *patience);

/*
 * Reserves a page that was not free when it was looked at. 0; PAGES_OF_TX, when a transaction, or the epoch,
 * has it and `patience` says so; -1 with EDEADLK, where the wait would never end (waits.h), or ETIMEDOUT; or
 * with what keeps a page from being freed whose holder is dead (peers.h).
 *
 * Plain operations reserve in order, and a transaction as its calls come: so a plain operation that holds
 * anything does not wait for a page of a transaction, which may be waiting for one of its own.
 */
#define PAGES_OF_TX 1
int pages_wait(struct file *f, struct page_state *s, const struct patience *patience);
void pages_wake(struct page_state *s);

static inline bool pages_try_reserve(struct file *f, struct page_state *s)
{
    uint32_t free = 0;
    /* Acquire: pairs with the release in pages_release() (P3). */
    if (!__atomic_compare_exchange_n(&s->holder, &free, f->holder, false, __ATOMIC_ACQUIRE,
                                     __ATOMIC_RELAXED))
        return false;
    __atomic_store_n(&s->owner, (uint8_t)thread_number(), __ATOMIC_RELAXED);
    seam_point(SEAM_RESERVED, s);
    return true;
}

/* As pages_wait(). */
static inline int pages_reserve(struct file *f, struct page_state *s,
                                const struct patience *patience)
{
    seam_point(SEAM_RESERVE, s);
    if (__builtin_expect(pages_try_reserve(f, s), 1))
        return 0;
    return pages_wait(f, s, patience);
}

/*
 * A plain store, no locked instruction: a locked one waits until everything this thread stored has
 * drained, which after a flush takes longer than all the rest of a small write.
 *
 * Absent barrier: the load of `notes` may be answered before the store of `holder` is visible, so
 * that a sleeper-to-be that looks at `holder` just then and this thread miss one another. The
 * sleeper pays for that instead: between its note and its look it has every CPU that runs one of us
 * pass a full barrier (membarrier). Then either it sees the page free or this load saw its note.
 */
static inline void pages_release(struct page_state *s)
{
    seam_point(SEAM_RELEASE, s);
    __atomic_store_n(&s->holder, 0, __ATOMIC_RELEASE);
    if (__builtin_expect(__atomic_load_n(&s->notes, __ATOMIC_RELAXED) & PAGE_SLEEPERS, 0))
        pages_wake(s);
}

/*
 * Reserved: does the file reach up to byte `end`, and will it until the page is released? 0. -1 with
 * EFAULT: it does not. PAGES_AGAIN: a shrink to before that is under way, which waits for pages that are
 * reserved: the caller releases the page, calls pages_wait_for_size() and begins anew.
 *
 * Whoever reserves asks before all else, pages_load() included: who makes a shrink (size.h) tells `cut`
 * and then looks which pages have states, and who holds them. A reservation is a locked instruction.
 * So of a page whose state came to be too late to be looked at, this load sees `cut`.
 * `cut` first: when it is gone, the new size is there.
 */
#define PAGES_AGAIN 2
int pages_beyond(struct file *f, uint64_t end);

static inline int pages_within(struct file *f, uint64_t end)
{
    uint64_t cut = __atomic_load_n(&f->shared.header->cut, __ATOMIC_ACQUIRE);
    if (__builtin_expect(end <= cut && end <= file_size(f), 1))
        return 0;
    return pages_beyond(f, end);
}

/* Until nobody changes the size. A plain operation holds nothing meanwhile. -1: as pages_wait(). */
int pages_wait_for_size(struct file *f, const struct patience *patience);

/* Takes the bitmap from the media, and makes sure that O may be read, if neither was done.
 * Reserved. ENOSPC, EIO: nothing changed. */
int pages_load_slow(struct file *f, uint64_t page, struct page_state *s);

static inline int pages_load(struct file *f, uint64_t page, struct page_state *s)
{
    if (__builtin_expect(__atomic_load_n(&s->version, __ATOMIC_RELAXED) != 0, 1))
        return 0;
    return pages_load_slow(f, page, s);
}

/* Makes words on the media, of one page or line, durable as they are visible: of a process that died they may be the
 * one and not the other. -1 with EIO. */
int pages_settle_words(const struct file *f, const uint64_t *words, uint64_t n);

/* For the i-th time round a loop that waits for a few stores of another thread of this process. */
void pages_pause(unsigned i);

/* The same for whoever holds a page, perhaps another process, which may have died: then the page is freed. -1:
 * that cannot be. */
int pages_await(struct file *f, const struct page_state *s, unsigned i);

/* The state of a page, loaded. For readers: reserves for that if need be. NULL with ENOSPC, EIO. */
struct page_state *pages_look(struct file *f, uint64_t page);

/*
 * Shows a durable flip in memory: version even, bitmap, version odd. Between the two halves an
 * operation changes all its pages, so that a reader of several sees all or none. Reserved.
 *
 * Stores in order: x86 keeps stores in order, and the release on each keeps the compiler to it.
 * Pairs with the loads in read.c: a reader that saw the new bitmap and the old odd version on both
 * sides of its copy cannot exist, since the even version came before the bitmap.
 */
static inline void pages_mark_for(struct page_state *s, unsigned owner)
{
    __atomic_store_n(&s->owner, (uint8_t)owner, __ATOMIC_RELAXED);
    __atomic_store_n(&s->version, s->version + 1, __ATOMIC_RELEASE);
}

static inline void pages_mark_flipping(struct page_state *s)
{
    pages_mark_for(s, thread_number());
}

static inline void pages_set_bitmap(struct page_state *s, uint64_t bitmap)
{
    __atomic_store_n(&s->bitmap, bitmap, __ATOMIC_RELEASE);
}

static inline void pages_unmark_flipping(struct page_state *s)
{
    __atomic_store_n(&s->version, s->version + 1, __ATOMIC_RELEASE);
}

#endif
