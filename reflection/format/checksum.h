/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The 64-bit checksum of records on the media.
 *
 *   h := 0x61746f2d73756d31
 *   for each little-endian 64-bit word w:  h := (h xor w) * M;  h := h xor (h >> 29)
 *   with M = 0x9fb21c651e98df25
 *
 * For a given w each step is a bijection of h (M is odd). So one changed word always changes the result;
 * several changed words do with a probability of about 1 - 2^-64. The checksum detects torn and stale
 * records, not forged ones.
 */
#ifndef ATO_REFLECTION_FORMAT_CHECKSUM_H
#define ATO_REFLECTION_FORMAT_CHECKSUM_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define CHECKSUM_START 0x61746f2d73756d31ull

/* Continues the checksum `h` with n bytes, a multiple of 8. */
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
