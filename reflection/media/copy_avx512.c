/* SPDX-License-Identifier: BSD-3-Clause */
/* The copy kernel for AVX512; compiled with -mavx512f, called only where the CPU has it. */
#include "reflection/media/copy.h"

#include <immintrin.h>

typedef struct {
    __m512i v;
} LINE;

#define KERNEL(name) name##_avx512
#define NAME         "avx512"
#define FEATURE      "avx512f"

static inline LINE load_line(const char *src)
{
    return (LINE){_mm512_loadu_si512(src)};
}

static inline void stream_line(char *dst, LINE l)
{
    _mm512_stream_si512((__m512i *)dst, l.v);
}

static inline void store_line(char *dst, LINE l)
{
    _mm512_storeu_si512(dst, l.v);
}

static inline int lines_differ(LINE a, LINE b)
{
    return _mm512_cmpneq_epi64_mask(a.v, b.v) != 0;
}

#include "reflection/media/copy_kernel.inc"
