/* SPDX-License-Identifier: BSD-3-Clause */
#include "reflection/media/copy.h"

#include "reflection/media/races.h"

const struct copy_kernel *const copy_kernels[] = {
#ifndef RACES_WATCHED /* ThreadSanitizer checks no wider accesses */
    &copy_avx512, &copy_avx2,
#endif
    &copy_sse2, NULL};

const struct copy_kernel *copy_best(void)
{
    const struct copy_kernel *const *try = copy_kernels;
    while (try[1] && !(*try)->usable())
        try++; /* every x86-64 CPU has SSE2, the last one */
    return *try;
}

static void part(char *dst, const char *o, const char *r, uint64_t bitmap, unsigned begin,
                 unsigned n)
{
    const char *home = (bitmap >> (begin / 64)) & 1 ? r : o;
    memcpy(dst, home + begin, n);
}

void copy_gather_parts(const struct copy_kernel *k, char *dst, const char *o, const char *r,
                       uint64_t bitmap, unsigned begin, unsigned n)
{
    char *base = dst - begin; /* where byte 0 of the page would go; nothing is stored below dst */
    unsigned end = begin + n;
    if (begin % 64) {
        unsigned head = 64 - begin % 64 < n ? 64 - begin % 64 : n;
        part(dst, o, r, bitmap, begin, head);
        begin += head;
    }
    if (end % 64 && end > begin) {
        unsigned tail = end % 64;
        part(base + (end - tail), o, r, bitmap, end - tail, tail);
        end -= tail;
    }
    if (end > begin)
        k->gather(base, o, r, bitmap, bitmap_slices(begin / 64, end / 64 - 1));
}
