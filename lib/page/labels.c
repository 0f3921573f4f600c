/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/page/labels.h"

#include "lib/file/shared_places.h"
#include "lib/page/handle.h"

#include <stdlib.h>

/* Low bits of a label, which tell its maker; the bits above them count. */
enum { MAKER_BITS = 24 };

static uint64_t key_of(uint32_t holder, uint32_t tag)
{
    return holder && tag ? (uint64_t)holder << 32 | tag : 0;
}

/* The highest label that threads of this process have shown. */
static uint64_t highest;

/* Returns a label that no other thread makes. It is higher than `seen`, and than all that this process
 * has shown: a label of an earlier wait may still be passed on, and would hide a lower one. */
static uint64_t new_label(uint64_t seen)
{
    static uint64_t made;
    uint64_t process = 0, count = (seen > highest ? seen : highest) >> MAKER_BITS;
    (void)identity_process(&process);           /* cannot fail: it was made to map the file */
    if (count > UINT64_MAX >> (MAKER_BITS + 1)) /* not a label that the library makes */
        count = highest = 0;
    uint64_t maker = (process + ++made * 0x9e3779b97f4a7c15ull) >> (64 - MAKER_BITS);
    return (count + 1) << MAKER_BITS | maker;
}

static void show(struct labels *l, uint64_t label)
{
    l->shown = label;
    highest = label > highest ? label : highest;
    for (unsigned i = 0; i < l->n; i++)
        if (l->places[i].at)
            __atomic_store_n(&l->places[i].at->label, label, __ATOMIC_RELEASE);
}

/* ---- places ---- */

static void give(const struct labels_place *p)
{
    if (p->at)
        shared_places_give_label(p->at);
}

/* Returns the place for a transaction and a file; NULL without memory. */
static struct labels_place *find_or_add(struct labels *l, const struct tx *t, struct file *f)
{
    for (unsigned i = 0; i < l->n; i++)
        if (l->places[i].file == f && l->places[i].tx == t)
            return &l->places[i];
    if (l->n == l->room) {
        const unsigned room = l->room ? 2 * l->room : 8;
        struct labels_place *more = realloc(l->places, room * sizeof(*more));
        if (!more)
            return NULL;
        l->places = more;
        l->room = room;
    }
    l->places[l->n] = (struct labels_place){.file = f, .tx = t};
    return &l->places[l->n++];
}

/* Shows the label beside the transaction's present number: an epoch gets a new one with each commit. */
static void put(struct labels *l, const struct tx *t, struct file *f)
{
    const uint64_t key = key_of(f->holder, __atomic_load_n(&t->set.tag, __ATOMIC_RELAXED));
    if (!key) /* a file that is only read: no page is held there */
        return;
    struct labels_place *p = find_or_add(l, t, f);
    if (!p || (p->at && p->key == key))
        return;
    give(p);
    p->key = key;
    p->at = shared_places_take_label(&f->shared, key);
    if (p->at)
        __atomic_store_n(&p->at->label, l->shown, __ATOMIC_RELEASE);
}

static void put_transaction(struct tx *t, void *arg)
{
    struct labels *l = arg;
    if (t->home)
        put(l, t, t->home);
    /* Not for an epoch: other threads may be adding parts. */
    for (unsigned i = 0; !t->home && i < t->nparts; i++)
        put(l, t, t->parts[i].mapping->file);
}

/* ---- looking ---- */

bool labels_step(struct labels *l, uint64_t thread, const struct file *f,
                 const struct page_state *s)
{
    const uint32_t holder = __atomic_load_n(&s->holder, __ATOMIC_RELAXED);
    const uint64_t key = key_of(holder, __atomic_load_n(&s->tx, __ATOMIC_RELAXED) >> 32);
    /* Repeated at each look, since other threads commit and begin epochs. */
    handle_each_of(thread, put_transaction, l);
    if (!l->n) /* a thread that holds no page is in no cycle */
        return false;
    bool back;
    const uint64_t seen = shared_places_look_at_labels(&f->shared, key, l->own, &back);
    if (key != l->waits_for || !l->own) {
        l->waits_for = key;
        l->own = new_label(seen);
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
        give(&l->places[i]);
    free(l->places);
    *l = (struct labels){0};
}

void labels_drop(struct labels *l, const struct tx *t)
{
    for (unsigned i = 0; i < l->n;) {
        if (l->places[i].tx != t) {
            i++;
            continue;
        }
        give(&l->places[i]);
        l->places[i] = l->places[--l->n];
    }
}
