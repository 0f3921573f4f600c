/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a call of persist.h needs to know: the durability domain of the media, the copy kernel of the CPU. Types
 * only; persist.h says what each domain promises.
 */
#ifndef ATO_REFLECTION_MEDIA_PERSIST_TYPES_H
#define ATO_REFLECTION_MEDIA_PERSIST_TYPES_H

#include "reflection/media/copy.h"

#include <stdint.h>

/* The numbers are on the media (manifest) and in the public header: never renumber. */
enum persist_domain {
    PERSIST_AUTO = 0,
    PERSIST_PMEM = 1,
    PERSIST_EADR = 2,
    PERSIST_MSYNC = 3,
    PERSIST_PROCESS = 4,
};

struct persist {
    enum persist_domain domain;
    const struct copy_kernel *kernel;
};

/* A word and its new value. */
struct persist_flip {
    uint64_t *word;
    uint64_t value;
};

#endif
