/* SPDX-License-Identifier: BSD-3-Clause */
#include "labels.h"

#include "tx.h"

#include <stdlib.h>

/* Bits of a label that tell its maker; above them it counts. */
enum { MAKER_BITS = 24 };

static uint64_t key_of(uint32_t holder, uint32_t tag)
{
    return holder && tag ? (uint64_t)holder << 32 | tag : 0;
}

/* Higher than both, and nobody else's. */
static uint64_t new_label(uint64_t a, uint64_t b)
{
    static uint64_t made;
    uint64_t process = 0, count = (a > b ? a : b) >> MAKER_BITS;
    (void)identity_process(&process); /* it had one to map the file */
    uint64_t maker = (process + ++made * 0x9e3779b97f4a7c15ull) >> (64 - MAKER_BITS);
    return (count + 1) << MAKER_BITS | maker;
}

/* ---- places ---- */

static void add_place(struct labels *l, struct file *f, uint32_t tag)
{
    const uint64_t key = key_of(f->holder, tag);
    for (unsigned i = 0; i < l->n; i++)
        if (l->places[i].file == f && l->places[i].key == key)
            return;
    if (l->n == l->room) {
        const unsigned room = l->room ? 2 * l->room : 8;
        struct labels_place *more = realloc(l->places, room * sizeof(*more));
        if (!more)
            return;
        l->places = more;
        l->room = room;
    }
    l->places[l->n++] = (struct labels_place){f, shared_take_label(&f->shared, key), key};
}

static void add_transaction(struct tx *t, void *arg)
{
    struct labels *l = arg;
    if (t->home)
        add_place(l, t->home, t->hold.tag);
    /* Of an epoch others may be just adding to them. */
    for (unsigned i = 0; !t->home && i < t->nparts; i++)
        add_place(l, t->parts[i].mapping->file, t->hold.tag);
}

static void show(struct labels *l, uint64_t label)
{
    l->shown = label;
    for (unsigned i = 0; i < l->n; i++)
        if (l->places[i].at)
            __atomic_store_n(&l->places[i].at->label, label, __ATOMIC_RELEASE);
}

void labels_begin(struct labels *l, uint64_t thread)
{
    *l = (struct labels){0};
    tx_each_of(thread, add_transaction, l);
}

bool labels_step(struct labels *l, const struct file *f, const struct page_state *s)
{
    const uint32_t holder = __atomic_load_n(&s->holder, __ATOMIC_RELAXED);
    const uint64_t key = key_of(holder, __atomic_load_n(&s->tx, __ATOMIC_RELAXED) >> 32);
    if (!l->n) /* who holds nothing stands in no circle */
        return false;
    bool back;
    const uint64_t seen = shared_look_at_labels(&f->shared, key, l->own, &back);
    if (key != l->waits_for || !l->own) {
        l->waits_for = key;
        l->own = new_label(l->own > l->shown ? l->own : l->shown, seen);
        show(l, l->own);
        return false;
    }
    if (back && l->shown == l->own)
        return true;
    if (seen > l->shown)
        show(l, seen);
    return false;
}

void labels_end(struct labels *l)
{
    for (unsigned i = 0; i < l->n; i++)
        if (l->places[i].at)
            shared_give_label(l->places[i].at);
    free(l->places);
    *l = (struct labels){0};
}

void labels_drop(struct labels *l, const struct file *f)
{
    for (unsigned i = 0; i < l->n;) {
        if (l->places[i].file != f) {
            i++;
            continue;
        }
        if (l->places[i].at)
            shared_give_label(l->places[i].at);
        l->places[i] = l->places[--l->n];
    }
}
