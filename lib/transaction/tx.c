/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/transaction/tx.h"

#include "lib/commit/commit.h"
#include "lib/commit/deploy.h"
#include "lib/commit/log.h"
#include "lib/file/store_views.h"
#include "lib/page/handle.h"
#include "lib/page/page_set_reserve.h"
#include "lib/transaction/claim.h"
#include "lib/transaction/notes.h"
#include "lib/transaction/resize.h"
#include "lib/transaction/staging.h"

#include <stdlib.h>

/* Stores what is queued, and does what else comes before the commit and may fail. */
static int make_ready(struct tx *t)
{
    queue_drain(t);
    for (unsigned i = 0; i < t->nmappings; i++)
        if (file_check(t->mappings[i]->file) < 0)
            return -1;
    return t->resizes ? resize_announce(t) : 0;
}

/* Commits what the transaction has written, if nobody has changed what it has read. */
static int commit(struct tx *t, struct ato_promise *promise)
{
    const struct commit flip = {.set = &t->set,
                                .m = t->written,
                                .resizes = t->resizes,
                                .size = t->size,
                                .promise = promise,
                                .relaxed = !promise && !t->eager &&
                                           show_is_relaxed(t->written, t->flags & ATO_RELAXED)};
    const bool checks = !notes_are_of_held(t);
    /* With SKIP_EQUAL the number of pages that flip is not known yet. */
    if (!queue_is_empty(t) && t->nmappings == 1 && !(t->queue->writes[0].flags & ATO_SKIP_EQUAL) &&
        commit_prepare(flip.m, &t->set, t->set.n + t->resizes) < 0)
        return -1;
    /* The check comes before the stores: it has a fence, which would wait until they have drained. */
    if (checks)
        notes_mark_commit(t, true);
    int r = checks ? notes_hold_for_commit(t) : 0;
    if (r == 0)
        r = make_ready(t);
    if (r == 0)
        r = commit_run(&flip);
    if (checks)
        notes_mark_commit(t, false);
    return r;
}

int tx_make_durable(struct tx *t)
{
    return tx_commit_early(t, NULL);
}

int tx_commit_early(struct tx *t, struct ato_promise *promise)
{
    /* If it has only read: all that was valid at its last read. */
    const int r = t->written ? commit(t, promise) : make_ready(t);
    commit_unprepare(&t->set);
    /* It may have read what is not durable. */
    for (unsigned i = 0; r == 0 && !t->written && promise && i < t->nmappings; i++)
        if (t->mappings[i]->file->logged)
            *promise = log_visible(t->mappings[i]->file);
    /* What was not written eagerly may lack space, and stays where it is. (With plain stores show_begin() has made it.) */
    if (r == 0 && t->written && (t->eager || store_views_any(t->written->file)))
        (void)deploy_committed(t->written->file, &t->set);
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
    if (t->sized)
        resize_end(t, t->written->file);
    page_set_release_from(h, 0);
    if (__builtin_expect(h->room > MUCH, 0)) {
        free(h->pages);
        h->pages = h->small;
        h->room = PAGE_SET_SMALL;
    }
    claim_drop_mappings(t, 0);
    t->written = NULL;
    t->eager = false;
}

void tx_unmake(struct tx *t)
{
    tx_empty(t);
    handle_close(t);
}
