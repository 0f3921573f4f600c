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

/* Most reservations last as long as the copy of a page or two: spin that long, then sleep. The time
 * limit is what lets a waiter notice that a holder died; and where the kernel has no membarrier, it
 * is how long a wake-up that was missed takes. */
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
 * What sleepers sleep on: owner, written, notes, flags in one. Not `holder`: that may be the same again
 * when another thread of the process has the page by now, and the note, which whoever released it took
 * away, is missed. What the holder changes here meanwhile makes a sleep shorter, nothing else.
 */
typedef uint32_t __attribute__((may_alias)) sleep_word;

static sleep_word *word_of_sleepers(struct page_state *s)
{
    return (sleep_word *)&s->owner;
}

static void sleep_until_free(struct page_state *s)
{
    __atomic_fetch_or(&s->notes, PAGE_SLEEPERS, __ATOMIC_SEQ_CST);
    /* Pairs with the absent barrier of pages_release(). Global: the page may be another process's.
     */
    (void)pages_barrier();
    uint32_t seen = __atomic_load_n(word_of_sleepers(s), __ATOMIC_RELAXED) | NOTE_IN_WORD;
    if (!__atomic_load_n(&s->holder, __ATOMIC_RELAXED))
        return;
    /* As long as the note is there, whoever has the page wakes. Shared between processes, hence no
     * FUTEX_PRIVATE_FLAG. */
    struct timespec limit = {.tv_nsec = SLEEP_NS};
    syscall(SYS_futex, word_of_sleepers(s), FUTEX_WAIT, seen, &limit, NULL, 0);
}

bool pages_is_not_for(const struct file *f, const struct page_state *s,
                      const struct patience *patience)
{
    const uint64_t tx = __atomic_load_n(&s->tx, __ATOMIC_RELAXED);
    /* Numbers of transactions are each process's own. */
    return tx &&
           (patience->not_for_tx || (patience->epoch && tx_place(tx) == patience->epoch &&
                                     __atomic_load_n(&s->holder, __ATOMIC_RELAXED) == f->holder));
}

/* The page has had one holder all the time that somebody slept. If he is dead it is freed. */
static int look_after(struct file *f, const struct page_state *s, uint32_t holder)
{
    if (!holder || holder != __atomic_load_n(&s->holder, __ATOMIC_RELAXED))
        return 0;
    return peers_recover(f, holder);
}

/* Not free within a moment. Looks each time round: by now somebody else may have the page, and be waiting
 * for this thread. */
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
        sched_yield(); /* the other one may be waiting for this CPU */
}

/* So often round that it takes a millisecond or more. */
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
    /* All of them: who does not get the page leaves its note anew. */
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

/* `sizing` is reserved, and by nobody who makes a shrink: what still tells of one was stored by no call of the
 * library's (shared.h), and would keep everybody waiting for ever. */
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
    /* persist-order R4, R5 (writers: W2, G4, S2 in flip.c): after a kill the word may be visible and not
     * durable. Made durable before anything is built on it, and before it is shown (I4): else somebody
     * would write to the home that it made invalid (I3), or a power cut take back what was read. I1, I5. */
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
    __atomic_store_n(&s->flags, s->flags | flags, __ATOMIC_RELAXED); /* sleepers look at the word */
    /* Release: a reader that sees a version sees the bitmap. */
    __atomic_store_n(&s->version, 1, __ATOMIC_RELEASE);
    return 0;
}

/* For a reader, who does not wait for an open transaction that is going to make the file shorter, but for
 * the few stores of one that is just doing it: who shows a shrink tells `gone` before it looks which pages
 * are loaded, as it told `cut` before (pages_within()). 0; -1 with EFAULT; PAGES_AGAIN: in a moment. */
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
    /* Who holds a page that is not loaded loads it at once: that is all a reader waits for, not for
     * what the holder does then. */
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
        /* That of the page, or, while its file gets shorter, of the size. */
        if (pages_await(f, s, i) < 0 || pages_await(f, sizing, i) < 0)
            return NULL;
    }
    return s;
}
