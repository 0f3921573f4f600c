/* SPDX-License-Identifier: BSD-3-Clause */
/* Sleeping and waking are modelled in pages.pml, first touch in read.pml. */
#include "pages.h"

#include "../reflection/report.h"
#include "clock.h"
#include "peers.h"
#include "space.h"
#include "tx.h"
#include "waits.h"

#include <errno.h>
#include <immintrin.h>
#include <limits.h>
#include <linux/futex.h>
#include <linux/membarrier.h>
#include <sched.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Most reservations last as long as the copy of a page or two: spin that long, then sleep. The sleep is limited so
 * that a waiter notices when the holder has died. Where the kernel has no membarrier, the limit is also how late a
 * thread may notice a wake-up that it missed. */
enum { SPINS = 200, SLEEP_NS = 10 * 1000 * 1000 };

/* `notes` is byte 2 of word_of_sleepers(). */
#define NOTE_IN_WORD ((uint32_t)PAGE_SLEEPERS << 16)
static_assert(offsetof(struct page_state, notes) == offsetof(struct page_state, owner) + 2 &&
                  offsetof(struct page_state, owner) % 4 == 0,
              "the word that sleepers sleep on");

static bool have_barrier;

void pages_set_up(void)
{
    have_barrier = persist_can_fence_threads();
}

bool pages_barrier(void)
{
    return have_barrier && syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0) == 0;
}

/*
 * The word that sleepers sleep on: owner, written, notes and flags. Not `holder`: it may have the same value again
 * when another thread of the process has reserved the page, and the sleeper would miss that its note was removed by
 * the release in between. Other changes of this word by the holder only cut the sleep short.
 */
typedef uint32_t __attribute__((may_alias)) sleep_word;

static sleep_word *word_of_sleepers(struct page_state *s)
{
    return (sleep_word *)&s->owner;
}

static void sleep_until_free(struct page_state *s)
{
    __atomic_fetch_or(&s->notes, PAGE_SLEEPERS, __ATOMIC_SEQ_CST);
    /* Stands in for the barrier that pages_release() does not have. Global: another process may hold the page. */
    (void)pages_barrier();
    uint32_t seen = __atomic_load_n(word_of_sleepers(s), __ATOMIC_RELAXED) | NOTE_IN_WORD;
    if (!__atomic_load_n(&s->holder, __ATOMIC_RELAXED))
        return;
    /* While the note is set, the thread that releases the page wakes the sleepers. No FUTEX_PRIVATE_FLAG: the futex
     * is shared between processes. */
    struct timespec limit = {.tv_nsec = SLEEP_NS};
    syscall(SYS_futex, word_of_sleepers(s), FUTEX_WAIT, seen, &limit, NULL, 0);
}

bool pages_is_not_for(const struct file *f, const struct page_state *s,
                      const struct patience *patience)
{
    const uint64_t tx = __atomic_load_n(&s->tx, __ATOMIC_RELAXED);
    /* The same transaction number may be used in several processes. */
    return tx &&
           (patience->not_for_tx || (patience->epoch && tx_place(tx) == patience->epoch &&
                                     __atomic_load_n(&s->holder, __ATOMIC_RELAXED) == f->holder));
}

/* Frees the page if its holder has not changed during the sleep and is dead. */
static int look_after(struct file *f, const struct page_state *s, uint32_t holder)
{
    if (!holder || holder != __atomic_load_n(&s->holder, __ATOMIC_RELAXED))
        return 0;
    return peers_recover(f, holder);
}

/* Waits for a page that did not become free within SPINS. Checks for a deadlock after each sleep: another
 * transaction may have reserved the page and be waiting for this thread. */
static int wait_long(struct file *f, struct page_state *s, const struct patience *patience)
{
    struct waiter self;
    int r = waits_begin(&self, f, s, patience);
    while (r == 0) {
        const uint32_t holder = __atomic_load_n(&s->holder, __ATOMIC_RELAXED);
        if (patience->deadline && clock_ns() >= patience->deadline) {
            r = report_error(ETIMEDOUT, "others held a part of %s all the time", f->pairing.path);
        } else {
            sleep_until_free(s);
            r = look_after(f, s, holder);
        }
        seam_point(SEAM_WAIT, s);
        if (!__atomic_load_n(&s->holder, __ATOMIC_RELAXED) && pages_try_reserve(f, s)) {
            r = 0;
            break;
        }
        if (r == 0 && pages_is_not_for(f, s, patience))
            r = PAGES_OF_TX;
        if (r == 0)
            r = waits_check(&self);
    }
    waits_end(&self);
    return r;
}

int pages_wait(struct file *f, struct page_state *s, const struct patience *patience)
{
    for (unsigned i = 0; i < SPINS; i++) {
        seam_point(SEAM_WAIT, s);
        if (!__atomic_load_n(&s->holder, __ATOMIC_RELAXED) && pages_try_reserve(f, s))
            return 0;
        if (pages_is_not_for(f, s, patience))
            return PAGES_OF_TX;
        _mm_pause();
    }
    return wait_long(f, s, patience);
}

void pages_pause(unsigned i)
{
    if (i < SPINS)
        _mm_pause();
    else
        sched_yield(); /* the other thread may be waiting for this CPU */
}

