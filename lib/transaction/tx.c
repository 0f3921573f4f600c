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

/* Stores what is queued, and does what else comes before the commit and may fail. */
static int make_ready(struct tx *t)
{
    queue_drain(t);
    for (unsigned i = 0; i < t->nparts; i++)
        if (file_check(t->parts[i].mapping->file) < 0)
            return -1;
    return staging_flush(t) < 0 ? -1 : resize_announce(t);
}

/* Commits what the transaction has written, if nobody has changed what it has read. */
static int commit(struct tx *t, const struct part *written)
{
    struct commit flip = {.set = &t->set, .m = written->mapping};
    const bool checks = !notes_are_of_held(t);
    /* Where a flush takes long: others wait while the pages say that they are being committed. */
    const bool flushes = flip.m->file->persist.domain == PERSIST_MSYNC;
    /* With SKIP_EQUAL the number of pages that flip is not known yet. So few as here fit in any lane. */
    if (!queue_is_empty(t) && t->nparts == 1 && t->set.n <= QUEUE_WRITES &&
        !(t->queue->writes[0].flags & ATO_SKIP_EQUAL) &&
        commit_prepare(flip.m, &t->set, t->set.n) < 0)
        return -1;
    if (flushes && make_ready(t) < 0)
        return -1;
    /* The check comes before the stores: it has a fence, which would wait until they have drained. */
    if (checks)
        notes_mark_commit(t, true);
    int r = checks ? notes_hold_for_commit(t) : 0;
    if (r == 0 && !flushes)
        r = make_ready(t);
    for (unsigned i = 0; i < t->nparts; i++)
        if (t->parts[i].resizes)
            flip.resizes = &t->parts[i];
    if (r == 0)
        r = commit_run(&flip);
    if (checks)
        notes_mark_commit(t, false);
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

int tx_make_durable(struct tx *t)
{
    const struct part *written = claim_first_written(t);
    /* All that it has read was valid at its last read. */
    const int r = written ? commit(t, written) : make_ready(t);
    commit_unprepare(&t->set);
    if (r == 0)
        bring_home(t);
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
