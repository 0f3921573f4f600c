/* SPDX-License-Identifier: BSD-3-Clause */
/* The copy kernel for AVX2; compiled with -mavx2, called only where the CPU has it. */
#include "reflection/media/copy.h"

#include <immintrin.h>

typedef __m256i VECTOR;

#define KERNEL(name) name##_avx2
#define NAME         "avx2"
#define FEATURE      "avx2"

static inline void stream(VECTOR *dst, VECTOR v)
{
    _mm256_stream_si256(dst, v);
}

static inline bool is_zero(VECTOR v)
{
    return _mm256_testz_si256(v, v);
}

#include "reflection/media/copy_kernel.inc"
