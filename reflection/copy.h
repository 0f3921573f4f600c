/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The copy kernels: move the slices of one page between a plain buffer and the two homes that a
 * bitmap names, deciding the home slice by slice at the speed of a straight copy.
 *
 * Random writes fragment a bitmap until neighbouring slices lie in different homes. Cutting a page
 * into runs and copying each run with a library call costs more than the copy, so a kernel selects
 * an address for each slice without a branch and moves 64 bytes at once.
 *
 * Only persist.c and readers of the media call these; kernels that store to the media are reached
 * through persist.h alone. All pointers to pages are 4096-byte aligned; plain buffers need not be.
 * A kernel orders nothing: fences are the caller's.
 */
#ifndef ATO_REFLECTION_COPY_H
#define ATO_REFLECTION_COPY_H

#include "bitmap.h"

#include <stddef.h>
#include <stdint.h>

struct copy_kernel {
    const char *name;

    /* Does this CPU have what the kernel needs? Asked at run time, so that one binary serves all
     * machines, and runs under Valgrind. */
    int (*usable)(void);

    /* Slices of `mask`, found in `src` at the same offsets as in the page, go to the homes that
     * `bitmap` calls invalid: to R where the bit is 0, to O where it is 1. `src` points at where
     * byte 0 of the page would be; only bytes of slices in `mask` are read. _nt: by non-temporal
     * stores, one full line each; else by ordinary ones. */
    void (*scatter)(char *o, char *r, const char *src, uint64_t bitmap, uint64_t mask);
    void (*scatter_nt)(char *o, char *r, const char *src, uint64_t bitmap, uint64_t mask);

    /* n bytes, as memcpy() does it, but by whole vectors of this kernel. */
    void (*plain)(char *dst, const char *src, size_t n);

    /* Slices of `mask` from their valid homes to `dst`, which points at where byte 0 of the page
     * would be; only bytes of slices in `mask` are written. */
    void (*gather)(char *dst, const char *o, const char *r, uint64_t bitmap, uint64_t mask);

    /* Those slices of `mask` whose valid bytes differ from the ones in `src`. */
    uint64_t (*differing)(const char *o, const char *r, const char *src, uint64_t bitmap,
                          uint64_t mask);
};

extern const struct copy_kernel copy_sse2, copy_avx2, copy_avx512;

/* All kernels, best first, NULL at the end. */
extern const struct copy_kernel *const copy_kernels[];

/* The best one this CPU can run. */
const struct copy_kernel *copy_best(void);

/* copy_gather_range() where slices are asked for in part and lie in both homes. */
void copy_gather_parts(const struct copy_kernel *k, char *dst, const char *o, const char *r,
                       uint64_t bitmap, unsigned begin, unsigned n);

/*
 * Bytes [begin, begin + n) of a page, from their valid homes, to dst (where byte `begin` goes).
 * Slices that are read in part are read in part only.
 */
static inline void copy_gather_range(const struct copy_kernel *k, char *dst, const char *o,
                                     const char *r, uint64_t bitmap, unsigned begin, unsigned n)
{
    uint64_t touched = bitmap_touched(begin, n);
    if (!(bitmap & touched)) /* all of it lies in O: the common case, and a plain copy */
        k->plain(dst, o + begin, n);
    else if (!(~bitmap & touched))
        k->plain(dst, r + begin, n);
    else if ((begin | n) % 64 == 0)
        k->gather(dst - begin, o, r, bitmap, touched);
    else
        copy_gather_parts(k, dst, o, r, bitmap, begin, n);
}

#endif