/* Iterations that take a millisecond or more. */
enum { ROUNDS = 1024 };

int pages_await(struct file *f, const struct page_state *s, unsigned i)
{
    pages_pause(i);
    if (i % ROUNDS != ROUNDS - 1)
        return 0;
    const uint32_t holder = __atomic_load_n(&s->holder, __ATOMIC_RELAXED);
    return holder ? peers_recover(f, holder) : 0;
}

void pages_wake(struct page_state *s)
{
    /* Wakes all sleepers: those that do not get the page set the note again. */
    __atomic_fetch_and(&s->notes, (uint8_t)~PAGE_SLEEPERS, __ATOMIC_SEQ_CST);
    syscall(SYS_futex, word_of_sleepers(s), FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

int pages_beyond(struct file *f, uint64_t end)
{
    uint64_t size = file_size(f);
    if (end <= size)
        return PAGES_AGAIN;
    return report_error(EFAULT, "up to byte %llu of %s, which is %llu bytes long by now",
                        (unsigned long long)end, f->pairing.path, (unsigned long long)size);
}

/* Removes what is left of a shrink. The caller holds `sizing`, and makes no shrink: so `cut` and `gone` must say
 * none. If they do not, a program other than the library stored them (shared.h), and all users would wait forever. */
static void no_shrink(struct file *f)
{
    struct shared_header *h = f->shared.header;
    if (h->cut != UINT64_MAX)
        __atomic_store_n(&h->cut, UINT64_MAX, __ATOMIC_RELEASE);
    if (h->gone != UINT64_MAX)
        __atomic_store_n(&h->gone, UINT64_MAX, __ATOMIC_RELEASE);
}

int pages_wait_for_size(struct file *f, const struct patience *patience)
{
    struct page_state *s = &f->shared.header->sizing;
    int r = pages_reserve(f, s, patience);
    if (r == 0) {
        no_shrink(f);
        pages_release(s);
    }
    return r;
}

int pages_settle_words(const struct file *f, const uint64_t *words, uint64_t n)
{
    /* persist-order R4, R5 (writers: W2, G4, S2 in flip.c): after a kill the word may be visible and not durable.
     * It becomes durable before anything is built on it, and before it becomes visible in memory (I4): otherwise a
     * process could overwrite the home that the word made invalid (I3), or a power cut could take back what was
     * read. I1, I5. */
    if (persist_flush_any(&f->persist, words, n * sizeof(*words)) < 0)
        return report_errno(errno, "cannot make a bitmap or the size of %s durable",
                            f->pairing.path);
    persist_fence(&f->persist);
    return 0;
}

int pages_load_slow(struct file *f, uint64_t page, struct page_state *s)
{
    uint64_t word = 0;
    uint8_t flags = 0;
    if (space_look(f, page, &flags) < 0)
        return -1;
    if (space_has_word(f, page)) {
        uint64_t *at = file_word(f, page);
        word = __atomic_load_n(at, __ATOMIC_RELAXED);
        if (word && space_look_r(f, page) < 0)
            return -1;
        if (!f->settled && pages_settle_words(f, at, 1) < 0) /* R4 */
            return -1;
    }
    s->bitmap = word;
    /* Atomic: sleepers read the whole word. */
    __atomic_store_n(&s->flags, s->flags | flags, __ATOMIC_RELAXED);
    /* Release: a reader that sees a version sees the bitmap. */
    __atomic_store_n(&s->version, 1, __ATOMIC_RELEASE);
    return 0;
}

/* Checks whether a reader may load a page. It does not wait for an open transaction that is going to make the file
 * shorter, only for the few stores with which the commit makes the shrink visible: that commit stores `gone` before
 * it looks which pages are loaded, as it stored `cut` earlier (pages_within()). Returns 0; -1 with EFAULT;
 * PAGES_AGAIN: try again in a moment. */
static int may_load(struct file *f, uint64_t page)
{
    uint64_t end = page * PAGE_BYTES + 1;
    if (end > __atomic_load_n(&f->shared.header->gone, __ATOMIC_ACQUIRE))
        return PAGES_AGAIN;
    return end <= file_size(f) ? 0 : pages_beyond(f, end);
}

struct page_state *pages_look(struct file *f, uint64_t page)
{
    struct page_state *s = shared_state(&f->shared, page), *sizing = &f->shared.header->sizing;
    if (!s)
        return NULL;
    /* A thread that holds a page that is not loaded loads it at once. A reader waits only for that, not for what
     * the holder does afterwards. */
    for (unsigned i = 0; !__atomic_load_n(&s->version, __ATOMIC_ACQUIRE); i++) {
        if (pages_try_reserve(f, s)) {
            int r = may_load(f, page);
            if (r == 0)
                r = pages_load(f, page, s);
            pages_release(s);
            if (r == 0)
                return s;
            if (r < 0)
                return NULL;
            if (pages_try_reserve(f, sizing)) {
                no_shrink(f);
                pages_release(sizing);
            }
        }
        seam_point(SEAM_WAIT, s);
        /* Waits for the holder of the page, or, while the file gets shorter, for the holder of the size. */
        if (pages_await(f, s, i) < 0 || pages_await(f, sizing, i) < 0)
            return NULL;
    }
    return s;
}
