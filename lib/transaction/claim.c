/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/transaction/claim.h"

#include "lib/file/page.h"
#include "lib/file/space.h"
#include "lib/page/load.h"
#include "lib/page/page_set.h"
#include "lib/page/page_set_reserve.h"
#include "lib/page/reservation.h"
#include "lib/transaction/parts.h"
#include "reflection/media/report.h"

#include <errno.h>

/* Makes room for `more` pages. Returns 0; -1 with E2BIG, ENOMEM. */
static int make_room(struct tx *t, uint64_t more)
{
    if (more > t->max_pages - t->set.n)
        return report_error(E2BIG,
                            "a transaction of %llu pages and %llu more: its limit is %llu "
                            "(ato_tx_options.max_bytes)",
                            (unsigned long long)t->set.n, (unsigned long long)more,
                            (unsigned long long)t->max_pages);
    return page_set_make_room(&t->set, more);
}

struct patience claim_patience(const struct tx *t)
{
    return (struct patience){.tx_ns = t->wait_ms * 1000000u};
}

int claim_waited(struct tx *t, int r)
{
    if (r < 0 && errno == EAGAIN && t->wait_ms)
        t->refused = true;
    return r;
}

/* Reserves one page that the transaction does not have yet. There is room in the list. Returns 0; -1: the page may be in the
 * list; or, with `not_for_tx`, RESERVATION_OF_TX or RESERVATION_AGAIN instead of waiting: then nothing is reserved. */
static int take(struct tx *t, struct file *f, uint64_t page, bool not_for_tx)
{
    struct page_state *s = shared_state(&f->shared, page);
    struct patience patience = claim_patience(t);
    patience.not_for_tx = not_for_tx;
    if (!s)
        return -1;
    const uint64_t end = parts_sizing(t, f) ? 0 : page * PAGE_BYTES + 1;
    int r = claim_waited(t, reservation_take_within(f, s, end, &patience));
    if (r != 0)
        return r;
    t->set.pages[t->set.n] = (struct held_page){.file = f, .state = s, .page = page};
    __atomic_store_n(&s->tx, page_set_note(t->set.tag, t->set.n), __ATOMIC_RELAXED);
    t->set.n++;
    return load_page(f, page, s);
}

void claim_give_back(struct tx *t, uint64_t n)
{
    for (uint64_t i = n; i < t->set.n; i++) {
        const struct held_page *at = &t->set.pages[i];
        if (parts_sizing(t, at->file))
            space_forget_behind_in(at->file, at->page, at->state);
    }
    page_set_release_from(&t->set, n);
}

struct held_page *claim_new_page(struct tx *t, struct file *f, uint64_t page)
{
    uint64_t before = t->set.n;
    if (make_room(t, 1) < 0)
        return NULL;
    if (take(t, f, page, false) == 0)
        return &t->set.pages[before];
    claim_give_back(t, before);
    return NULL;
}

int claim_missing(struct tx *t, struct file *f, uint64_t first, uint64_t last, bool not_for_tx,
                  uint64_t *page)
{
    uint64_t missing = 0;
    for (uint64_t at = first; at <= last; at++)
        missing += !claim_find(t, f, at);
    if (missing && make_room(t, missing) < 0)
        return -1;
    for (*page = first; *page <= last && missing; (*page)++) {
        int r = claim_find(t, f, *page) ? 0 : take(t, f, *page, not_for_tx);
        if (r != 0)
            return r;
    }
    return file_check(f);
}

int claim_range(struct tx *t, struct file *f, uint64_t first, uint64_t last)
{
    uint64_t before = t->set.n, page;
    if (claim_missing(t, f, first, last, false, &page) == 0)
        return 0;
    claim_give_back(t, before);
    return -1;
}

int claim_in_order(struct tx *t, const struct page_span *spans, unsigned n)
{
    struct page_set *h = &t->set;
    if (page_set_reserve(h, spans, n) < 0)
        return -1;
    for (uint64_t i = 0; i < h->n; i++)
        __atomic_store_n(&h->pages[i].state->tx, page_set_note(h->tag, i), __ATOMIC_RELAXED);
    return 0;
}
