/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/transaction/tx.h"

#include "lib/commit/commit.h"
#include "lib/commit/deploy.h"
#include "lib/page/handle.h"
#include "lib/page/page_set_reserve.h"
#include "lib/transaction/claim.h"
#include "lib/transaction/notes.h"
#include "lib/transaction/queue.h"
#include "lib/transaction/resize.h"
#include "lib/transaction/staging.h"
#include "reflection/media/report.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Does what comes before the commit and may fail. */
static int make_ready(struct tx *t)
{
    for (unsigned i = 0; i < t->nparts; i++)
        if (file_check(t->parts[i].mapping->file) < 0)
            return -1;
    /* With SKIP_EQUAL the number of pages that flip is not known yet. So few as here fit in any lane. */
    if (!queue_is_empty(t) && t->nparts == 1 && t->set.n <= QUEUE_WRITES &&
        !(t->queue->writes[0].flags & ATO_SKIP_EQUAL) &&
        commit_prepare(t->parts[0].mapping, &t->set, t->set.n) < 0)
        return -1;
    queue_drain(t);
    return staging_flush(t) < 0 ? -1 : resize_announce(t);
}

/* Commits what the transactions have written, if nobody has changed what they have read. */
static int commit_checked(struct commit *flip, struct tx *const *t, unsigned n)
{
    int r = 0;
    /* One that only reads needs no check: all that it has read was valid at its last read. */
    if (n == 1 && !(t[0]->notes.n && claim_first_written(t[0])))
        return commit_run(flip);
    for (unsigned i = 0; i < n; i++)
        notes_mark_commit(t[i], true);
    for (unsigned i = 0; r == 0 && i < n; i++)
        r = notes_hold_for_commit(t[i], t, n);
    if (r == 0)
        r = commit_run(flip);
    for (unsigned i = 0; i < n; i++)
        notes_mark_commit(t[i], false);
    return r;
}

/* Deploys what the eager policy asks for. A failure is ignored. */
static void bring_home(struct tx *t)
{
    /* After a failure, pages may still have pending masks, which the next call would use. */
    for (unsigned i = 0; i < t->nparts; i++)
        if (t->parts[i].eager && deploy_committed(t->parts[i].mapping, &t->set) < 0)
            return;
}

/* Gathers the parts and pages of all of them, as if they were one. */
static int gather(struct commit *all, struct tx *const *t, unsigned n)
{
    unsigned sized = 0, others = 0;
    for (unsigned i = 0; i < n; i++)
        others += t[i]->nparts;
    all->nparts = others;
    all->parts = malloc(others * sizeof(*all->parts) + 1);
    if (!all->parts)
        return report_error(ENOMEM, "no memory to commit %u transactions at once", n);
    for (unsigned i = 0; i < n; i++) {
        const struct page_set *h = &t[i]->set;
        /* The first part of a file speaks for it: that is the one that changes its size. */
        for (unsigned k = 0; k < t[i]->nparts; k++)
            all->parts[t[i]->parts[k].sized ? sized++ : --others] = t[i]->parts[k];
        if (page_set_make_room(all->set, h->n) < 0)
            return -1;
        memcpy(all->set->pages + all->set->n, h->pages, h->n * sizeof(*h->pages));
        all->set->n += h->n;
    }
    return 0;
}

int tx_make_all_durable(struct tx *const *t, unsigned n)
{
    struct commit all = {.set = &t[0]->set, .parts = t[0]->parts, .nparts = t[0]->nparts};
    struct page_set several;
    int r = 0;
    for (unsigned i = 0; r == 0 && i < n; i++) {
        r = make_ready(t[i]);
        if (n > 1)
            commit_unprepare(&t[i]->set);
    }
    if (n > 1) {
        page_set_init(&several);
        all = (struct commit){.set = &several};
        r = r == 0 ? gather(&all, t, n) : r;
    }
    if (r == 0)
        r = commit_checked(&all, t, n);
    commit_unprepare(all.set);
    if (n > 1) {
        several.n = 0; /* the transactions keep their pages */
        page_set_release(&several);
        free(all.parts);
    }
    for (unsigned i = 0; r == 0 && i < n; i++) {
        for (uint64_t k = 0; n > 1 && k < t[i]->set.n; k++)
            t[i]->set.pages[k].pending = 0;
        bring_home(t[i]);
    }
    return r;
}

/* ---- the end ---- */

/* The list of pages is kept for the next transaction if it is not longer than this. */
enum { MUCH = 4096 };

void tx_empty(struct tx *t)
{
    struct page_set *h = &t->set;
    queue_forget(t);
    if (t->notes.n)
        notes_drop(&t->notes);
    for (unsigned i = 0; i < t->nparts; i++)
        if (t->parts[i].sized)
            resize_end(&t->parts[i]);
    page_set_release_from(h, 0);
    if (__builtin_expect(h->room > MUCH, 0)) {
        free(h->pages);
        h->pages = h->small;
        h->room = PAGE_SET_SMALL;
    }
    claim_drop_parts(t, 0);
}

void tx_unmake(struct tx *t)
{
    tx_empty(t);
    handle_close(t);
}
