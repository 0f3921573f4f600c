/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The state of a page in shared memory: the holder of its reservation, and how a change becomes visible.
 *
 * Guarantees for a page state s:
 *   P1  s.bitmap, s.version and s.flags are changed only by the process that s.holder names, or, if that is dead,
 *       by the process that takes over its pages. Of a file with a log and numbers (undo.h) the first two are changed with `showing`, by
 *       the page's holder, or by one that brings the page home (early.h).
 *   P2  s.bitmap changes only while s.version is even, and only to a value that is durable on the media. (With a log it says where the
 *       newest content is: 0: in the file; else in an early copy.)
 *   P3  After a release, the next thread to reserve the page sees everything that the releasing thread stored.
 *       That includes non-temporal stores: a commit fences them, and so does W4 in page_set_reserve.c.
 *
 * Models, which tools/check-models checks, contain this code: pages.pml has sleeping and waking, read.pml and snapshot.pml have marks,
 * early.pml has pages that come home. If you change the order of steps here, change the model too.
 */
#ifndef ATO_LIB_FILE_PAGE_H
#define ATO_LIB_FILE_PAGE_H

#include "lib/file/file.h"
#include "reflection/media/seam.h"

/* What a thread that waits spins, in iterations, before it sleeps or yields the CPU: most reservations last as long as the copy
 * of a page or two. */
enum { PAGE_SPINS = 200 };

/* The place in the process's table of the transaction that page_state.tx names: constant for as long as the
 * transaction lives, and the same for all epochs of a mapping. */
enum { PAGE_TX_PLACES = 1 << 16 };
static inline uint32_t page_tx_place(uint64_t tx)
{
    return (uint32_t)(tx >> 32) & (PAGE_TX_PLACES - 1);
}

/* How a thread waits for a reserved page. All zeros: as a plain call. */
struct patience {
    bool not_for_tx; /* do not wait for a page of a transaction */
    uint32_t epoch;  /* slot of the epoch that the caller writes for (page_tx_place()): do not wait
                          for pages of that epoch; 0: none */
    uint64_t tx_ns;  /* how long, if a transaction waits; 0: a plain call, ATO_WAIT_MS */
};

/* Returns true if the caller writes for the epoch that page_state.tx names, in its process. */
static inline bool page_is_for_epoch(uint64_t tx, const struct patience *patience)
{
    return patience->epoch && page_tx_place(tx) == patience->epoch;
}

/* Returns true if `patience` says not to wait for the transaction or epoch that holds the page. */
bool page_is_not_for(const struct file *f, const struct page_state *s,
                     const struct patience *patience);

/* Reserves a page if it is free. Returns whether it was. reservation.h waits for it. */
static inline bool page_try_reserve(struct file *f, struct page_state *s)
{
    uint32_t free = 0;
    /* Acquire: pairs with the release in page_release() (P3). */
    if (!__atomic_compare_exchange_n(&s->holder, &free, f->holder, false, __ATOMIC_ACQUIRE,
                                     __ATOMIC_RELAXED))
        return false;
    seam_point(SEAM_RESERVED, s);
    return true;
}

/* Sleeps until the page is released, for `ns` and for some milliseconds at most. */
void page_sleep(struct page_state *s, uint64_t ns);
void page_wake(struct page_state *s);

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
static inline void page_release(struct page_state *s)
{
    seam_point(SEAM_RELEASE, s);
    __atomic_store_n(&s->holder, 0, __ATOMIC_RELEASE);
    if (__builtin_expect(__atomic_load_n(&s->notes, __ATOMIC_RELAXED) & PAGE_SLEEPERS, 0))
        page_wake(s);
}

/* Makes a word of a page on the media durable as it is visible: after a process died it may be visible and not
 * durable. Returns 0; -1 with EIO. */
int page_flush_word(const struct file *f, const uint64_t *word);

/* Pauses in iteration i of a loop that waits for a few stores of another thread of this process. */
void page_pause(unsigned i);

/*
 * Makes a durable flip visible in memory: version even, bitmap, version odd. An operation on several pages marks
 * all of them, then changes all bitmaps, then unmarks all, so a reader sees all of its flips or none. The caller
 * holds the page.
 *
 * Order of the stores: x86 does not reorder stores, and the release on each keeps the compiler from doing it. They
 * pair with the loads in read.c: a reader cannot see the new bitmap and the old odd version both before and after
 * its copy, because the even version is stored before the bitmap.
 */

/* In a version: the content of the page, which is marked, may have changed in part. So nobody saves it for snapshots any more
 * (undo.h): before it got this mark it was saved, or its snapshots were given up. */
#define PAGE_CHANGING 0x8000u

/* Sets the mark, or takes it off. */
static inline void page_turn_mark(struct page_state *s)
{
    __atomic_store_n(&s->version, (s->version + 1) & ~(uint64_t)PAGE_CHANGING, __ATOMIC_RELEASE);
}

/* Sets the mark of a page whose content changes then; it may have one. */
static inline void page_mark_changing(struct page_state *s)
{
    __atomic_store_n(&s->version, ((s->version + 1) & ~1ull) | PAGE_CHANGING, __ATOMIC_RELEASE);
}

/* Gives the page another version, for the same content: a thread that is reading it reads again. */
static inline void page_renew(struct page_state *s)
{
    if (s->version) /* it is loaded */
        __atomic_store_n(&s->version, (s->version + 2) & ~(uint64_t)PAGE_CHANGING,
                         __ATOMIC_RELEASE);
}

static inline void page_set_bitmap(struct page_state *s, uint64_t bitmap)
{
    __atomic_store_n(&s->bitmap, bitmap, __ATOMIC_RELEASE);
}

/* Takes the mark off after a flip that has changed the page's content, and gives that its number: of the commit, or, with
 * `number` 0, the next one of the page. A deploy only moves content from home to home: page_turn_mark(). */
static inline void page_unmark_changed(struct page_state *s, uint64_t number)
{
    const uint64_t content = number ? number : (s->version >> 16) + 1;
    __atomic_store_n(&s->version, content << 16 | 1, __ATOMIC_RELEASE);
}

/* Returns the number of the content of a page that has this version. */
static inline uint64_t page_content(uint64_t version)
{
    return version >> 16;
}

#endif
