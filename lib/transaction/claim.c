/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/transaction/claim.h"

#include "lib/commit/store.h"
#include "lib/page/page_set_reserve.h"
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
    return (struct patience){.tx_ns = t->wait_ms * 1000000u,
                             .not_for_tx =
                                 __atomic_load_n(&t->owner, __ATOMIC_RELAXED) == TX_ALL_THREADS};
}

int claim_waited(struct tx *t, int r)
{
    if (r < 0 && errno == EAGAIN && t->wait_ms)
        t->refused = true;
    return r;
}

/* Reserves one page that the transaction does not have yet. There is room in the list. Returns as claim_range(); -1: the page
 * may be in the list. */
static int take(struct tx *t, struct file *f, uint64_t page)
{
    const struct patience patience = claim_patience(t);
    const uint64_t end = parts_sizing(t, f) ? 0 : page * PAGE_BYTES + 1;
    t->blocked = page;
    return claim_waited(t, page_set_take(&t->set, f, page, end, &patience));
}

struct held_page *claim_new_page(struct tx *t, struct file *f, uint64_t page)
{
    return make_room(t, 1) == 0 && take(t, f, page) == 0 ? &t->set.pages[t->set.n - 1] : NULL;
}

int claim_range(struct tx *t, struct file *f, uint64_t first, uint64_t last)
{
    uint64_t missing = 0;
    for (uint64_t page = first; page <= last; page++)
        missing += !claim_find(t, f, page);
    int r = missing ? make_room(t, missing) : 0;
    for (uint64_t page = first; page <= last && missing && r == 0; page++)
        if (!claim_find(t, f, page))
            r = take(t, f, page);
    return r == 0 ? file_check(f) : r;
}

uint64_t claim_store(struct tx *t, const struct held_page *at, unsigned begin, unsigned n,
                     const char *bytes, unsigned flags)
{
    store_begin(at->state);
    const struct homes homes = file_homes(at->file, at->page);
    const uint64_t pending = store_page(at, &homes, begin, n, bytes, flags);
    if (__builtin_expect(at->pending & ~pending, 0))
        t->set.forgotten = &at->file->persist; /* W4 */
    return pending;
}
