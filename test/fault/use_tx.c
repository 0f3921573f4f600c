/* SPDX-License-Identifier: BSD-3-Clause */
#include "use_tx.h"

#include "lib/page/handle.h"
#include "lib/transaction/queue.h"

unsigned use_tx_kept(uint64_t *bytes)
{
    const struct tx *t;
    unsigned blocks = 0;
    *bytes = 0;
    for (unsigned i = 1; i < PAGE_TX_PLACES && (t = handle_places[i]); i++) {
        blocks +=
            1 + (t->set.pages != t->set.small) + !!t->parts + !!t->notes.each + !!t->notes.index;
        *bytes += t->queue ? (sizeof(struct queue) + PAGE_BYTES - 1) & ~(PAGE_BYTES - 1) : 0;
    }
    return blocks;
}
