/* SPDX-License-Identifier: BSD-3-Clause */
#include "use_tx.h"

#include "lib/page/handle.h"
#include "lib/transaction/queue.h"

static uint64_t kept_by(const struct tx *t)
{
    const uint64_t pages =
        t->set.pages == t->set.small ? 0 : t->set.room * sizeof(struct held_page);
    const uint64_t queue =
        t->queue ? (sizeof(struct queue) + PAGE_BYTES - 1) & ~(PAGE_BYTES - 1) : 0;
    return pages + queue + t->notes.room * (sizeof(struct note) + 2 * sizeof(uint32_t));
}

unsigned use_tx_kept(uint64_t *bytes)
{
    unsigned n = 0;
    *bytes = 0;
    for (const struct tx *t; (t = handle_nth(n + 1)); n++)
        *bytes += kept_by(t);
    return n;
}
