/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory for what is too large for the stack, of which a call of the library takes 16 KiB at most: a thread may have a small one. */
#ifndef ATO_REFLECTION_MEDIA_HEAP_H
#define ATO_REFLECTION_MEDIA_HEAP_H

#include <stdlib.h>

/* After the name of a pointer to memory from malloc(), or NULL: frees it at the end of the block. Keeps errno. */
#define HEAP __attribute__((cleanup(heap_free)))

static inline void heap_free(void *pointer)
{
    free(*(void **)pointer);
}

#endif
