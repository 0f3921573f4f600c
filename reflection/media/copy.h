/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The copy kernels: they copy slices of one page between a plain buffer and the two homes that a bitmap
 * selects, slice by slice, at the speed of a straight copy.
 *
 * Random writes fragment a bitmap until neighbouring slices lie in different homes. Cutting a page into runs
 * and copying each by a library call would cost more than the copy. So a kernel selects the address of each
 * slice without a branch and moves 64 bytes at once.
 *
 * Kernels that store to the media are called through persist.h alone; readers call the others directly. All
 * pointers to pages are 4096-byte aligned; plain buffers need not be. A kernel orders nothing: the caller
 * issues the fences.
 */
#ifndef ATO_REFLECTION_MEDIA_COPY_H
#define ATO_REFLECTION_MEDIA_COPY_H

#include "reflection/media/bitmap.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct copy_kernel {
    const char *name;

    /* Returns nonzero if this CPU can run the kernel. Decided at run time, so that one binary runs on all
     * machines, and under Valgrind. */
    int (*usable)(void);

    /* Copies the slices of `mask` to their invalid homes: to R where the bit in `bitmap` is 0, to O where it
     * is 1. `src` points at where byte 0 of the page would be; only bytes of slices in `mask` are read. _nt:
     * by non-temporal stores of one full line each; else by ordinary stores. */
    void (*scatter)(char *o, char *r, const char *src, uint64_t bitmap, uint64_t mask);
    void (*scatter_nt)(char *o, char *r, const char *src, uint64_t bitmap, uint64_t mask);

    /* As memcpy(), in whole vectors of this kernel. */
    void (*plain)(char *dst, const char *src, size_t n);

    /* Copies the slices of `mask` from their valid homes to `dst`, which points at where byte 0 of the page
     * would be; only bytes of slices in `mask` are written. */
    void (*gather)(char *dst, const char *o, const char *r, uint64_t bitmap, uint64_t mask);

    /* Returns the slices of `mask` with valid bytes that differ from those in `src`. */
    uint64_t (*differing)(const char *o, const char *r, const char *src, uint64_t bitmap,
                          uint64_t mask);
};

extern const struct copy_kernel copy_sse2, copy_avx2, copy_avx512;

/* All kernels, best first, NULL at the end. */
extern const struct copy_kernel *const copy_kernels[];

/* Returns the best kernel that this CPU can run. */
const struct copy_kernel *copy_best(void);

/* Copies n bytes, from 1 to SLICE_BYTES, without a call: in two or four parts, which may overlap. */
static inline __attribute__((always_inline)) void copy_few(char *dst, const char *src, size_t n)
{
    if (__builtin_expect(n >= 16, 1)) {
        memcpy(dst, src, 16);
        if (__builtin_expect(n > 32, 1)) {
            memcpy(dst + 16, src + 16, 16);
            memcpy(dst + n - 32, src + n - 32, 16);
        }
        memcpy(dst + n - 16, src + n - 16, 16);
    } else if (n >= 8) {
        memcpy(dst, src, 8);
        memcpy(dst + n - 8, src + n - 8, 8);
    } else {
        for (size_t i = 0; i < n; i++)
            ((volatile char *)dst)[i] = src[i]; /* volatile: otherwise gcc calls memcpy() */
    }
}

/* copy_gather_range() for a range that lies in both homes and begins or ends within a slice. */
void copy_gather_parts(const struct copy_kernel *k, char *dst, const char *o, const char *r,
                       uint64_t bitmap, unsigned begin, unsigned n);

/*
 * Copies bytes [begin, begin + n) of a page from their valid homes to dst (where byte `begin` goes). Of a
 * slice that the range covers in part, only that part is read.
 */
static inline void copy_gather_range(const struct copy_kernel *k, char *dst, const char *o,
                                     const char *r, uint64_t bitmap, unsigned begin, unsigned n)
{
    uint64_t touched = bitmap_touched(begin, n);
    if (!(bitmap & touched)) /* all in O: the common case */
        k->plain(dst, o + begin, n);
    else if (!(~bitmap & touched))
        k->plain(dst, r + begin, n);
    else if ((begin | n) % 64 == 0)
        k->gather(dst - begin, o, r, bitmap, touched);
    else
        copy_gather_parts(k, dst, o, r, bitmap, begin, n);
}

#endif
