/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/file/shared_places.h"

#include <string.h>

/* ---- counters ---- */

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

/* ---- labels ---- */

struct shared_label *shared_places_take_label(struct shared *s, uint64_t key)
{
    for (unsigned i = 0; i < SHARED_LABELS; i++) {
        uint64_t none = 0;
        struct shared_label *at = &s->labels[i];
        if (!__atomic_load_n(&at->key, __ATOMIC_RELAXED) &&
            __atomic_compare_exchange_n(&at->key, &none, key, false, __ATOMIC_ACQUIRE,
                                        __ATOMIC_RELAXED))
            return at;
    }
    return NULL;
}

/* The label is cleared first: the next user of the place must not find it. */
void shared_places_give_label(struct shared_label *at)
{
    __atomic_store_n(&at->label, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&at->key, 0, __ATOMIC_RELEASE);
}

uint64_t shared_places_look_at_labels(const struct shared *s, uint64_t key, uint64_t own,
                                      bool *back)
{
    uint64_t highest = 0;
    *back = false;
    for (unsigned i = 0; key && i < SHARED_LABELS; i++) {
        if (__atomic_load_n(&s->labels[i].key, __ATOMIC_ACQUIRE) != key)
            continue;
        const uint64_t label = __atomic_load_n(&s->labels[i].label, __ATOMIC_RELAXED);
        *back |= own && label == own;
        if (label > highest)
            highest = label;
    }
    return highest;
}

void shared_places_forget_holder(struct shared *s, uint32_t holder)
{
    for (unsigned i = 0; i < SHARED_LABELS; i++)
        if (__atomic_load_n(&s->labels[i].key, __ATOMIC_RELAXED) >> 32 == holder)
            shared_places_give_label(&s->labels[i]);
    for (unsigned i = 0; i < SHARED_BLOCKS; i++) {
        uint32_t its = holder;
        __atomic_compare_exchange_n(&s->block_holders[i], &its, 0, false, __ATOMIC_RELEASE,
                                    __ATOMIC_RELAXED);
    }
}
