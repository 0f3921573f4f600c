/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/transaction/tx.h"

#include "lib/commit/commit.h"
#include "lib/commit/deploy.h"
#include "lib/file/space.h"
#include "lib/page/handle.h"
#include "lib/page/page_set_reserve.h"
#include "lib/transaction/parts.h"
#include "lib/transaction/queue.h"
#include "lib/transaction/resize.h"
#include "lib/transaction/staging.h"

#include <stdlib.h>
#include <sys/mman.h>

int tx_make_durable(struct tx *t)
{
    struct commit flip = {.set = &t->set, .parts = t->parts, .nparts = t->nparts};
    if (queue_is_for_several(t) && t->nparts == 1 &&
        commit_prepare(t->parts[0].mapping, &t->set, t->set.n) < 0)
        return -1;
    queue_drain(t);
    int r = 0;
    if (staging_has_to_be_flushed(t)) {
        /* An epoch's pages, which readers look at, are sorted already (epoch_commit()). */
        if (!staging_is_sorted(t))
            staging_sort(t);
        r = staging_flush(t);
    }
    if (r == 0)
        r = resize_announce(t);
    if (r == 0)
        r = commit_run(&flip);
    if (r == 0)
        resize_clear(t);
    commit_unprepare(&t->set);
    return r;
}

void tx_bring_home(struct tx *t)
{
    /* After a failure, pages may still have pending masks, which the next call would use. */
    for (unsigned i = 0; i < t->nparts; i++)
        if (t->parts[i].eager && deploy_committed(t->parts[i].mapping, &t->set) < 0)
            return;
}

/* With more pages than this, the memory of their list is given back. */
enum { MUCH = 4096 };

/* Forgets the space of pages beyond the end of the file: that may be the old end again, or before the planned one. */
static __attribute__((noinline)) void forget_behind(struct tx *t)
{
    for (uint64_t i = 0; i < t->set.n; i++)
        space_forget_behind_in(t->set.pages[i].file, t->set.pages[i].page, t->set.pages[i].state);
}

/* The transaction had `pages` pages, and has none now. */
static void keep_few(struct tx *t, uint64_t pages)
{
    if (t->set.pages == t->region && pages > MUCH)
        (void)madvise(t->region, t->region_ready, MADV_DONTNEED);
    if (!t->pinned) {
        t->set.pages = t->set.small;
        t->set.room = PAGE_SET_SMALL;
    }
}

void tx_let_go(struct tx *t)
{
    const uint64_t pages = t->set.n;
    t->set.n = 0;
    t->set.forgotten = NULL;
    t->nparts = 0;
    keep_few(t, pages);
}

void tx_empty(struct tx *t)
{
    uint64_t pages = t->set.n;
    bool sized = false;
    queue_forget(t);
    for (unsigned i = 0; i < t->nparts; i++)
        sized |= t->parts[i].sized;
    if (sized)
        forget_behind(t);
    for (unsigned i = 0; i < t->nparts; i++)
        if (t->parts[i].sized)
            resize_end(t, &t->parts[i]);
    page_set_release_from(&t->set, 0);
    keep_few(t, pages);
    parts_drop(t, 0);
    if (__builtin_expect(t->parts != t->few, 0)) {
        free(t->parts);
        t->parts = t->few;
        t->parts_room = TX_FEW_PARTS;
    }
}

void tx_unmake(struct tx *t)
{
    tx_empty(t);
    handle_close(t);
}

unsigned tx_kept(uint64_t *bytes)
{
    unsigned n = 0;
    *bytes = 0;
    for (const struct tx *t; (t = handle_nth(n + 1)); n++)
        *bytes += staging_kept_bytes(t);
    return n;
}

/* The pages are the parent's, and so are the places of threads that the child does not have. */
void tx_forget_all(void)
{
    struct tx *t;
    for (unsigned i = 1; (t = handle_nth(i)); i++) {
        queue_forget(t);
        t->set.n = 0;
        t->set.pages = t->set.small;
        t->set.room = PAGE_SET_SMALL;
        t->set.lane.journal = NULL;
        t->set.forgotten = NULL;
        t->pinned = false;
        t->nparts = 0;
    }
    handle_close_all();
}
