/* SPDX-License-Identifier: BSD-3-Clause */
#include "flip.h"

#include "../reflection/bitmap.h"
#include "../reflection/report.h"
#include "journals.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { RTM_TRIES = 6 };

static uint64_t flipped(const struct held *at)
{
    return at->state->bitmap ^ at->pending;
}

static int in_doubt(struct file *f)
{
    return file_in_doubt(f, "a commit");
}

/* Shows the flips of all pages in memory: for readers one moment, since each page is marked before
 * the first bitmap changes, and the last bitmap has changed before the first mark goes. I4: they
 * are durable by now. Modelled in read.pml, and what becomes of it after a kill in takeover.pml. */
static void show(struct hold *h)
{
    seam_point(SEAM_DURABLE, h);
    seam_point(SEAM_FLIP, h);
    for (uint64_t i = 0; i < h->n; i++)
        if (h->pages[i].pending)
            pages_mark_flipping(h->pages[i].state);
    for (uint64_t i = 0; i < h->n; i++) {
        struct page_state *s = h->pages[i].state;
        seam_point(SEAM_FLIPPING, h);
        if (h->pages[i].pending)
            pages_set_bitmap(s, flipped(&h->pages[i]));
    }
    for (uint64_t i = 0; i < h->n; i++) {
        if (!h->pages[i].pending)
            continue;
        h->pages[i].pending = 0;
        pages_unmark_flipping(h->pages[i].state);
    }
}

/* Stores and flushes the words of all pending pages. In domain msync what is flushed is the meta
 * page: once for all its words. */
static int store_words(struct hold *h)
{
    /* explorer: tear word survives: the lane of a commit stores the word once more, and in a deploy
     * each bit counts by itself, since both homes hold the same. */
    for (uint64_t i = 0; i < h->n; i++)
        if (h->pages[i].pending)
            persist_store_word(&h->pages[i].file->persist,
                               file_word(h->pages[i].file, h->pages[i].page),
                               flipped(&h->pages[i]));
    uint64_t *last = NULL;
    for (uint64_t i = 0; i < h->n; i++) {
        if (!h->pages[i].pending)
            continue;
        struct file *f = h->pages[i].file;
        uint64_t *word = file_word(f, h->pages[i].page);
        bool same_page = ((uintptr_t)last ^ (uintptr_t)word) < PAGE_BYTES;
        if (!(f->persist.domain == PERSIST_MSYNC && last && same_page) &&
            file_flush_word(f, word) < 0)
            return -1;
        last = word;
    }
    return 0;
}

static void account(struct mapping *m, enum counter path, uint64_t slices, uint64_t words)
{
    struct tally t = tally_of(m);
    if (path != COUNTERS)
        tally_add(t, path, 1);
    tally_add(t, COUNT_FLIPS, words);
    tally_add(t, COUNT_BYTES_TO_MEDIA, slices * SLICE_BYTES + words * 8);
}

int flip_one(struct mapping *m, struct held *at)
{
    const struct persist *p = &at->file->persist;
    struct page_state *s = at->state;
    uint64_t *word = file_word(at->file, at->page);
    uint64_t value = flipped(at);
    /* persist-order W1 (readers: R1 recover_apply, R4 pages_load_slow): the slices are durable
     * before the word that makes them valid, or a crash leaves the bitmap naming garbage. I1. */
    persist_fence(p);
    persist_store_word(p, word, value);
    if (file_flush_word(at->file, word) < 0)
        return in_doubt(at->file);
    /* persist-order W2 (reader: the next write to these slices): the word is durable before the
     * page is released and the homes it made invalid may be written. I3. */
    persist_fence(p);
    seam_point(SEAM_DURABLE, s);
    seam_point(SEAM_FLIP, s);
    pages_mark_flipping(s);
    seam_point(SEAM_FLIPPING, s);
    pages_set_bitmap(s, value); /* I4 */
    account(m, COUNT_COMMITS_SINGLE, bitmap_count(at->pending), 1);
    at->pending = 0;
    pages_unmark_flipping(s);
    return 0;
}

static bool may_use_rtm(const struct mapping *m, const struct persist *p, uint64_t k)
{
    return !(m->flags & ATO_NO_RTM) && k <= PERSIST_RTM_MAX && persist_rtm_allowed(p);
}

