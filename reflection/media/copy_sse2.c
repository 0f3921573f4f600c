/* SPDX-License-Identifier: BSD-3-Clause */
/* The copy kernel for SSE2; compiled with -msse2, called only where the CPU has it. */
#include "reflection/media/copy.h"

#include <immintrin.h>

typedef struct {
    __m128i v[4];
} LINE;

#define KERNEL(name) name##_sse2
#define NAME         "sse2"
#define FEATURE      "sse2"

static inline LINE load_line(const char *src)
{
    const __m128i *s = (const __m128i *)src;
    return (LINE){{_mm_loadu_si128(s), _mm_loadu_si128(s + 1), _mm_loadu_si128(s + 2),
                   _mm_loadu_si128(s + 3)}};
}

static inline void stream_line(char *dst, LINE l)
{
    __m128i *d = (__m128i *)dst;
    for (int i = 0; i < 4; i++)
        _mm_stream_si128(d + i, l.v[i]);
}

static inline void store_line(char *dst, LINE l)
{
    __m128i *d = (__m128i *)dst;
    for (int i = 0; i < 4; i++)
        _mm_storeu_si128(d + i, l.v[i]);
}

static inline int lines_differ(LINE a, LINE b)
{
    __m128i same = _mm_and_si128(
        _mm_and_si128(_mm_cmpeq_epi8(a.v[0], b.v[0]), _mm_cmpeq_epi8(a.v[1], b.v[1])),
        _mm_and_si128(_mm_cmpeq_epi8(a.v[2], b.v[2]), _mm_cmpeq_epi8(a.v[3], b.v[3])));
    return _mm_movemask_epi8(same) != 0xffff;
}

#include "reflection/media/copy_kernel.inc"
