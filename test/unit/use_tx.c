/* SPDX-License-Identifier: BSD-3-Clause */
#include "use_tx.h"

#include "lib/file/table.h"
#include "lib/page/handle.h"

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

void *use_tx_mappings(const void *tx, void *mappings)
{
    struct tx *t = handle_places[(uintptr_t)tx & (PAGE_TX_PLACES - 1)];
    void *had = t->mappings;
    t->mappings = mappings;
    return had;
}
