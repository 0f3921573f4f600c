/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/transaction/join.h"

#include "lib/page/handle.h"
#include "lib/page/page_set.h"
#include "lib/page/waits.h"
#include "lib/transaction/claim.h"
#include "lib/transaction/parts.h"
#include "lib/transaction/queue.h"
#include "lib/transaction/resize.h"
#include "lib/transaction/tx.h"

#include <assert.h>
#include <string.h>

/* Returns 0; -1 with EXDEV. The files that one transaction writes to are alike, so comparing one is enough. */
static int check_alike(const struct tx *into, const struct tx *from)
{
    for (unsigned i = 0; i < from->nparts; i++)
        if (from->parts[i].written)
            return parts_check_alike(into, from->parts[i].mapping);
    return 0;
}

/* Does all that may fail, without an effect on other threads. */
static int get_ready(struct tx *into, const struct tx *from)
{
    if (check_alike(into, from) < 0 || parts_make_room(into, from->nparts) < 0)
        return -1;
    return claim_make_room(into, from->set.n);
}

/* No page belongs to both transactions. */
static void move_pages(struct tx *into, const struct tx *from)
{
    struct page_set *h = &into->set;
    const uint64_t before = h->n;
    memcpy(h->pages + before, from->set.pages, from->set.n * sizeof(*h->pages));
    h->n += from->set.n;
    if (from->set.forgotten)
        h->forgotten = from->set.forgotten;
    /* Relaxed: a thread that follows a number from elsewhere takes the lock of waits.c before. */
    for (uint64_t i = before; i < h->n; i++)
        __atomic_store_n(&h->pages[i].state->tx, page_set_note(h->tag, i), __ATOMIC_RELAXED);
}

/* `into` has parts for these files by now. */
static void move_sizes(struct tx *into, const struct tx *from)
{
    for (unsigned i = 0; i < from->nparts; i++)
        if (from->parts[i].sized)
            resize_move(into, from, &from->parts[i]);
}

int join(struct tx *into, struct tx *from)
{
    assert(!into->set.lane.journal && !from->set.lane.journal); /* only a commit has one */
    if (get_ready(into, from) < 0)
        return -1;
    /* Queued writes name pages by their index. */
    queue_drain(into);
    queue_drain(from);
    parts_move(into, from);
    move_sizes(into, from);
    move_pages(into, from);
    tx_let_go(from);
    waits_pass();
    tx_unmake(from);
    return 0;
}
