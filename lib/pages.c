/* SPDX-License-Identifier: BSD-3-Clause */
#include "pages.h"

#include "../reflection/report.h"
#include "space.h"

#include <immintrin.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Most reservations last as long as the copy of a page or two: spin that long, then sleep. */
enum { SPINS = 200, LOOK_AFTER_NS = 10 * 1000 * 1000 };

static void sleep_on(uint32_t *word, uint32_t value)
{
    /* Shared between processes, hence no FUTEX_PRIVATE_FLAG. The time limit is what lets a waiter
     * notice that a holder died. */
    struct timespec limit = {.tv_nsec = LOOK_AFTER_NS};
    syscall(SYS_futex, word, FUTEX_WAIT, value, &limit, NULL, 0);
}

void pages_wait(struct file *f, struct page_state *s)
{
    for (int i = 0; i < SPINS; i++) {
        seam_point(SEAM_WAIT, s);
        if (!__atomic_load_n(&s->holder, __ATOMIC_RELAXED) && pages_try_reserve(f, s))
            return;
        _mm_pause();
    }
    uint32_t seen = __atomic_load_n(&s->holder, __ATOMIC_RELAXED);
    for (;;) {
        seam_point(SEAM_WAIT, s);
        if (!seen) {
            /* Reserved with the mark on: whoever else sleeps must be woken by our release, and we
             * cannot tell whether there is anyone. */
            if (__atomic_compare_exchange_n(&s->holder, &seen, f->holder | PAGE_WAITERS, false,
                                            __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) {
                __atomic_store_n(&s->owner, (uint16_t)thread_number(), __ATOMIC_RELAXED);
                seam_point(SEAM_RESERVED, s);
                return;
            }
            continue;
        }
        if (!(seen & PAGE_WAITERS) &&
            !__atomic_compare_exchange_n(&s->holder, &seen, seen | PAGE_WAITERS, false,
                                         __ATOMIC_RELAXED, __ATOMIC_RELAXED))
            continue;
        sleep_on(&s->holder, seen | PAGE_WAITERS);
        seen = __atomic_load_n(&s->holder, __ATOMIC_RELAXED);
    }
}

void pages_wake(struct page_state *s)
{
    syscall(SYS_futex, &s->holder, FUTEX_WAKE, 1, NULL, NULL, 0);
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
        /* persist-order R4 (writer: W2 in flip.c): after a kill the word may be visible and not
         * durable. Made durable before anything is built on it. I1, I5. */
        if (!f->settled) {
            if (persist_flush_any(&f->persist, at, 8) < 0)
                return report_errno(errno, "cannot make a bitmap of %s durable", f->pairing.path);
            persist_fence(&f->persist);
        }
    }
    s->bitmap = word;
    s->pending = 0;
    s->reads = 0;
    /* Release: a reader that sees PAGE_LOADED sees the bitmap. */
    __atomic_store_n(&s->flags, s->flags | flags | PAGE_LOADED, __ATOMIC_RELEASE);
    return 0;
}

struct page_state *pages_look(struct file *f, uint64_t page)
{
    struct page_state *s = shared_state(&f->shared, page);
    if (!s)
        return NULL;
    if (__builtin_expect(__atomic_load_n(&s->flags, __ATOMIC_ACQUIRE) & PAGE_LOADED, 1))
        return s;
    pages_reserve(f, s);
    int r = pages_load(f, page, s);
    pages_release(s);
    return r < 0 ? NULL : s;
}
