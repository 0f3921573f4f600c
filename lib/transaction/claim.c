/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/transaction/claim.h"

#include "reflection/media/report.h"

#include <errno.h>

int claim_make_room(struct tx *t, uint64_t more)
{
    if (more > t->max_pages - t->set.n)
        return report_error(E2BIG,
                            "a transaction of %llu pages and %llu more: its limit is %llu "
                            "(ato_tx_options.max_bytes)",
                            (unsigned long long)t->set.n, (unsigned long long)more,
                            (unsigned long long)t->max_pages);
    return page_set_make_room(&t->set, more);
}

int claim_waited(struct tx *t, int r)
{
    if (r < 0 && errno == EAGAIN && t->wait_ms)
        t->refused = true;
    return r;
}

int claim_range(struct tx *t, struct file *f, uint64_t first, uint64_t last)
{
    uint64_t missing = 0;
    for (uint64_t page = first; page <= last; page++)
        missing += !claim_find(t, f, page);
    int r = missing ? claim_make_room(t, missing) : 0;
    for (uint64_t page = first; page <= last && missing && r == 0; page++)
        if (!claim_find(t, f, page)) {
            struct page_state *s = shared_state(&f->shared, page);
            const struct homes homes = file_homes(f, page);
            r = s ? claim_take(t, f, page, s, &homes, parts_sizing(t, f)) : -1;
        }
    return r == 0 ? file_check(f) : r;
}