/* 1 done, 0 not this way, -1 error. */
static int commit_rtm(struct mapping *m, struct hold *h, const struct persist *p, uint64_t k)
{
    if (!may_use_rtm(m, p, k))
        return 0;
    struct persist_flip small[HOLD_SMALL], *flips = small;
    if (k > HOLD_SMALL && !(flips = malloc(k * sizeof(*flips))))
        return report_error(ENOMEM, "no memory to commit %llu pages", (unsigned long long)k);
    uint64_t n = 0;
    for (uint64_t i = 0; i < h->n; i++)
        if (h->pages[i].pending)
            flips[n++] = (struct persist_flip){file_word(h->pages[i].file, h->pages[i].page),
                                               flipped(&h->pages[i])};
    /* W1. Where this is allowed what is visible is durable: after XEND there is nothing to flush,
     * and no moment at which half of the words could be seen or lost. */
    persist_fence(p);
    int done = 0;
    for (int i = 0; i < RTM_TRIES && !done; i++) {
        done = persist_flip_rtm(p, flips, n);
        if (!done)
            count(m, COUNT_RTM_ABORTS, 1);
    }
    if (flips != small)
        free(flips);
    return done;
}

static int commit_journal(struct mapping *m, struct hold *h, struct file *f, uint64_t k)
{
    const struct persist *p = &f->persist;
    struct journal_lane lane = h->lane;
    struct journal_writer w;
    struct journal_file who = {.inode = f->pairing.record.inode};
    memcpy(who.id, f->pairing.record.id, sizeof(who.id));
    h->lane.in = NULL; /* it is the commit's now */
    if (!lane.in && journals_take_lane(f, k, &lane) < 0)
        return -1;
    journal_begin(&w, lane.journal, p, lane.lane, &who, 1, k);
    for (uint64_t i = 0; i < h->n; i++)
        if (h->pages[i].pending)
            journal_add(&w, 0, layout_word(h->pages[i].page), flipped(&h->pages[i]));
    if (journals_step(&lane, journal_finish, &w) <
        0) { /* not committed: the lane is as good as before */
        journals_give_lane(&lane);
        return report_errno(EIO, "the medium of the journal in %s failed", f->pairing.folder.path);
    }
    /* persist-order J1 (reader: R2 journal_look, then R1): slices (W1) and the lane's list are
     * durable before the commit line that says so. */
    persist_fence(p);
    if (journals_step(&lane, journal_commit, &w) < 0 || store_words(h) < 0) {
        journals_leave_lane(f, &lane);
        return in_doubt(f);
    }
    /* persist-order J4 (reader: R2): every word is durable before the lane is retired, or a crash
     * finds half of them and no lane to finish the rest. Also W2. */
    persist_fence(p);
    if (journals_step(&lane, journal_retire, &w) < 0) {
        journals_leave_lane(f, &lane);
        return in_doubt(f);
    }
    journals_give_lane(&lane);
    count(m, COUNT_BYTES_TO_MEDIA,
          sizeof(struct journal_commit) + sizeof(who) + k * sizeof(struct journal_word) + 8);
    return 0;
}

int flip_prepare(struct mapping *m, struct hold *h, uint64_t pages)
{
    if (pages < 2 || (m->flags & ATO_RTM_ONLY) || may_use_rtm(m, &m->file->persist, pages))
        return 0;
    return journals_take_lane(m->file, pages, &h->lane);
}

/* What the pending masks of all pages come to. */
struct sum {
    uint64_t pages, slices;
    struct held *one; /* of the pages */
};

static struct sum sum_up(const struct hold *h)
{
    struct sum sum = {0};
    for (uint64_t i = 0; i < h->n; i++) {
        if (!h->pages[i].pending)
            continue;
        sum.pages++;
        sum.slices += bitmap_count(h->pages[i].pending);
        sum.one = &h->pages[i];
    }
    return sum;
}

int flip_commit(struct mapping *m, struct hold *h)
{
    struct sum sum = sum_up(h);
    if (sum.pages == 0)
        return 0;
    if (sum.pages == 1)
        return flip_one(m, sum.one);
    enum counter path = COUNT_COMMITS_RTM;
    int r = commit_rtm(m, h, &sum.one->file->persist, sum.pages);
    if (r == 0 && (m->flags & ATO_RTM_ONLY))
        return report_error(EOPNOTSUPP, "no hardware transaction for %llu pages of %s",
                            (unsigned long long)sum.pages, sum.one->file->pairing.path);
    if (r == 0) {
        path = COUNT_COMMITS_JOURNAL;
        r = commit_journal(m, h, sum.one->file, sum.pages);
    }
    if (r < 0)
        return -1;
    show(h);
    account(m, path, sum.slices, sum.pages);
    return 0;
}

int flip_each(struct mapping *m, struct hold *h)
{
    struct sum sum = sum_up(h);
    if (sum.pages == 0)
        return 0;
    const struct persist *p = &sum.one->file->persist;
    persist_fence(p); /* W1 */
    if (store_words(h) < 0)
        return in_doubt(sum.one->file);
    persist_fence(p); /* W2 */
    show(h);
    account(m, COUNTERS, sum.slices, sum.pages);
    return 0;
}
