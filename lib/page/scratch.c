/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/page/scratch.h"

#include <sys/mman.h>

/* How many pages keep their memory when they are given back. */
enum { KEPT = 4096 };

char *scratch_take(struct file *f)
{
    const uint64_t words = file_scratch_words(__atomic_load_n(&f->viewed, __ATOMIC_ACQUIRE));
    for (uint64_t i = 0;; i = (i + 1) % words) {
        uint64_t used = __atomic_load_n(&f->scratch[i], __ATOMIC_RELAXED), bit;
        while ((bit = ~used & (used + 1)))
            if (__atomic_compare_exchange_n(&f->scratch[i], &used, used | bit, false,
                                            __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
                return f->r + (i * 64 + (unsigned)__builtin_ctzll(bit)) * PAGE_BYTES;
    }
}

void scratch_give(struct file *f, char *page)
{
    const uint64_t n = (uint64_t)(page - f->r) / PAGE_BYTES;
    if (n >= KEPT)
        (void)madvise(page, PAGE_BYTES, MADV_DONTNEED);
    __atomic_fetch_and(&f->scratch[n / 64], ~(1ull << n % 64), __ATOMIC_RELEASE);
}
