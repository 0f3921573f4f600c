/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/file/under_way.h"

void under_way_raise_threads(uint16_t *threads, unsigned thread)
{
    uint16_t seen = __atomic_load_n(threads, __ATOMIC_RELAXED);
    while (seen <= thread &&
           !__atomic_compare_exchange_n(threads, &seen, (uint16_t)(thread + 1), false,
                                        __ATOMIC_RELEASE, __ATOMIC_RELAXED))
        ;
}
