/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/file/shared_places.h"

#include <string.h>

static char *block(struct shared *s, unsigned i)
{
    return s->base + SHARED_BLOCKS_AT + (uint64_t)i * SHARED_BLOCK_BYTES;
}

int shared_places_take_block(struct shared *s, uint32_t holder, void **taken)
{
    for (unsigned i = 0; i < SHARED_BLOCKS; i++) {
        uint32_t none = 0;
        if (!__atomic_compare_exchange_n(&s->block_holders[i], &none, holder, false,
                                         __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
            continue;
        const uint64_t at = (uint64_t)(block(s, i) - s->base);
        if (shared_allocate(s, at, SHARED_BLOCK_BYTES, "counters") == 0) {
            *taken = memset(block(s, i), 0, SHARED_BLOCK_BYTES);
            return 1;
        }
        __atomic_store_n(&s->block_holders[i], 0, __ATOMIC_RELEASE);
        return -1;
    }
    return 0;
}

void shared_places_give_block(struct shared *s, const void *taken)
{
    const uint64_t i = (uint64_t)((const char *)taken - block(s, 0)) / SHARED_BLOCK_BYTES;
    __atomic_store_n(&s->block_holders[i], 0, __ATOMIC_RELEASE);
}

void shared_places_forget_holder(struct shared *s, uint32_t holder)
{
    for (unsigned i = 0; i < SHARED_BLOCKS; i++) {
        uint32_t its = holder;
        __atomic_compare_exchange_n(&s->block_holders[i], &its, 0, false, __ATOMIC_RELEASE,
                                    __ATOMIC_RELAXED);
    }
}
