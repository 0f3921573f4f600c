/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/transaction/claim.h"

#include "lib/transaction/again.h"
#include "reflection/media/report.h"

#include <errno.h>
#include <stdlib.h>

/* ---- mappings ---- */

int claim_mapping(struct tx *t, struct mapping *m, bool to_write)
{
    if (to_write && t->written && t->written->file != m->file)
        return report_error(EXDEV,
                            "the transaction has written to %s, and a commit is of one file, so it "
                            "cannot write to %s too: keep in one file what has to change together, "
                            "or commit this transaction and begin another one",
                            t->written->file->pairing.path, m->file->pairing.path);
    for (unsigned i = 0; i < t->nmappings; i++)
        if (t->mappings[i] == m)
            return 0;
    if (t->nmappings == t->mappings_room) {
        const unsigned room = 2 * t->nmappings + 2;
        struct mapping **mappings = realloc(t->mappings, room * sizeof(struct mapping *));
        if (!mappings)
            return report_error(ENOMEM, "no memory for a transaction over %u mappings", room);
        t->mappings = mappings;
        t->mappings_room = room;
    }
    again_let_first(t, m->file);
    count_open(m, 1);
    t->mappings[t->nmappings++] = m;
    return 0;
}

void claim_drop_mappings(struct tx *t, unsigned n)
{
    /* A release, so that all that was done through the mapping comes before the count. */
    __atomic_thread_fence(__ATOMIC_RELEASE);
    while (t->nmappings > n)
        count_open(t->mappings[--t->nmappings], UINT64_MAX);
}

/* ---- pages ---- */

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

enum reservation claim_waited(struct tx *t, enum reservation r)
{
    if (r == RESERVATION_FAILED && errno == EAGAIN && t->wait_ms)
        t->refused = true;
    return r;
}

enum reservation claim_range(struct tx *t, struct file *f, uint64_t first, uint64_t last)
{
    uint64_t missing = 0;
    for (uint64_t page = first; page <= last; page++)
        missing += !claim_find(t, f, page);
    if (missing && claim_make_room(t, missing) < 0)
        return RESERVATION_FAILED;
    for (uint64_t page = first; page <= last && missing; page++)
        if (!claim_find(t, f, page)) {
            struct page_state *s = shared_state(&f->shared, page);
            const struct homes homes = file_homes_of(f, page, s);
            const enum reservation r =
                s ? claim_take(t, f, page, s, &homes, claim_sizing(t, f)) : RESERVATION_FAILED;
            if (r != RESERVATION_MINE)
                return r;
        }
    return file_check(f) < 0 ? RESERVATION_FAILED : RESERVATION_MINE;
}
