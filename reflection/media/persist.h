/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The only place with stores, flushes and fences that reach the media.
 *
 * What a call promises, in each durability domain:
 *
 *                      pmem            eadr            disk            process
 *   line, home, copy   durable after   durable after   visible         visible
 *                      the next fence  the next fence
 *   scatter            the same        the same        visible         visible after
 *                                                                      the next fence
 *   flush_data         -               -               durable         -
 *   store_word, _pair  visible, and ordered after all that this thread stored before a fence
 *   flush_word         durable after   -               durable         -
 *                      the next fence
 *   fence              orders and drains all of the above, of the calling thread
 *
 *   - : nothing to do, the call costs a predictable branch.
 *
 * So one sequence is right in all four domains:
 *   store data, flush_data, fence, store_word, flush_word, fence.
 * In `eadr` data goes by non-temporal stores, which are not ordered with other stores. So the first fence is
 * needed there too: without it another thread (or a power cut) could see the word without its bytes. In
 * `process` scatter uses non-temporal stores for lines that are probably not in the caches: an ordinary store
 * would fetch them first. All other stores there, and all in `disk`, are ordinary ones, which x86 keeps in
 * order.
 *
 * flush_* return -1 with errno on failure (disk: EIO). The data may be durable or not, then.
 *
 * Tests build the library with ATO_SEAM: every call then goes through `persist_ops`, by default the real
 * functions, and carries the place of the call.
 */
#ifndef ATO_REFLECTION_MEDIA_PERSIST_H
#define ATO_REFLECTION_MEDIA_PERSIST_H

#include "reflection/media/copy.h"
#include "reflection/media/seam.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* The numbers are on the media (manifest) and in the public header: never renumber. */
enum persist_domain {
    PERSIST_AUTO = 0,
    PERSIST_PMEM = 1,
    PERSIST_EADR = 2,
    PERSIST_DISK = 3,
    PERSIST_PROCESS = 4,
};

struct persist {
    enum persist_domain domain;
    bool clwb, clflushopt; /* in domain pmem: the CPU has it */
    const struct copy_kernel *kernel;
};

/* A word and its new value. */
struct persist_flip {
    uint64_t *word;
    uint64_t value;
};

void persist_init(struct persist *p, enum persist_domain domain);

/* persist_rtm_allowed(): may hardware transactions flip words in this domain (what is visible must be
 * durable), and do they work? persist_rtm_works(): CPUID has RTM and a trial transaction commits. The answer
 * is kept. */
bool persist_rtm_allowed(const struct persist *p);
bool persist_rtm_works(void);

/* The most flips worth trying in one hardware transaction. */
#define PERSIST_RTM_MAX 1024

/* ---- the table ---- */

struct persist_ops {
    void (*scatter)(const struct persist *p, char *o, char *r, const char *src, uint64_t bitmap,
                    uint64_t mask, bool cold);
    void (*copy)(const struct persist *p, void *dst, const void *src, size_t n);
    void (*store_word)(const struct persist *p, uint64_t *word, uint64_t value);
    void (*store_pair)(const struct persist *p, uint64_t *pair, const uint64_t values[2]);
    int (*flip_rtm)(const struct persist *p, const struct persist_flip *flips, size_t n);
    int (*flush_data)(const struct persist *p, const void *addr, size_t n);
    int (*flush_any)(const struct persist *p, const void *addr, size_t n);
    void (*fence)(const struct persist *p);
    void (*fence_threads)(const struct persist *p);
};

extern const struct persist_ops persist_real;

#ifdef ATO_SEAM
extern const struct persist_ops *persist_ops; /* tests store their own table here */
#define PERSIST_CALL(op) persist_ops->op
#else
#define PERSIST_CALL(op) persist_real_##op
#endif

/* ---- the real functions: inlined in builds without the seam ---- */

/* msync() of whole pages. `anew`: after making them dirty. */
int persist_msync(const void *addr, size_t n, bool anew);

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
        long long *d = (long long *)dst;
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
    return p->domain == PERSIST_DISK ? persist_msync(addr, n, false) : 0;
}

