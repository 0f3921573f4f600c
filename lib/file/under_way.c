/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/file/under_way.h"

#include "lib/file/page.h"

int under_way_wait(struct file *f, unsigned slot, size_t counter,
                   int (*look_after)(struct file *f, uint32_t holder, uint64_t until),
                   uint64_t until)
{
    const struct shared *shared = &f->shared;
    const uint32_t holder = shared_given_to(shared, slot);
    const unsigned threads = holder ? under_way_threads(shared, slot) : 0;
    for (unsigned thread = 0; thread < threads; thread++) {
        const char *of = (const char *)shared_thread_of(shared, slot, thread);
        const uint64_t *at = (const uint64_t *)(of + counter);
        const uint64_t noted = __atomic_load_n(at, __ATOMIC_ACQUIRE);
        uint64_t now = noted;
        /* It is over when the thread has ended one. Threads without a number of their own cannot be told apart: for these, only if
         * none is under way. */
        for (unsigned i = 0;
             (now & UNDER_WAY_NOW) && shared_given_to(shared, slot) == holder &&
             (thread == THREAD_SHARED || now / UNDER_WAY_OVER == noted / UNDER_WAY_OVER);
             i++) {
            seam_point(SEAM_WAIT, f);
            if (i % 16 == 0 && look_after(f, holder, until) < 0)
                return -1;
            page_pause(i);
            now = __atomic_load_n(at, __ATOMIC_ACQUIRE);
        }
    }
    return 0;
}

int under_way_wait_all(struct file *f, size_t counter,
                       int (*look_after)(struct file *f, uint32_t holder, uint64_t until),
                       uint64_t until)
{
    const unsigned slots = under_way_slots(&f->shared);
    for (unsigned slot = 0; slot < slots; slot++)
        if (under_way_wait(f, slot, counter, look_after, until) < 0)
            return -1;
    return 0;
}
