/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/transaction/again.h"

#include "lib/file/clock.h"
#include "lib/file/page.h"
#include "lib/file/thread.h"

#include <immintrin.h>

/* Refusals, one after the other, after which a transaction goes first; and how long it may. */
enum { MANY = 8, FIRST_NS = 10 * 1000 * 1000, FIRST_WAIT_MS = 10 };

/* A pause is shorter than SHORTEST_NS << again_refusals, and than LONGEST_NS. A thread spins in one below SPIN_NS. */
enum { SHORTEST_NS = 1000, LONGEST_NS = 1000 * 1000, SPIN_NS = 20 * 1000 };

__thread unsigned again_refusals __attribute__((tls_model("initial-exec")));

void again_begin(struct tx *t)
{
    const uint64_t most = again_refusals < 10 ? SHORTEST_NS << again_refusals : LONGEST_NS;
    /* Random: the clock counts nanoseconds, so no two threads get the same numbers. */
    const uint64_t now = clock_ns(),
                   ns = ((now ^ thread_id()) * 0x9e3779b97f4a7c15ull >> 32) % most;
    if (ns >= SPIN_NS)
        clock_nap((long)ns);
    while (clock_ns() - now < ns)
        _mm_pause();
    t->first = again_refusals >= MANY ? clock_ns() + FIRST_NS : 0;
    if (t->first && t->wait_ms < FIRST_WAIT_MS)
        t->wait_ms = FIRST_WAIT_MS;
}

void again_let_first(const struct tx *t, struct file *f)
{
    uint64_t *at = &f->shared.header->first, first = __atomic_load_n(at, __ATOMIC_RELAXED);
    if (f->reader || !t->wait_ms)
        return;
    /* Waits until the time of the one that goes first is over; it may be any number (shared.h). One that holds pages goes on: the
     * other one may be waiting for them. */
    for (unsigned i = 0; first && first != t->first && !t->set.n; i++) {
        const uint64_t now = clock_ns();
        if (first <= now || first - now > FIRST_NS)
            break;
        page_pause(i);
        first = __atomic_load_n(at, __ATOMIC_RELAXED);
    }
    if (t->first)
        __atomic_store_n(at, t->first, __ATOMIC_RELAXED);
}

void again_end(const struct tx *t)
{
    again_refusals = t->refused ? again_refusals + 1 : 0;
    for (unsigned i = 0; t->first && i < t->nmappings; i++) {
        const struct file *f = t->mappings[i]->file;
        if (!f->reader && __atomic_load_n(&f->shared.header->first, __ATOMIC_RELAXED) == t->first)
            __atomic_store_n(&f->shared.header->first, 0, __ATOMIC_RELAXED);
    }
}
