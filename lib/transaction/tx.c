/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/transaction/tx.h"

#include "lib/commit/commit.h"
#include "lib/commit/deploy.h"
#include "lib/file/space.h"
#include "lib/page/handle.h"
#include "lib/page/page_set_reserve.h"
#include "lib/transaction/notes.h"
#include "lib/transaction/parts.h"
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
    if (queue_is_for_several(t) && t->nparts == 1 &&
        commit_prepare(t->parts[0].mapping, &t->set, t->set.n) < 0)
        return -1;
    queue_drain(t);
    return staging_flush(t) < 0 ? -1 : resize_announce(t);
}

/* Commits what the transactions have written, if nobody has changed what they have read. */
static int commit_checked(struct commit *flip, struct tx *const *t, unsigned n)
{
    int r = 0;
    for (unsigned i = 0; i < n; i++)
        notes_begin_commit(t[i]);
    for (unsigned i = 0; r == 0 && i < n; i++)
        r = notes_hold_for_commit(t[i], t, n);
    if (r == 0)
        r = commit_run(flip);
    for (unsigned i = 0; i < n; i++)
        notes_end_commit(t[i]);
    return r;
}

int tx_make_durable(struct tx *t)
{
    struct commit flip = {.set = &t->set, .parts = t->parts, .nparts = t->nparts};
    int r = make_ready(t);
    if (r == 0)
        /* One that only reads needs no check: all that it has read was valid at its last read. */
        r = t->notes.n && parts_first_written(t) ? commit_checked(&flip, &t, 1) : commit_run(&flip);
    commit_unprepare(&t->set);
    return r;
}

/* ---- several at once ---- */

static void give_list_back(struct page_set *h)
{
    if (h->pages != h->small)
        free(h->pages);
    h->pages = h->small;
    h->room = PAGE_SET_SMALL;
}

/* The pages and parts of all of them, as if they were one. */
struct all {
    struct page_set set;
    struct part *parts;
    unsigned nparts;
};

/* The first part of a file speaks for it: that is the one that changes its size. */
static void add_parts(struct all *all, struct tx *const *t, unsigned n, bool sized)
{
    for (unsigned i = 0; i < n; i++)
        for (unsigned k = 0; k < t[i]->nparts; k++)
            if (t[i]->parts[k].sized == sized)
                all->parts[all->nparts++] = t[i]->parts[k];
}

static int make_all(struct all *all, struct tx *const *t, unsigned n)
{
    uint64_t pages = 0;
    unsigned parts = 0;
    page_set_init(&all->set);
    all->nparts = 0;
    for (unsigned i = 0; i < n; i++) {
        pages += t[i]->set.n;
        parts += t[i]->nparts;
    }
    all->parts = malloc(parts * sizeof(*all->parts) + 1);
    if (!all->parts)
        return report_error(ENOMEM, "no memory to commit %u transactions at once", n);
    if (page_set_make_room(&all->set, pages) < 0)
        return -1;
    add_parts(all, t, n, true);
    add_parts(all, t, n, false);
    for (unsigned i = 0; i < n; i++) {
        memcpy(all->set.pages + all->set.n, t[i]->set.pages, t[i]->set.n * sizeof(*all->set.pages));
        all->set.n += t[i]->set.n;
    }
    return 0;
}

/* All files that one transaction writes to are alike, so it suffices to compare one of each. */
static int check_alike(struct tx *const *t, unsigned n)
{
    const struct tx *first = NULL;
    for (unsigned i = 0; i < n; i++) {
        const struct part *written = parts_first_written(t[i]);
        if (first && written && parts_check_alike(first, written->mapping) < 0)
            return -1;
        first = first || !written ? first : t[i];
    }
    return 0;
}

static int commit_all(struct tx *const *t, unsigned n)
{
    struct all all;
    int r = make_all(&all, t, n);
    struct commit flip = {.set = &all.set, .parts = all.parts, .nparts = all.nparts};
    if (r == 0)
        r = commit_checked(&flip, t, n);
    give_list_back(&all.set);
    free(all.parts);
    return r;
}

int tx_make_all_durable(struct tx *const *t, unsigned n)
{
    int r = check_alike(t, n);
    for (unsigned i = 0; r == 0 && i < n; i++) {
        r = make_ready(t[i]);
        commit_unprepare(&t[i]->set);
    }
    if (r == 0)
        r = commit_all(t, n);
    for (unsigned i = 0; r == 0 && i < n; i++)
        for (uint64_t k = 0; k < t[i]->set.n; k++)
            t[i]->set.pages[k].pending = 0;
    return r;
}

void tx_bring_home(struct tx *t)
{
    /* After a failure, pages may still have pending masks, which the next call would use. */
    for (unsigned i = 0; i < t->nparts; i++)
        if (t->parts[i].eager && deploy_committed(t->parts[i].mapping, &t->set) < 0)
            return;
}

/* The list of pages is kept for the next transaction if it is not longer than this. */
enum { MUCH = 4096 };

/* Forgets the space of pages beyond the end of the file: that may be the old end again, or before the planned one. */
static __attribute__((noinline)) void forget_behind(struct tx *t)
{
    for (uint64_t i = 0; i < t->set.n; i++)
        space_forget_behind_in(t->set.pages[i].file, t->set.pages[i].page, t->set.pages[i].state);
}

void tx_empty(struct tx *t)
{
    bool sized = false;
    queue_forget(t);
    notes_forget(t);
    for (unsigned i = 0; i < t->nparts; i++)
        sized |= t->parts[i].sized;
    if (sized)
        forget_behind(t);
    for (unsigned i = 0; i < t->nparts; i++)
        if (t->parts[i].sized)
            resize_end(&t->parts[i]);
    page_set_release_from(&t->set, 0);
    if (__builtin_expect(t->set.room > MUCH, 0))
        give_list_back(&t->set);
    parts_drop(t, 0);
}

void tx_unmake(struct tx *t)
{
    tx_empty(t);
    handle_close(t);
}

/* The pages are the parent's, and so are the places of threads that the child does not have. */
static void forget(struct tx *t)
{
    queue_forget(t);
    notes_forget(t);
    t->set.n = 0;
    give_list_back(&t->set);
    t->set.lane.journal = NULL;
    t->set.forgotten = NULL;
    t->nparts = 0;
}

void tx_forget_all(void)
{
    handle_close_all(forget);
}
