/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The 64-bit checksum of records on the media.
 *
 *   h := 0x61746f2d73756d31; for each little-endian 64-bit word w: h := (h xor w) * M; h := h xor
 * (h >> 29) with M = 0x9fb21c651e98df25
 *
 * For a given word each step is a bijection of h (M is odd), so that one changed word always
 * changes the result; several changed ones do with a probability of 1 - 2^-64 or so. It guards
 * against torn and stale records, not against an enemy.
 */
#ifndef ATO_REFLECTION_CHECKSUM_H
#define ATO_REFLECTION_CHECKSUM_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define CHECKSUM_START 0x61746f2d73756d31ull

/* n bytes, a multiple of 8, appended to what `h` covers already. */
static inline uint64_t checksum_add(uint64_t h, const void *bytes, size_t n)
{
    for (size_t i = 0; i + 8 <= n; i += 8) {
        uint64_t w;
        memcpy(&w, (const char *)bytes + i, 8);
        h = (h ^ w) * 0x9fb21c651e98df25ull;
        h ^= h >> 29;
    }
    return h;
}

static inline uint64_t checksum(const void *bytes, size_t n)
{
    return checksum_add(CHECKSUM_START, bytes, n);
}

#endif
