/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The only home of stores, flushes and fences that reach the media.
 *
 * What a call promises, in each durability domain:
 *
 *                      pmem            eadr            msync           process
 *   line, home, copy   durable after   durable after   visible         visible
 *                      the next fence  the next fence
 *   scatter            the same        the same        visible         visible after
 *                                                                      the next fence
 *   flush_data         -               -               durable         -
 *   store_word         visible, and ordered behind everything this thread stored before a fence
 *   flush_word         durable after   -               durable         -
 *                      the next fence
 *   fence              orders and drains all of the above, of the calling thread
 *
 *   - : nothing to do, the call costs a predictable branch.
 *
 * So one sequence is right in all four domains:
 *   store data, flush_data, fence, store_word, flush_word, fence.
 * In `eadr` data goes by non-temporal stores, which are ordered with nothing: the first fence must
 * stand there too, or another thread (or a power cut) could see the word without its bytes. In
 * `process` scatter does so with lines that are thought to be out of the caches: an ordinary store
 * would fetch them first. All else there, and in `msync`, goes by ordinary stores, which x86 keeps in
 * order.
 *
 * flush_* can fail (msync says EIO): -1 with errno, and what was to be durable may or may not be.
 *
 * Tests build the library with ATO_SEAM: every call then goes through `persist_ops`, whose default
 * entry is the real thing, and carries the place it was made from.
 */
#ifndef ATO_REFLECTION_PERSIST_H
#define ATO_REFLECTION_PERSIST_H

#include "copy.h"
#include "layout.h"
#include "seam.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The numbers are on the media (manifest) and in the public header: never renumber. */
enum persist_domain {
    PERSIST_AUTO = 0,
    PERSIST_PMEM = 1,
    PERSIST_EADR = 2,
    PERSIST_MSYNC = 3,
    PERSIST_PROCESS = 4,
};

struct persist {
    enum persist_domain domain;
    const struct copy_kernel *kernel;
};

/* A word and what it shall become. */
struct persist_flip {
    uint64_t *word;
    uint64_t value;
};

void persist_init(struct persist *p, enum persist_domain domain);

/* May hardware transactions flip words here (design: what is visible must be durable), and do they
 * work on this CPU: CPUID says so and a trial transaction commits. The answer is kept. */
bool persist_rtm_allowed(const struct persist *p);
bool persist_rtm_works(void);

/* Most flips that are worth trying in one hardware transaction. */
#define PERSIST_RTM_MAX 1024

/* ---- the table ---- */

struct persist_ops {
    void (*scatter)(const struct persist *p, char *o, char *r, const char *src, uint64_t bitmap,
                    uint64_t mask, bool cold, const char *site);
    void (*line)(const struct persist *p, char *dst, const char *src, const char *site);
    void (*home)(const struct persist *p, char *o, const char *r, uint64_t mask, const char *site);
    void (*copy)(const struct persist *p, void *dst, const void *src, size_t n, const char *site);
    void (*store_word)(const struct persist *p, uint64_t *word, uint64_t value, const char *site);
    int (*flip_rtm)(const struct persist *p, const struct persist_flip *flips, size_t n,
                    const char *site);
    int (*flush_data)(const struct persist *p, const void *addr, size_t n, const char *site);
    int (*flush_word)(const struct persist *p, const uint64_t *word, const char *site);
    int (*flush_any)(const struct persist *p, const void *addr, size_t n, const char *site);
    void (*fence)(const struct persist *p, const char *site);
    void (*fence_threads)(const struct persist *p, const char *site);
};

extern const struct persist_ops persist_real;

#ifdef ATO_SEAM
extern const struct persist_ops *persist_ops; /* tests put their own table here */
#define PERSIST_CALL(op) persist_ops->op
#else
#include "persist_real.h"
#define PERSIST_CALL(op) persist_real_##op
#endif

/* ---- data: 64-byte lines to homes that are invalid (I2) ---- */

/* copy_kernel.scatter. `cold`: the lines stored to are thought to be out of the CPU's caches. */
#define persist_scatter(p, o, r, src, bitmap, mask, cold)                                          \
    PERSIST_CALL(scatter)(p, o, r, src, bitmap, mask, cold, SEAM_SITE("scatter"))

/* One whole slice; dst is 64-byte aligned. */
#define persist_line(p, dst, src) PERSIST_CALL(line)(p, dst, src, SEAM_SITE("line"))

/* Slices of `mask` from R to O. */
#define persist_home(p, o, r, mask) PERSIST_CALL(home)(p, o, r, mask, SEAM_SITE("home"))

/* Anything else: journal lanes, manifests. dst and n are multiples of 8. */
#define persist_copy(p, dst, src, n) PERSIST_CALL(copy)(p, dst, src, n, SEAM_SITE("copy"))

/* Where scatter, line, home and copy stored: once for a range, before the fence. */
#define persist_flush_data(p, addr, n) PERSIST_CALL(flush_data)(p, addr, n, SEAM_SITE("flush_data"))

/* ---- words: what makes data count ---- */

/* One 8-byte atomic store. */
#define persist_store_word(p, word, value)                                                         \
    PERSIST_CALL(store_word)(p, word, value, SEAM_SITE("store_word"))

/* All words at once in a hardware transaction: 1 done, 0 aborted and nothing changed. The words
 * are write-touched first, since a page fault would abort every try. */
#define persist_flip_rtm(p, flips, n) PERSIST_CALL(flip_rtm)(p, flips, n, SEAM_SITE("flip_rtm"))

/* Words of one 4096-byte page of the reflection may share one call in `msync`: what is flushed
 * there is the page. */
#define persist_flush_word(p, word) PERSIST_CALL(flush_word)(p, word, SEAM_SITE("flush_word"))

/* Does one flush_word serve both words? Those of a line; in `msync`, of such a page. */
static inline bool persist_shares_flush(const struct persist *p, const uint64_t *a,
                                        const uint64_t *b)
{
    const size_t unit = p->domain == PERSIST_MSYNC ? PAGE_BYTES : SLICE_BYTES;
    return ((uintptr_t)a ^ (uintptr_t)b) < unit;
}

/* Lines that another process stored, by whatever kind of store: visible is not durable when the
 * storer was killed between its store and its fence, or when its msync failed. Nobody else may
 * store to the pages: in `msync` they are made dirty anew, by storing what is there. */
#define persist_flush_any(p, addr, n) PERSIST_CALL(flush_any)(p, addr, n, SEAM_SITE("flush_any"))

#define persist_fence(p) PERSIST_CALL(fence)(p, SEAM_SITE("fence"))

/* A fence of every thread of the process, wherever it is: for what one thread stored and another one is
 * going to make count. Dear. Only after persist_can_fence_threads(). */
#define persist_fence_threads(p) PERSIST_CALL(fence_threads)(p, SEAM_SITE("fence_threads"))

/* Asks for it once, before there are threads that matter; false: the kernel has no such thing. */
bool persist_can_fence_threads(void);

#endif
