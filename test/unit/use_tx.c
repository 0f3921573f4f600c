/* SPDX-License-Identifier: BSD-3-Clause */
#include "use_tx.h"

#include "lib/file/table.h"
#include "lib/page/waits.h"
#include "lib/transaction/tx.h"

#include <errno.h>

unsigned use_tx_places(void)
{
    uint64_t bytes;
    return tx_kept(&bytes);
}

uint8_t use_tx_flags(const void *base, uint64_t page)
{
    const struct page_state *s = shared_peek(&table_find(base)->file->shared, page);
    return s ? s->flags & (PAGE_O_ALLOCATED | PAGE_R_ALLOCATED) : 0;
}

int use_tx_wait(const void *base, uint64_t page, bool not_for_tx)
{
    struct file *f = table_find(base)->file;
    const struct patience patience = {.not_for_tx = not_for_tx};
    struct waiter w;
    int r = waits_begin(&w, f, shared_peek(&f->shared, page), &patience);
    int saved = errno;
    waits_end(&w);
    errno = saved;
    return r;
}
