/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reservations of pages, and how page states are loaded at first touch.
 *
 * Guarantees for a page state s:
 *   P1  s.bitmap, s.version and s.flags are changed only by the process that s.holder names, or, if that is dead,
 *       by the process that takes over its pages.
 *   P2  s.bitmap changes only while s.version is even, and only to a value that is durable on the media.
 *   P3  After a release, the next thread to reserve the page sees everything that the releasing thread stored.
 *       That includes non-temporal stores: a commit fences them, and so does W4 in hold.c.
 * A plain operation reserves several pages in ascending order of (file id, page), so plain operations cannot
 * deadlock with each other. Transactions reserve in any order, and wait by the rules of waits.h.
 *
 * Two models, which tools/check-models checks, contain this code: pages.pml has sleeping and waking, read.pml has
 * marks and first touch. If you change the order of steps here, change the model too.
 *
 * Reads take no reservation: read.c explains why a stale read does no harm.
 */
#ifndef ATO_LIB_PAGES_H
#define ATO_LIB_PAGES_H

#include "../reflection/seam.h"
#include "file.h"

/* Called once per process, before the first reservation. */
void pages_set_up(void);

/* Makes every thread of the process execute a full barrier. Returns false if the kernel cannot do that. */
bool pages_barrier(void);

/* How a thread waits for a reserved page. All zeros: until the page is free. */
struct patience {
    bool not_for_tx;   /* do not wait for a page of a transaction */
    uint32_t epoch;    /* slot of the epoch that the caller writes for (tx_place()): do not wait
                          for pages of that epoch; 0: none */
    uint64_t deadline; /* CLOCK_MONOTONIC, ns; 0: none */
};

/* Returns true if `patience` says not to wait for the transaction or epoch that holds the page. */
bool pages_is_not_for(const struct file *f, const struct page_state *s,
                      const struct patience *patience);

/*
 * Waits for a page that was not free, and reserves it. Returns 0; PAGES_OF_TX if a transaction or epoch holds the
 * page for which `patience` says not to wait; or -1 with errno: EDEADLK if the wait would never end (waits.h),
 * ETIMEDOUT, or an error of peers_recover() if the holder is dead and its page cannot be freed.
 *
 * A plain operation that holds pages must not wait for a page of a transaction: plain operations reserve in order,
 * transactions do not, and the transaction may be waiting for one of these pages.
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

/* Reserves a page. Returns as pages_wait(). */
static inline int pages_reserve(struct file *f, struct page_state *s,
                                const struct patience *patience)
{
    seam_point(SEAM_RESERVE, s);
    if (__builtin_expect(pages_try_reserve(f, s), 1))
        return 0;
    return pages_wait(f, s, patience);
}

/*
 * Releases a page. A plain store, because a locked instruction would wait until all earlier stores of this thread
 * have drained; after a flush that takes longer than the rest of a small write.
 *
 * There is no barrier between the store to `holder` and the load of `notes`, so the CPU may execute the load first.
 * Then this thread could miss the note of a thread that is about to sleep, while that thread still sees the page
 * held. The sleeper prevents this: between its note and its look at `holder` it makes all CPUs that run a thread of
 * a process with libato execute a full barrier (membarrier). After that, either the sleeper sees the page free, or
 * this load sees the note.
 */
static inline void pages_release(struct page_state *s)
{
    seam_point(SEAM_RELEASE, s);
    __atomic_store_n(&s->holder, 0, __ATOMIC_RELEASE);
    if (__builtin_expect(__atomic_load_n(&s->notes, __ATOMIC_RELAXED) & PAGE_SLEEPERS, 0))
        pages_wake(s);
}

/*
 * Checks that the file reaches byte `end`, and will until the page is released. The caller holds the page. Returns
 * 0; -1 with EFAULT if the file is shorter; PAGES_AGAIN if a shrink to less than `end` is under way, which waits
 * for reserved pages: then the caller releases the page, calls pages_wait_for_size() and starts again.
 *
 * The caller must check this right after reserving, before pages_load(). A shrink (size.h) first stores `cut`, then
 * looks for page states and their holders, and a reservation is a locked instruction. So if the shrink did not see
 * this page's state or reservation, this load sees `cut`. `cut` is read before the size: when `cut` is withdrawn,
 * the new size is already there.
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

/* Waits until no transaction changes the file's size. A plain operation must hold no page. Returns 0; -1: as
 * pages_wait(). */
int pages_wait_for_size(struct file *f, const struct patience *patience);

/* Loads the page's bitmap from the media and makes O readable, if that was not done yet. The caller holds the page.
 * Returns 0; -1 with ENOSPC or EIO: nothing changed. */
int pages_load_slow(struct file *f, uint64_t page, struct page_state *s);

static inline int pages_load(struct file *f, uint64_t page, struct page_state *s)
{
    if (__builtin_expect(__atomic_load_n(&s->version, __ATOMIC_RELAXED) != 0, 1))
        return 0;
    return pages_load_slow(f, page, s);
}

/* Makes n adjacent words on the media durable as they are visible: after a process died they may be visible and not
 * durable. Returns 0; -1 with EIO. */
int pages_settle_words(const struct file *f, const uint64_t *words, uint64_t n);

/* Pauses in iteration i of a loop that waits for a few stores of another thread of this process. */
void pages_pause(unsigned i);

/* Pauses in iteration i of a loop that waits for the holder of a page, which may be another process and may have
 * died: then the page is freed. Returns 0; -1 if it cannot be freed. */
int pages_await(struct file *f, const struct page_state *s, unsigned i);

/* Returns the page's state, loaded, for a reader; reserves the page for that if necessary. NULL with ENOSPC, EIO,
 * EFAULT, or an error of pages_await(). */
struct page_state *pages_look(struct file *f, uint64_t page);

/*
 * Makes a durable flip visible in memory: version even, bitmap, version odd. An operation on several pages marks
 * all of them, then changes all bitmaps, then unmarks all, so a reader sees all of its flips or none. The caller
 * holds the page.
 *
 * Order of the stores: x86 does not reorder stores, and the release on each keeps the compiler from doing it. They
 * pair with the loads in read.c: a reader cannot see the new bitmap and the old odd version both before and after
 * its copy, because the even version is stored before the bitmap.
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
