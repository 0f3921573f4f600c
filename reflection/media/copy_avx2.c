/* SPDX-License-Identifier: BSD-3-Clause */
/* The copy kernel for AVX2; compiled with -mavx2, called only where the CPU has it. */
#include "reflection/media/copy.h"

#include <immintrin.h>

typedef struct {
    __m256i v[2];
} LINE;

#define KERNEL(name) name##_avx2
#define NAME         "avx2"
#define FEATURE      "avx2"

static inline LINE load_line(const char *src)
{
    const __m256i *s = (const __m256i *)src;
    return (LINE){{_mm256_loadu_si256(s), _mm256_loadu_si256(s + 1)}};
}

static inline void stream_line(char *dst, LINE l)
{
    _mm256_stream_si256((__m256i *)dst, l.v[0]);
    _mm256_stream_si256((__m256i *)dst + 1, l.v[1]);
}

static inline void store_line(char *dst, LINE l)
{
    _mm256_storeu_si256((__m256i *)dst, l.v[0]);
    _mm256_storeu_si256((__m256i *)dst + 1, l.v[1]);
}

static inline int lines_differ(LINE a, LINE b)
{
    __m256i x = _mm256_or_si256(_mm256_xor_si256(a.v[0], b.v[0]), _mm256_xor_si256(a.v[1], b.v[1]));
    return !_mm256_testz_si256(x, x);
}

#include "reflection/media/copy_kernel.inc"
