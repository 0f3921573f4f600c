/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/transaction/claim.h"

#include "lib/transaction/again.h"
#include "reflection/media/report.h"

#include <errno.h>
#include <stdlib.h>

/* ---- mappings ---- */

int claim_make_room_for_parts(struct tx *t, unsigned more)
{
    const unsigned room = 2 * (t->nparts + more) + 2;
    if (more <= t->parts_room - t->nparts)
        return 0;
    struct part *parts = realloc(t->parts, room * sizeof(*parts));
    if (!parts)
        return report_error(ENOMEM, "no memory for a transaction over %u mappings", room);
    t->parts = parts;
    t->parts_room = room;
    return 0;
}

const struct part *claim_first_written(const struct tx *t)
{
    for (unsigned i = 0; i < t->nparts; i++)
        if (t->parts[i].written)
            return &t->parts[i];
    return NULL;
}

struct part *claim_part(struct tx *t, struct mapping *m, bool to_write)
{
    struct part *part = NULL;
    for (unsigned i = 0; i < t->nparts && !part; i++)
        part = t->parts[i].mapping == m ? &t->parts[i] : NULL;
    if (part && part->written)
        return part;
    const struct part *written = to_write ? claim_first_written(t) : NULL;
    if (written && written->mapping->file != m->file)
        return report_null(EXDEV,
                           "the transaction has written to %s, and a commit is of one file, so it "
                           "cannot write to %s too: keep in one file what has to change together, "
                           "or commit this transaction and begin another one",
                           written->mapping->file->pairing.path, m->file->pairing.path);
    if (part)
        return part;
    if (claim_make_room_for_parts(t, 1) < 0)
        return NULL;
    again_let_first(t, m->file);
    count_open(m, 1);
    t->parts[t->nparts] = (struct part){.mapping = m};
    return &t->parts[t->nparts++];
}

void claim_drop_parts(struct tx *t, unsigned n)
{
    /* A release, so that all that was done through the mapping comes before the count. */
    __atomic_thread_fence(__ATOMIC_RELEASE);
    while (t->nparts > n)
        count_open(t->parts[--t->nparts].mapping, UINT64_MAX);
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
            const struct homes homes = file_homes_of(f, page, s);
            r = s ? claim_take(t, f, page, s, &homes, claim_sizing(t, f)) : -1;
        }
    return r == 0 ? file_check(f) : r;
}
