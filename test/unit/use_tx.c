/* SPDX-License-Identifier: BSD-3-Clause */
#include "use_tx.h"

#include "lib/file/table.h"
#include "lib/page/handle.h"

#include <sys/mman.h>

unsigned use_tx_places(void)
{
    unsigned n = 0;
    while (n + 1 < PAGE_TX_PLACES && handle_places[n + 1])
        n++;
    return n;
}

uint8_t use_tx_flags(const void *base, uint64_t page)
{
    const struct page_state *s = shared_peek(&table_find(base)->file->shared, page);
    return s ? s->flags & (PAGE_O_ALLOCATED | PAGE_R_ALLOCATED) : 0;
}

unsigned use_tx_scratch(const void *base)
{
    const struct file *f = table_find(base)->file;
    unsigned n = 0;
    for (uint64_t i = 0; i < file_scratch_words(f->viewed); i++)
        n += (unsigned)__builtin_popcountll(f->scratch[i]);
    return n;
}

unsigned use_tx_scratch_resident(const void *base)
{
    const struct file *f = table_find(base)->file;
    unsigned n = 0;
    unsigned char in_memory;
    for (uint64_t i = 0; i < file_scratch_words(f->viewed) * 64; i++)
        n += mincore(f->r + i * PAGE_BYTES, PAGE_BYTES, &in_memory) == 0 && (in_memory & 1);
    return n;
}

void *use_tx_mappings(const void *tx, void *mappings)
{
    struct tx *t = handle_places[(uintptr_t)tx & (PAGE_TX_PLACES - 1)];
    void *had = t->mappings;
    t->mappings = mappings;
    return had;
}
