/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What recoveries bring to the file: slices of a log's records, or of a whole reflection.
 */
#ifndef ATO_REFLECTION_RECOVERY_HOMECOMING_H
#define ATO_REFLECTION_RECOVERY_HOMECOMING_H

#include "reflection/pairing/pairing.h"

struct homecoming {
    int original;
    uint64_t size;    /* only what lies within it is written */
    const char *path; /* of the original */
};

/* Writes the slices of `mask`, which lie in `bytes` where they are in the page. Returns 0; -1 with errno and a sentence. */
int homecoming_write(const struct homecoming *h, uint64_t page, uint64_t mask, const char *bytes);

/* Brings all slices of a reflection home, durably. The file is adopted, and no process has it mapped. Returns 0; -1 with errno (ENOSPC,
 * EIO, EUCLEAN, ...): the reflection is as it was. */
int homecoming_of_all(const struct pairing *pr);

#endif
