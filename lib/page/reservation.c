/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/page/reservation.h"

#include "lib/file/clock.h"
#include "lib/file/page.h"
#include "lib/page/waits.h"
#include "lib/recovery/peers.h"
#include "reflection/media/report.h"

#include <errno.h>
#include <immintrin.h>

/* Frees the page if its holder has not changed during the sleep and is dead. */
static int look_after(struct file *f, const struct page_state *s, uint32_t holder)
{
    if (!holder || holder != __atomic_load_n(&s->holder, __ATOMIC_RELAXED))
        return 0;
    return peers_recover(f, holder);
}

/* Waits for a page that did not become free within PAGE_SPINS. Checks for a deadlock after each sleep: another
 * transaction may have reserved the page and be waiting for this thread. */
static int wait_long(struct file *f, struct page_state *s, const struct patience *patience)
{
    struct waiter self;
    int r = waits_begin(&self, f, s, patience);
    while (r == 0) {
        const uint32_t holder = __atomic_load_n(&s->holder, __ATOMIC_RELAXED);
        if (patience->deadline && clock_ns() >= patience->deadline) {
            r = report_error(
                ETIMEDOUT, "a part of %s stayed reserved for the whole wait_ms of the transaction",
                f->pairing.path);
        } else {
            page_sleep(s);
            r = look_after(f, s, holder);
        }
        seam_point(SEAM_WAIT, s);
        if (!__atomic_load_n(&s->holder, __ATOMIC_RELAXED) && page_try_reserve(f, s)) {
            r = 0;
            break;
        }
        if (r == 0 && page_is_not_for(f, s, patience))
            r = RESERVATION_OF_TX;
        if (r == 0)
            r = waits_check(&self);
    }
    waits_end(&self);
    return r;
}

int reservation_wait(struct file *f, struct page_state *s, const struct patience *patience)
{
    for (unsigned i = 0; i < PAGE_SPINS; i++) {
        seam_point(SEAM_WAIT, s);
        if (!__atomic_load_n(&s->holder, __ATOMIC_RELAXED) && page_try_reserve(f, s))
            return 0;
        if (page_is_not_for(f, s, patience))
            return RESERVATION_OF_TX;
        _mm_pause();
    }
    return wait_long(f, s, patience);
}

/* Iterations that take a millisecond or more. */
enum { ROUNDS = 1024 };

int reservation_await(struct file *f, const struct page_state *s, unsigned i)
{
    page_pause(i);
    if (i % ROUNDS != ROUNDS - 1)
        return 0;
    const uint32_t holder = __atomic_load_n(&s->holder, __ATOMIC_RELAXED);
    return holder ? peers_recover(f, holder) : 0;
}

int reservation_beyond(struct file *f, uint64_t end)
{
    uint64_t size = file_size(f);
    if (end <= size)
        return RESERVATION_AGAIN;
    return report_error(EFAULT,
                        "the call goes up to byte %llu of %s, which is only %llu bytes long now",
                        (unsigned long long)end, f->pairing.path, (unsigned long long)size);
}

void reservation_end_shrink(struct file *f)
{
    struct shared_header *h = f->shared.header;
    if (h->cut != UINT64_MAX)
        __atomic_store_n(&h->cut, UINT64_MAX, __ATOMIC_RELEASE);
    if (h->gone != UINT64_MAX)
        __atomic_store_n(&h->gone, UINT64_MAX, __ATOMIC_RELEASE);
}

int reservation_wait_for_size(struct file *f, const struct patience *patience)
{
    struct page_state *s = &f->shared.header->sizing;
    int r = reservation_take(f, s, patience);
    if (r == 0) {
        reservation_end_shrink(f);
        page_release(s);
    }
    return r;
}
