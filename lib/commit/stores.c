/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/commit/stores.h"

#include "lib/page/reservation.h"
#include "reflection/media/report.h"

void stores_change_begin(struct stores_change *c, struct file *f, uint64_t except, bool showing)
{
    static const struct patience plain = {0};
    c->any = store_views_any_but(f, except);
    if (!c->any)
        return;
    KEEP_ERRNO();
    struct report_kept before; /* a change does not fail by this */
    report_keep(&before);
    c->took = !showing && reservation_take(f, &f->shared.header->undo.showing, &plain) == 0;
    store_look_begin(&c->look, f, except);
    c->is_safe = showing || c->took;
    (void)report_again(&before);
}

enum stores_kept stores_page_begin(struct stores_change *c, uint64_t page)
{
    if (!c->any)
        return STORES_NONE;
    KEEP_ERRNO();
    struct report_kept before;
    report_keep(&before);
    if (!c->is_safe)
        store_look_lose(&c->look);
    const enum stores_kept kept = c->is_safe ? store_look_before(&c->look, page) : STORES_NONE;
    (void)report_again(&before);
    return kept;
}

void stores_page_end(struct stores_change *c, uint64_t page, enum stores_kept kept)
{
    if (kept != STORES_NONE)
        store_look_after(&c->look, page, kept);
}

void stores_change_end(struct stores_change *c)
{
    if (!c->any)
        return;
    if (c->took)
        page_release(&c->look.f->shared.header->undo.showing);
    store_look_end(&c->look);
}
