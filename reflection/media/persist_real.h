/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The real stores, flushes and fences. Included by persist.h, after its types, in builds without the seam, to be inlined; and
 * by persist.c for the table that tests wrap.
 */
#ifndef ATO_REFLECTION_MEDIA_PERSIST_REAL_H
#define ATO_REFLECTION_MEDIA_PERSIST_REAL_H

#include <stdbool.h>
#include <string.h>
#include <xmmintrin.h>

int persist_msync(const void *addr, size_t n);
int persist_msync_anew(const void *addr, size_t n);

/* By the best instruction that the CPU has. */
void persist_flush_lines(const struct persist *p, const void *addr, size_t n);

/* Returns true if data goes by non-temporal stores, since it has to leave the caches anyway. */
static inline bool persist_streams(const struct persist *p)
{
    return p->domain == PERSIST_PMEM || p->domain == PERSIST_EADR;
}

static inline void persist_real_scatter(const struct persist *p, char *o, char *r, const char *src,
                                        uint64_t bitmap, uint64_t mask, bool cold)
{
    if (persist_streams(p) || (cold && p->domain == PERSIST_PROCESS))
        p->kernel->scatter_nt(o, r, src, bitmap, mask);
    else
        p->kernel->scatter(o, r, src, bitmap, mask);
}

static inline void persist_real_copy(const struct persist *p, void *dst, const void *src, size_t n)
{
    if (persist_streams(p)) {
        long long *d = dst;
        for (size_t i = 0; i < n / 8; i++) {
            long long v;
            memcpy(&v, (const char *)src + i * 8, 8);
            __builtin_ia32_movnti64(d + i, v);
        }
    } else {
        memcpy(dst, src, n);
    }
}

static inline void persist_real_store_word(const struct persist *p, uint64_t *word, uint64_t value)
{
    (void)p;
    __atomic_store_n(word, value, __ATOMIC_RELEASE);
}

static inline void persist_real_store_pair(const struct persist *p, uint64_t *pair,
                                           const uint64_t values[2])
{
    (void)p;
    uint64_t low = pair[0], high = pair[1];
    __asm__ volatile("1: lock cmpxchg16b %0\n\t"
                     "jne 1b"
                     : "+m"(*(unsigned __int128 *)pair), "+a"(low), "+d"(high)
                     : "b"(values[0]), "c"(values[1])
                     : "cc", "memory");
}

int persist_real_flip_rtm(const struct persist *p, const struct persist_flip *flips, size_t n);

static inline int persist_real_flush_data(const struct persist *p, const void *addr, size_t n)
{
    return p->domain == PERSIST_MSYNC ? persist_msync(addr, n) : 0;
}

static inline int persist_real_flush_any(const struct persist *p, const void *addr, size_t n)
{
    if (p->clwb && n == sizeof(uint64_t)) /* a word, which lies in one line */
        __asm__ volatile("clwb %0" : : "m"(*(const uint64_t *)addr) : "memory");
    else if (p->domain == PERSIST_PMEM)
        persist_flush_lines(p, addr, n);
    else if (p->domain == PERSIST_MSYNC)
        return persist_msync_anew(addr, n);
    return 0;
}

void persist_real_fence_threads(const struct persist *p);

static inline void persist_real_fence(const struct persist *p)
{
    (void)p;
    /* Also where there is no flush but CLFLUSH, which needs none: for non-temporal stores. */
    _mm_sfence();
}

#endif
