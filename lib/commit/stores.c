/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/commit/stores.h"

#include "lib/page/reservation.h"
#include "reflection/media/report.h"

#include <stdlib.h>

static bool changes(const struct file *f, const struct held_page *at)
{
    if (at->file != f)
        return false;
    return at->pending || __atomic_load_n(&at->state->bitmap, __ATOMIC_RELAXED);
}

void stores_change_begin(struct stores_change *c, struct file *f, const struct held_page *pages,
                         uint64_t n, uint64_t except, bool showing)
{
    c->any = store_views_any_but(f, except);
    if (!c->any)
        return;
    KEEP_ERRNO();
    struct report_kept before; /* a change does not fail by this */
    report_keep(&before);
    c->pages = pages;
    c->n = n;
    static const struct patience plain = {0};
    c->took = !showing && reservation_take(f, &f->shared.header->undo.showing, &plain) == 0;
    store_look_begin(&c->look, f, except);
    c->kept = showing || c->took ? calloc(n, sizeof(*c->kept)) : NULL;
    if (!c->kept)
        store_look_lose(&c->look);
    for (uint64_t i = 0; c->kept && i < n; i++)
        if (changes(f, &pages[i]))
            c->kept[i] = store_look_before(&c->look, pages[i].page);
    (void)report_again(&before);
}

void stores_change_end(struct stores_change *c)
{
    if (!c->any)
        return;
    for (uint64_t i = 0; c->kept && i < c->n; i++)
        if (c->kept[i])
            store_look_after(&c->look, c->pages[i].page, c->kept[i]);
    free(c->kept);
    if (c->took)
        page_release(&c->look.f->shared.header->undo.showing);
    store_look_end(&c->look);
}
