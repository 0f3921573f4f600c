/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/page/reservation.h"

#include "lib/file/clock.h"
#include "lib/file/page.h"
#include "lib/file/place.h"
#include "lib/file/space.h"
#include "lib/file/thread.h"
#include "lib/file/views.h"
#include "lib/page/handle.h"
#include "lib/recovery/takeover.h"
#include "reflection/media/report.h"

#include <errno.h>
#include <immintrin.h>

uint64_t reservation_plain_ms = RESERVATION_PATIENCE_MS;

int reservation_look_after(struct file *f, const struct page_state *s, uint32_t holder)
{
    if (!holder || holder != __atomic_load_n(&s->holder, __ATOMIC_RELAXED))
        return 0;
    return takeover(f, holder);
}

/* Only a transaction keeps pages from one call to the next. So a thread that waits for a page of a transaction of its own
 * would wait in vain. An open epoch belongs to every thread of the process. */
static int check_own(const struct file *f, const struct page_state *s,
                     const struct patience *patience)
{
    if (__atomic_load_n(&s->holder, __ATOMIC_RELAXED) != f->holder)
        return 0;
    const uint64_t tx = __atomic_load_n(&s->tx, __ATOMIC_RELAXED), thread = handle_thread_of(tx);
    /* The epoch for which the caller writes may just have got the page by another write: that is no wait for itself. */
    if (page_is_for_epoch(tx, patience))
        return 0;
    if (thread != thread_id() && thread != TX_ALL_THREADS)
        return 0;
    return report_error(
        EDEADLK,
        "deadlock: a part of %s belongs to another transaction of this thread, or to an "
        "epoch of this process, and does not become free while this call waits",
        f->pairing.path);
}

/* A holder that keeps the page for longer than PAGE_SPINS may be dead: that is found out after each sleep, and so once more
 * before the wait is given up. */
enum reservation reservation_wait(struct file *f, struct page_state *s,
                                  const struct patience *patience)
{
    uint64_t until = 0;
    for (unsigned i = 0;; i++) {
        seam_point(SEAM_WAIT, s);
        if (!__atomic_load_n(&s->holder, __ATOMIC_RELAXED) && page_try_reserve(f, s))
            return RESERVATION_MINE;
        if (page_is_not_for(f, s, patience))
            return RESERVATION_OF_TX;
        if (i < PAGE_SPINS) {
            _mm_pause();
            continue;
        }
        if (file_check(f) < 0)
            return RESERVATION_FAILED;
        const uint64_t now = clock_ns();
        if (!until)
            until = now + (patience->tx_ns ? patience->tx_ns : reservation_patience_ms() * 1000000);
        if (now >= until)
            return patience->tx_ns
                       ? report_error(EAGAIN,
                                      "a part of %s stayed with others for the wait_ms of this "
                                      "transaction: it has no effect; abort it, and run it again",
                                      f->pairing.path)
                       : report_error(ETIMEDOUT,
                                      "a part of %s stayed with a transaction that is open, or "
                                      "with a process that is stopped, for %llu ms (ATO_WAIT_MS)",
                                      f->pairing.path,
                                      (unsigned long long)reservation_patience_ms());
        const uint32_t holder = __atomic_load_n(&s->holder, __ATOMIC_RELAXED);
        if (check_own(f, s, patience) < 0)
            return RESERVATION_FAILED;
        page_sleep(s, until - now);
        if (reservation_look_after(f, s, holder) < 0)
            return RESERVATION_FAILED;
    }
}

/* Iterations that take a millisecond or more. */
enum { ROUNDS = 1024 };

int reservation_await(struct file *f, const struct page_state *s, unsigned i)
{
    page_pause(i);
    if (i % ROUNDS != ROUNDS - 1)
        return 0;
    if (file_check(f) < 0)
        return -1;
    return reservation_look_after(f, s, __atomic_load_n(&s->holder, __ATOMIC_RELAXED));
}

enum reservation reservation_beyond(struct file *f, uint64_t end)
{
    uint64_t size = file_size(f);
    if (file_check(f) < 0)
        return RESERVATION_FAILED;
    if (end <= size || (end <= file_end(f) && f->o && views_follow(f)))
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

/* ---- first touch, modelled in read.pml ---- */

int load_page_slow(struct file *f, uint64_t page, struct page_state *s)
{
    uint64_t word = 0, *at;
    int flags = space_look(f, page);
    if (flags < 0 || place_load(f, page, s, &at) < 0)
        return -1;
    if (at) {
        word = __atomic_load_n(at, __ATOMIC_RELAXED);
        if (word && space_look_r(f, page, s) < 0)
            return -1;
        if (!f->shared.header->settled && page_flush_word(f, at) < 0) /* R4 */
            return -1;
    }
    if (f->logged && flags)
        flags |= PAGE_R_ALLOCATED; /* its other home is memory */
    s->bitmap = word;
    /* Atomic: sleepers read the whole word. */
    __atomic_store_n(&s->flags, s->flags | (uint8_t)flags, __ATOMIC_RELAXED);
    /* Release: a reader that sees a version sees the bitmap. */
    __atomic_store_n(&s->version, 1, __ATOMIC_RELEASE);
    return 0;
}

struct page_state *load_look(struct file *f, uint64_t page)
{
    struct page_state *s = shared_state(&f->shared, page);
    const uint64_t end = page * PAGE_BYTES + 1;
    if (!s)
        return NULL;
    /* A thread that holds a page that is not loaded loads it at once. A reader waits only for that, not for what
     * the holder does afterwards. */
    for (unsigned i = 0; !__atomic_load_n(&s->version, __ATOMIC_ACQUIRE); i++) {
        if (page_try_reserve(f, s)) {
            int r = reservation_reaches(f, end);
            if (r == 0)
                r = load_page(f, page, s);
            page_release(s);
            if (r <= 0)
                return r == 0 ? s : NULL;
        }
        seam_point(SEAM_WAIT, s);
        if (reservation_await(f, s, i) < 0)
            return NULL;
    }
    return s;
}
