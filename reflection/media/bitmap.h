/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Pages and slices, and sets of slices of one page as 64-bit masks: bit i is slice i, bytes [64 i, 64 i + 64).
 *
 * In a validity bitmap B, bit i = 0 means that slice i is valid in the original (O), 1 that it is valid in
 * the reflection (R). A write of the set M stores to the homes that are invalid by B, and commits by storing
 * B xor M.
 */
#ifndef ATO_REFLECTION_MEDIA_BITMAP_H
#define ATO_REFLECTION_MEDIA_BITMAP_H

#include <stdint.h>

#define PAGE_BYTES  4096ull
#define SLICE_BYTES 64ull
#define PAGE_SLICES 64ull

/* The slices first..last, both inclusive, both < 64. */
static inline uint64_t bitmap_slices(unsigned first, unsigned last)
{
    return (~0ull << first) & (~0ull >> (63 - last));
}

/* The slices that bytes [begin, begin + n) of a page touch; n > 0, begin + n <= 4096. */
static inline uint64_t bitmap_touched(unsigned begin, unsigned n)
{
    return bitmap_slices(begin / 64, (begin + n - 1) / 64);
}

/* The slices of page `page` that begin within a file of `size` bytes. */
static inline uint64_t bitmap_within(uint64_t page, uint64_t size)
{
    if (size >= (page + 1) * PAGE_BYTES)
        return ~0ull;
    return size > page * PAGE_BYTES ? bitmap_touched(0, (unsigned)(size % PAGE_BYTES)) : 0;
}

/* Counting bits is a call on some CPUs; one bit is a common case. */
static inline unsigned bitmap_count(uint64_t mask)
{
    return mask & (mask - 1) ? (unsigned)__builtin_popcountll(mask) : mask != 0;
}

#endif
