/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/commit/commit.h"

#include "lib/commit/log.h"
#include "lib/page/scratch.h"
#include "reflection/media/bitmap.h"
#include "reflection/media/heap.h"
#include "reflection/media/report.h"

#include <errno.h>

/* FEW: words of a hardware transaction for which no memory is taken. */
enum { RTM_TRIES = 6, FEW = 64 };

/* ---- words ---- */

/* Stores and flushes the words of all pending pages. A flush covers a line: there is one for consecutive words that share it. */
static int store_words(struct page_set *h)
{
    /* explorer: tear word survives: a replay of the commit's lane stores the word once more, and in a
     * deploy each bit counts by itself, since both homes hold the same. */
    for (uint64_t i = 0; i < h->n; i++)
        if (h->pages[i].pending)
            persist_store_word(&h->pages[i].file->persist, h->pages[i].homes.word,
                               show_bitmap(&h->pages[i]));
    uint64_t *last = NULL;
    for (uint64_t i = 0; i < h->n; i++) {
        if (!h->pages[i].pending)
            continue;
        struct file *f = h->pages[i].file;
        uint64_t *word = h->pages[i].homes.word;
        if (!(last && persist_shares_flush(last, word)) &&
            persist_flush_word(&f->persist, word) < 0)
            return -1;
        last = word;
    }
    return 0;
}

/* ---- the commit ---- */

/* Returns how many pages have pending slices; adds up their slices. */
static uint64_t sum_up(const struct page_set *h, uint64_t *slices)
{
    uint64_t pages = 0;
    *slices = 0;
    for (uint64_t i = 0; i < h->n; i++) {
        pages += h->pages[i].pending != 0;
        *slices += bitmap_count(h->pages[i].pending);
    }
    return pages;
}

/* Several words. */
static bool may_use_rtm(const struct mapping *m, uint64_t words)
{
    return !(m->flags & ATO_NO_RTM) && words <= PERSIST_RTM_MAX &&
           persist_rtm_allowed(&m->file->persist);
}

/* Returns 1 if done; 0 if a hardware transaction cannot do it; -1 with EIO. */
static int commit_rtm(const struct commit *c, uint64_t words)
{
    struct file *f = c->m->file;
    const struct persist *p = &f->persist;
    uint64_t n = 0, number;
    struct persist_flip few[FEW], *many HEAP = NULL, *flips = few;
    if (words > FEW && !(flips = many = malloc(words * sizeof(*many))))
        return 0;
    for (uint64_t i = 0; i < c->set->n; i++) {
        const struct held_page *at = &c->set->pages[i];
        if (at->pending)
            flips[n++] = (struct persist_flip){at->homes.word, show_bitmap(at)};
    }
    if (c->resizes)
        flips[n++] = (struct persist_flip){show_size_word(f), manifest_encode_size(c->size)};
    if (file_check(f) < 0) /* the stores may have met a fault (fault.h), before the first flip */
        return -1;
    if (show_begin(f, c->set->pages, c->set->n, false, &number) < 0)
        return -1;
    /* W1. Where RTM is allowed what is visible is durable: after XEND there is nothing to flush, and at no
     * moment can half of the words be seen or lost. */
    persist_fence(p);
    int done = 0;
    for (int i = 0; i < RTM_TRIES && !done; i++) {
        done = persist_flip_rtm(p, flips, n);
        if (!done)
            count(f, COUNT_RTM_ABORTS, 1);
    }
    const bool doubt = done && file_is_poisoned(f); /* a word may have met a fault */
    if (done && !doubt)
        show(c, number);
    show_end(f, number);
    return doubt ? file_in_doubt(f, "a commit") : done;
}

