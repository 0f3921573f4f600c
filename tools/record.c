/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The records of the demonstration, and their states after a kill.
 */
#include "record.h"

#include <stdbool.h>
#include <string.h>

#define STAMP_MAGIC UINT64_C(0x706d6174732d6f74) /* arbitrary: not found in ordinary files */
#define GOLDEN      UINT64_C(0x9e3779b97f4a7c15)

struct stamped_slice {
    uint64_t magic;
    uint64_t version;
    uint32_t record, slice;
    uint64_t filler[5]; /* differs in every slice, record and version */
};

_Static_assert(sizeof(struct stamped_slice) == 64, "a slice");

void record_fill(void *out, uint32_t record, uint64_t version)
{
    struct stamped_slice *s = out;
    uint64_t x = (version << 24 ^ record) * GOLDEN;

    for (uint32_t i = 0; i < RECORD_SIZE / sizeof *s; i++) {
        s[i].magic = STAMP_MAGIC;
        s[i].version = version;
        s[i].record = record;
        s[i].slice = i;
        for (int k = 0; k < 5; k++)
            s[i].filler[k] = x += GOLDEN;
    }
}

static bool same(const unsigned char *a, const unsigned char *b)
{
    return memcmp(a, b, RECORD_SIZE) == 0;
}

/* Is it, as a whole, some version of this record? */
static bool whole(const unsigned char *found, uint32_t record)
{
    static _Alignas(64) unsigned char expected[RECORD_SIZE];
    struct stamped_slice first;

    memcpy(&first, found, sizeof first);
    if (first.magic != STAMP_MAGIC)
        return false;
    record_fill(expected, record, first.version);
    return same(found, expected);
}

enum record_state record_judge(const unsigned char *found, uint32_t record,
                               const struct record_history *known)
{
    if (same(found, known->committed))
        return RECORD_OLD;
    if (known->pending && same(found, known->pending))
        return RECORD_NEW;
    if (same(found, known->before) || same(found, known->original) || whole(found, record))
        return RECORD_LOST;
    return RECORD_TORN;
}
