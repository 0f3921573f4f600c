/* SPDX-License-Identifier: BSD-3-Clause */
#include "use_tx.h"

#include "lib/api/snapshot.h"
#include "lib/page/handle.h"

unsigned use_tx_kept(void)
{
    const struct tx *t;
    unsigned blocks = 0;
    for (unsigned i = 1; i < PAGE_TX_PLACES && (t = handle_places[i]); i++)
        blocks += 1 + (t->set.pages != t->set.small) + !!t->mappings + !!t->notes.each +
                  !!t->notes.index + !!t->queue;
    for (unsigned i = 1; i < SNAPSHOT_PLACES && snapshot_places[i]; i++)
        blocks++;
    return blocks;
}