/* Stores all words: one by itself, several by a lane. */
static int commit_words(const struct commit *c, uint64_t words)
{
    struct file *f = c->m->file;
    struct taken_lane lane = c->set->lane;
    const bool several = words > 1;
    struct lane_writer w;
    uint64_t number;
    if (several) {
        c->set->lane.of = NULL; /* the commit gives it back */
        if (!lane.of && lanes_take(f, words, &lane) < 0)
            return -1;
        lane_begin(&w, &f->persist, &lane.lane, lane.retired, words);
        for (uint64_t i = 0; i < c->set->n; i++) {
            const struct held_page *at = &c->set->pages[i];
            if (at->pending)
                lane_add(&w, (uint64_t)((const char *)at->homes.word - f->r), show_bitmap(at));
        }
        if (c->resizes)
            lane_add(&w, LANE_SIZE, manifest_encode_size(c->size));
    }
    if (file_check(f) < 0 || /* as in commit_rtm() */
        show_begin(f, c->set->pages, c->set->n, false, &number) < 0) {
        if (several)
            lanes_give(&lane, false);
        return -1;
    }
    /* persist-order J1 (reader: R2 lane_look, then R1): slices (W1) are durable before the commit line, or the only word,
     * that makes them count. So is the lane's list. */
    persist_fence(&f->persist);
    if ((several && lane_commit(&w) < 0) || store_words(c->set) < 0)
        goto doubt;
    if (c->resizes) {
        persist_store_word(&f->persist, show_size_word(f), manifest_encode_size(c->size));
        if (persist_flush_word(&f->persist, show_size_word(f)) < 0)
            goto doubt;
    }
    /* persist-order J4 (reader: R2): every word is durable before the lane is retired. Otherwise a crash
     * could leave some of them stored, and no lane to store the rest from. Also W2.
     * persist-order G4 (reader: the first write beyond the old end): a larger size is durable before it
     * becomes visible. persist-order S2 (reader: clear_words in length.c): a smaller one is durable before
     * the words behind the end are cleared. */
    persist_fence(&f->persist);
    if (file_is_poisoned(f))
        goto doubt;
    show(c, number);
    show_end(f, number);
    number = 0;
    if (!several)
        return 0;
    if (lane_retire(&w) < 0)
        goto doubt;
    lane.retired = w.line.sequence;
    lanes_give(&lane, false);
    count(f, COUNT_BYTES_TO_MEDIA,
          sizeof(struct lane_commit) + words * sizeof(struct lane_word) + 8);
    return 0;
doubt:
    show_end(f, number);
    if (several)
        lanes_give(&lane, true);
    return file_in_doubt(f, "a commit");
}

int commit_prepare(const struct mapping *m, struct page_set *h, uint64_t words)
{
    if (words < 2 || words > LANE_SMALL_WORDS || m->file->logged || may_use_rtm(m, words))
        return 0;
    return lanes_take(m->file, words, &h->lane);
}

int commit_run(const struct commit *c)
{
    struct file *f = c->m->file;
    struct held_page *only = c->set->pages;
    if (c->set->n == 1 && only->pending && !c->resizes && !f->logged)
        return commit_page(only, bitmap_count(only->pending));
    uint64_t slices;
    const uint64_t pages = sum_up(c->set, &slices), words = pages + c->resizes;
    if (!words && !f->logged) /* what was compared may have been zeros */
        return file_check(f);
    if (f->logged)
        return words ? log_commit(c, pages, slices) : log_commit_nothing(c);
    const struct tally under_way = under_way_begin(f);
    enum counter path = COUNT_COMMITS_RTM;
    int r = words > 1 && may_use_rtm(c->m, words) ? commit_rtm(c, words) : 0;
    if (r == 0) {
        path = words == 1 ? COUNT_COMMITS_SINGLE : COUNT_COMMITS_JOURNAL;
        r = commit_words(c, words);
    }
    if (r >= 0 && pages)
        show_account(f, path, slices, pages);
    under_way_end(under_way);
    return r < 0 ? -1 : 0;
}

int commit_page_to_log(struct mapping *m, const struct held_page *at, bool relaxed)
{
    struct page_set set;
    page_set_init(&set);
    set.small[0] = *at;
    set.n = 1;
    const struct commit c = {.set = &set, .m = m, .relaxed = relaxed};
    const int r = commit_run(&c);
    scratch_give(at->file, at->homes.r);
    return r;
}

int commit_each_page(struct file *f, struct page_set *h)
{
    uint64_t slices;
    const uint64_t pages = sum_up(h, &slices);
    if (pages == 0)
        return 0;
    if (file_check(f) < 0) /* with pending masks: W4 when the pages are released */
        return -1;
    persist_fence(&f->persist); /* W1 */
    const int r = store_words(h);
    persist_fence(&f->persist); /* W2 */
    if (r < 0 || file_is_poisoned(f))
        return file_in_doubt(f, "a commit");
    seam_point(SEAM_DURABLE, h);
    for (uint64_t i = 0; i < h->n; i++)
        if (h->pages[i].pending)
            show_one(&h->pages[i], false, 0);
    show_account(f, COUNTERS, slices, pages);
    return 0;
}