static inline int persist_real_flush_any(const struct persist *p, const void *addr, size_t n)
{
    if (p->clwb && n == sizeof(uint64_t)) /* a word, which lies in one line */
        __asm__ volatile("clwb %0" : : "m"(*(const uint64_t *)addr) : "memory");
    else if (p->domain == PERSIST_PMEM)
        persist_flush_lines(p, addr, n);
    else if (p->domain == PERSIST_DISK)
        return persist_msync(addr, n, true);
    return 0;
}

void persist_real_fence_threads(const struct persist *p);

static inline void persist_real_fence(const struct persist *p)
{
    (void)p;
    /* Also where there is no flush but CLFLUSH, which needs none: for non-temporal stores. */
    __builtin_ia32_sfence();
}

/* ---- data: 64-byte lines to invalid homes (I2) ---- */

/* Bytes of a page from which on it pays to store past the caches, if they do not have the lines. */
enum { PERSIST_COLD_BYTES = 1024 };

/* copy_kernel.scatter. `cold`: the target lines are probably not in the CPU's caches. */
#define persist_scatter(p, o, r, src, bitmap, mask, cold)                                          \
    SEAM_AT("scatter", PERSIST_CALL(scatter)(p, o, r, src, bitmap, mask, cold))

/* Stores one whole slice; dst is 64-byte aligned. To scatter() it is slice 0 of a page, valid in O, so that it goes to "R". */
#define persist_line(p, dst, src) persist_scatter(p, dst, dst, src, 0, 1, false)

/* Copies the slices of `mask` from R to O: with all bits 1, O is the invalid home of each slice, and nothing is stored to R. */
#define persist_home(p, o, r, mask, cold) persist_scatter(p, o, o, r, ~0ull, mask, cold)

/* Stores anything else: lanes, manifests. dst and n are multiples of 8. */
#define persist_copy(p, dst, src, n) SEAM_AT("copy", PERSIST_CALL(copy)(p, dst, src, n))

/* Flushes what scatter, line, home and copy stored: once for a range, before the fence. */
#define persist_flush_data(p, addr, n) SEAM_AT("flush_data", PERSIST_CALL(flush_data)(p, addr, n))

/* ---- words: they make data valid ---- */

/* One 8-byte atomic store. */
#define persist_store_word(p, word, value)                                                         \
    SEAM_AT("store_word", PERSIST_CALL(store_word)(p, word, value))

/* Stores two words, of which the first is 16-byte aligned. Other processes see both or none, and so does a kill; a power cut may
 * leave one. */
#define persist_store_pair(p, pair, values)                                                        \
    SEAM_AT("store_pair", PERSIST_CALL(store_pair)(p, pair, values))

/* Flips all words at once in a hardware transaction. Returns 1; 0 if it aborted and nothing changed. The
 * words are write-touched first, since a page fault would abort every try. */
#define persist_flip_rtm(p, flips, n) SEAM_AT("flip_rtm", PERSIST_CALL(flip_rtm)(p, flips, n))

/* In `disk` one call flushes all words of one 4096-byte page of the reflection. */
#define persist_flush_word(p, word) persist_flush_any(p, word, sizeof(uint64_t))

/* Returns true if one flush_word serves both words: they are of one line. */
static inline bool persist_shares_flush(const uint64_t *a, const uint64_t *b)
{
    return ((uintptr_t)a ^ (uintptr_t)b) < SLICE_BYTES;
}

/* Flushes lines that another process stored, by any kind of store: they are visible and not durable if that
 * process was killed between store and fence, or its msync failed. In `disk` the pages are made dirty anew
 * by storing what they hold, atomically. */
#define persist_flush_any(p, addr, n) SEAM_AT("flush_any", PERSIST_CALL(flush_any)(p, addr, n))

#define persist_fence(p) SEAM_AT("fence", PERSIST_CALL(fence)(p))

/* A fence in every thread of the process: for data that one thread stored and another one commits. Expensive.
 * Only where persist_barrier() returns true. */
#define persist_fence_threads(p) SEAM_AT("fence_threads", PERSIST_CALL(fence_threads)(p))

/* Makes every thread of each process with libato execute a full barrier. Returns false if the kernel cannot do that. */
bool persist_barrier(void);

#endif
