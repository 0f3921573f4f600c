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

#include <stdlib.h>
#include <string.h>

/* Does what comes before the commit and may fail. */
static int make_ready(struct tx *t)
{
    /* With SKIP_EQUAL the number of pages that flip is not known yet. So few as here fit in any lane. */
    if (!queue_is_empty(t) && t->nparts == 1 && t->set.n <= QUEUE_WRITES &&
        !(t->queue->writes[0].flags & ATO_SKIP_EQUAL) &&
        commit_prepare(t->parts[0].mapping, &t->set, t->set.n) < 0)
        return -1;
    queue_drain(t);
    for (unsigned i = 0; i < t->nparts; i++)
        if (file_check(t->parts[i].mapping->file) < 0)
            return -1;
    return staging_flush(t) < 0 ? -1 : resize_announce(t);
}

/* Adds the parts and pages of a transaction to those of another one, which is to commit both. */
static int gather(struct tx *all, const struct tx *t)
{
    struct page_set *h = &all->set;
    if (claim_make_room_for_parts(all, t->nparts) < 0 || page_set_make_room(h, t->set.n) < 0)
        return -1;
    for (unsigned i = 0; i < t->nparts; i++)
        all->parts[all->nparts++] = t->parts[i];
    memcpy(h->pages + h->n, t->set.pages, t->set.n * sizeof(*h->pages));
    h->n += t->set.n;
    return 0;
}

/* Commits what the transactions have written, if nobody has changed what they have read: by the first one, which has what all have
 * meanwhile. */
static int commit_checked(struct tx *const *t, unsigned n)
{
    struct tx *all = t[0];
    const uint64_t pages = all->set.n;
    const unsigned parts = all->nparts;
    /* One that only reads needs no check: all that it has read was valid at its last read. */
    const unsigned checked = n > 1 || (all->notes.n && claim_first_written(all)) ? n : 0;
    int r = 0;
    for (unsigned i = 0; i < checked; i++)
        notes_mark_commit(t[i], true);
    for (unsigned i = 0; r == 0 && i < checked; i++)
        r = notes_hold_for_commit(t[i], t, n);
    for (unsigned i = 1; r == 0 && i < n; i++)
        r = gather(all, t[i]);
    struct commit flip = {.set = &all->set, .parts = all->parts, .nparts = all->nparts};
    if (r == 0)
        r = commit_run(&flip);
    all->set.n = pages;
    all->nparts = parts;
    for (unsigned i = 0; i < checked; i++)
        notes_mark_commit(t[i], false);
    return r;
}

/* Deploys what the eager policy asks for. What was not written eagerly may lack space, and stays where it is. */
static void bring_home(struct tx *t)
{
    /* If the medium fails, pages may still have pending masks, which the next call would use. */
    for (unsigned i = 0; i < t->nparts; i++)
        if (t->parts[i].eager && deploy_committed(t->parts[i].mapping, &t->set) < 0 &&
            file_is_poisoned(t->parts[i].mapping->file))
            return;
}

int tx_make_all_durable(struct tx *const *t, unsigned n)
{
    int r = 0;
    for (unsigned i = 0; r == 0 && i < n; i++) {
        r = make_ready(t[i]);
        if (n > 1)
            commit_unprepare(&t[i]->set);
    }
    if (r == 0)
        r = commit_checked(t, n);
    commit_unprepare(&t[0]->set);
    for (unsigned i = 0; r == 0 && i < n; i++) {
        for (uint64_t k = 0; i > 0 && k < t[i]->set.n; k++)
            t[i]->set.pages[k].pending = 0; /* the first one has committed a copy */
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
