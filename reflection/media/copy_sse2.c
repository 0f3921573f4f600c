/* SPDX-License-Identifier: BSD-3-Clause */
/* The copy kernel for SSE2; compiled with -msse2, called only where the CPU has it. */
#include "reflection/media/copy.h"

#include <immintrin.h>

typedef __m128i VECTOR;

#define KERNEL(name) name##_sse2
#define NAME         "sse2"
#define FEATURE      "sse2"

static inline void stream(VECTOR *dst, VECTOR v)
{
    _mm_stream_si128(dst, v);
}

static inline bool is_zero(VECTOR v)
{
    return _mm_movemask_epi8(_mm_cmpeq_epi8(v, _mm_setzero_si128())) == 0xffff;
}

#include "reflection/media/copy_kernel.inc"
