/* SPDX-License-Identifier: BSD-3-Clause */
/* The copy kernel for AVX512; compiled with -mavx512f, called only where the CPU has it. Such a CPU has BMI, too. */
#include "reflection/media/copy.h"

#include <immintrin.h>

typedef __m512i VECTOR;

#define KERNEL(name) name##_avx512
#define NAME         "avx512"
#define FEATURE      "avx512f"

static inline void stream(VECTOR *dst, VECTOR v)
{
    _mm512_stream_si512(dst, v);
}

static inline bool is_zero(VECTOR v)
{
    return _mm512_test_epi64_mask(v, v) == 0;
}

#include "reflection/media/copy_kernel.inc"
