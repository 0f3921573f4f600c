/* SPDX-License-Identifier: BSD-3-Clause */
#include "join.h"

#include "resize.h"
#include "stage.h"
#include "waits.h"

#include <assert.h>
#include <string.h>

/* -1 with EXDEV. Those that one writes to are alike already. */
static int check_alike(const struct tx *into, const struct tx *from)
{
    for (unsigned i = 0; i < from->nparts; i++)
        if (from->parts[i].written)
            return tx_check_alike(into, from->parts[i].mapping);
    return 0;
}

/* All that may fail, of which nothing is seen. */
static int get_ready(struct tx *into, const struct tx *from)
{
    if (check_alike(into, from) < 0 || tx_make_room(into, from->nparts) < 0)
        return -1;
    return stage_make_room(into, from->hold.n);
}

/* Nobody has a page of both. */
static void move_pages(struct tx *into, const struct tx *from)
{
    struct hold *h = &into->hold;
    const uint64_t before = h->n;
    memcpy(h->pages + before, from->hold.pages, from->hold.n * sizeof(*h->pages));
    h->n += from->hold.n;
    if (from->hold.forgotten)
        h->forgotten = from->hold.forgotten;
    /* Relaxed: whoever follows a number from elsewhere does so behind the lock of waits.c. */
    for (uint64_t i = before; i < h->n; i++)
        __atomic_store_n(&h->pages[i].state->tx, hold_note(h->tag, i), __ATOMIC_RELAXED);
}

/* Of files that it has parts for by now. */
static void move_sizes(struct tx *into, const struct tx *from)
{
    for (unsigned i = 0; i < from->nparts; i++)
        if (from->parts[i].sized)
            resize_move(into, from, &from->parts[i]);
}

int join(struct tx *into, struct tx *from)
{
    assert(!into->hold.lane.in && !from->hold.lane.in); /* a commit's own */
    if (get_ready(into, from) < 0)
        return -1;
    /* What is queued names pages by their places. */
    stage_drain(into);
    stage_drain(from);
    tx_move_parts(into, from);
    move_sizes(into, from);
    move_pages(into, from);
    tx_let_go(from);
    waits_pass();
    tx_unmake(from);
    return 0;
}
