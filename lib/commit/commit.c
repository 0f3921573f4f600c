/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/commit/commit.h"

#include "reflection/media/bitmap.h"
#include "reflection/media/heap.h"
#include "reflection/media/report.h"

#include <errno.h>

/* FEW: words of a hardware transaction for which no memory is taken. */
enum { RTM_TRIES = 6, FEW = 64 };

/* ---- pages and files ---- */

/* Returns the part that stands for a file. Pages of one file come in runs: `last` is the part found last. */
static struct part *part_of(const struct commit *c, const struct file *f, struct part *last)
{
    if (last && last->mapping->file == f)
        return last;
    last = NULL;
    for (struct part *part = c->parts; part < c->parts + c->nparts; part++)
        if (part->mapping->file == f && (!last || part->resizes))
            last = part;
    return last;
}

/* ---- homes ---- */

int commit_flush(const struct held_page *pages, uint64_t n)
{
    for (uint64_t i = commit_next(pages, n, 0), next; i < n; i = next) {
        struct file *f = pages[i].file;
        const uint64_t first = pages[i].page;
        uint64_t last = first, o = 0;
        const char *r = NULL, *r_end = NULL;
        if (f->persist.domain != PERSIST_MSYNC) /* one commit has one domain */
            return 0;
        for (next = i; next < n && pages[next].file == f && pages[next].page >= last &&
                       (f->sparse || pages[next].page - last < CHUNK_PAGES);
             next = commit_next(pages, n, next + 1)) {
            last = pages[next].page;
            o |= pages[next].pending & pages[next].state->bitmap;
            if (!(pages[next].pending & ~pages[next].state->bitmap))
                continue;
            const char *at = pages[next].homes.r;
            r = r && r < at ? r : at;
            r_end = r_end > at + PAGE_BYTES ? r_end : at + PAGE_BYTES;
        }
        if ((o && file_flush_data(f, file_o(f, first), (last - first + 1) * PAGE_BYTES) < 0) ||
            (r && file_flush_data(f, r, (uint64_t)(r_end - r)) < 0))
            return -1;
    }
    return 0;
}

/* ---- words ---- */

/* Stores and flushes the words of all pending pages. A flush covers a line, or in domain msync the meta page:
 * there is one for consecutive words that share it. */
static int store_words(struct page_set *h)
{
    /* explorer: tear word survives: a replay of the commit's lane stores the word once more, and in a
     * deploy each bit counts by itself, since both homes hold the same. */
    for (uint64_t i = 0; i < h->n; i++)
        if (h->pages[i].pending)
            persist_store_word(&h->pages[i].file->persist, h->pages[i].homes.word,
                               commit_new_bitmap(&h->pages[i]));
    uint64_t *last = NULL;
    for (uint64_t i = 0; i < h->n; i++) {
        if (!h->pages[i].pending)
            continue;
        struct file *f = h->pages[i].file;
        uint64_t *word = h->pages[i].homes.word;
        bool flushed = f->words_wait || (last && persist_shares_flush(&f->persist, last, word));
        if (!flushed && file_flush_word(f, word) < 0)
            return -1;
        last = word;
    }
    return 0;
}

static uint64_t *size_word(const struct part *part)
{
    return (uint64_t *)(part->mapping->file->pairing.manifest + MANIFEST_SIZE_WORD);
}

/* Stores and flushes the size words of all parts that change a size. */
static int store_sizes(const struct commit *c)
{
    for (unsigned i = 0; i < c->nparts; i++) {
        const struct part *part = &c->parts[i];
        struct file *f = part->mapping->file;
        if (!part->resizes)
            continue;
        persist_store_word(&f->persist, size_word(part), manifest_encode_size(part->size));
        if (file_flush_word(f, size_word(part)) < 0)
            return -1;
    }
    return 0;
}

/* ---- showing ---- */

/* Makes the flips of all pages, and the sizes, visible in memory: at one moment for readers, since every page
 * is marked before the first bitmap changes, and the last bitmap has changed before the first mark goes. I4:
 * they are durable by now. If the process is killed meanwhile, the marks stay, and nobody reads these pages, until another
 * process recovers them. Modelled in read.pml, and what follows a kill in takeover.pml. */
static void show_all(struct commit *c)
{
    struct page_set *h = c->set;
    seam_point(SEAM_DURABLE, h);
    seam_point(SEAM_FLIP, h);
    for (unsigned i = 0; i < c->nparts; i++)
        if (c->parts[i].resizes)
            page_turn_mark(&c->parts[i].mapping->file->shared.header->sizing);
    for (uint64_t i = 0; i < h->n; i++) {
        if (!h->pages[i].pending)
            continue;
        seam_point(SEAM_FLIP, h);
        page_turn_mark(h->pages[i].state);
    }
    for (uint64_t i = 0; i < h->n; i++) {
        struct held_page *at = &h->pages[i];
        seam_point(SEAM_FLIPPING, h);
        if (at->pending)
            page_set_bitmap(at->state, commit_new_bitmap(at));
    }
    for (unsigned i = 0; i < c->nparts; i++) {
        struct part *part = &c->parts[i];
        struct file *f = part->mapping->file;
        if (!part->resizes)
            continue;
        /* Release: pairs with file_size(): a thread that sees a larger size sees the longer files. */
        __atomic_store_n(&f->shared.header->size, part->size, __ATOMIC_RELEASE);
        f->pairing.size = part->size;
        page_unmark_changed(&f->shared.header->sizing);
        part->resizes = false;
    }
    for (uint64_t i = 0; i < h->n; i++) {
        struct held_page *at = &h->pages[i];
        if (!at->pending)
            continue;
        at->pending = 0;
        seam_point(SEAM_FLIPPED, h);
        page_unmark_changed(at->state);
    }
}

/* ---- the commit ---- */

/* What a commit consists of. */
struct sum {
    uint64_t words;     /* pages and sizes */
    struct part *first; /* of the files that change, by `next` */
    unsigned files;     /* in that list */
    bool no_rtm;
};

/* By a pointer: a copy of what was just stored field by field would wait for these stores. */
static void sum_up(struct commit *c, struct sum *sum)
{
    struct part *part = NULL, **end = &sum->first;
    *sum = (struct sum){0};
    for (unsigned i = 0; i < c->nparts; i++) {
        c->parts[i].pages = c->parts[i].slices = 0;
        sum->no_rtm |= c->parts[i].mapping->flags & ATO_NO_RTM;
    }
    for (uint64_t i = 0; i < c->set->n; i++) {
        struct held_page *at = &c->set->pages[i];
        if (!at->pending)
            continue;
        part = part_of(c, at->file, part);
        part->pages++;
        part->slices += bitmap_count(at->pending);
        sum->words++;
    }
    for (unsigned i = 0; i < c->nparts; i++) {
        part = &c->parts[i];
        sum->words += part->resizes;
        if (!part->pages && !part->resizes)
            continue;
        part->index = sum->files++;
        *end = part;
        end = &part->next;
    }
    *end = NULL;
}

static bool may_use_rtm(const struct persist *p, bool no_rtm, uint64_t words)
{
    return !no_rtm && words <= PERSIST_RTM_MAX && persist_rtm_allowed(p);
}

/* ---- faults (fault.h) ---- */

/* After the stores, and before the first flip: nothing has changed yet. Returns 0; -1 with EIO. */
static int check_all(const struct sum *sum)
{
    for (const struct part *part = sum->first; part; part = part->next)
        if (file_check(part->mapping->file) < 0)
            return -1;
    return 0;
}

/* After the last flip: a word may have met a fault. */
static bool are_poisoned(const struct sum *sum)
{
    const struct part *part = sum->first;
    while (part && !file_is_poisoned(part->mapping->file))
        part = part->next;
    return part;
}

/* ---- the ways ---- */

/* Returns 1 if done; 0 if a hardware transaction cannot do it; -1 with EIO. */
static int commit_rtm(struct commit *c, const struct sum *sum)
{
    const struct persist *p = &sum->first->mapping->file->persist;
    uint64_t n = 0;
    /* Without a lane, a process that finds the words of one file after a kill could not tell that there are others. */
    if (sum->files > 1 || !may_use_rtm(p, sum->no_rtm, sum->words))
        return 0;
    struct persist_flip few[FEW], *many HEAP = NULL, *flips = few;
    if (sum->words > FEW && !(flips = many = malloc(sum->words * sizeof(*many))))
        return 0;
    for (uint64_t i = 0; i < c->set->n; i++) {
        const struct held_page *at = &c->set->pages[i];
        if (at->pending)
            flips[n++] = (struct persist_flip){at->homes.word, commit_new_bitmap(at)};
    }
    for (unsigned i = 0; i < c->nparts; i++)
        if (c->parts[i].resizes)
            flips[n++] = (struct persist_flip){size_word(&c->parts[i]),
                                               manifest_encode_size(c->parts[i].size)};
    if (check_all(sum) < 0)
        return -1;
    /* W1. Where RTM is allowed what is visible is durable: after XEND there is nothing to flush, and at no
     * moment can half of the words be seen or lost. */
    persist_fence(p);
    int done = 0;
    for (int i = 0; i < RTM_TRIES && !done; i++) {
        done = persist_flip_rtm(p, flips, n);
        if (!done)
            count(sum->first->mapping->file, COUNT_RTM_ABORTS, 1);
    }
    if (done && are_poisoned(sum))
        return file_in_doubt(sum->first->mapping->file, "a commit");
    if (done)
        show_all(c);
    return done;
}

static void begin_lane(struct journal_writer *w, const struct commit *c, const struct sum *sum,
                       const struct journal_lane *lane)
{
    struct part *part = NULL;
    journal_begin(w, lane->journal, &sum->first->mapping->file->persist, lane->lane, sum->files,
                  sum->words);
    for (part = sum->first; part; part = part->next) {
        const struct journal_file name = pairing_in_journals(&part->mapping->file->pairing);
        journal_name(w, &name);
    }
    for (uint64_t i = 0; i < c->set->n; i++) {
        const struct held_page *at = &c->set->pages[i];
        if (!at->pending)
            continue;
        part = part_of(c, at->file, part);
        journal_add(w, part->index, (uint64_t)((const char *)at->homes.word - at->file->r),
                    commit_new_bitmap(at));
    }
    for (unsigned i = 0; i < c->nparts; i++)
        if (c->parts[i].resizes)
            journal_add(w, c->parts[i].index, JOURNAL_SIZE, manifest_encode_size(c->parts[i].size));
}

/* Stores all words: one by itself, several by a lane. */
static int commit_words(struct commit *c, const struct sum *sum)
{
    const struct persist *p = &sum->first->mapping->file->persist;
    struct journal_lane lane = c->set->lane;
    const bool several = sum->words > 1;
    struct journal_writer w;
    if (several) {
        c->set->lane.journal = NULL; /* the commit gives it back */
        if (!lane.journal && journals_take_lane(sum->first, sum->words, &lane) < 0)
            return -1;
        begin_lane(&w, c, sum, &lane);
    }
    if (check_all(sum) < 0) {
        if (several)
            journals_give_lane(&lane, false);
        return -1;
    }
    /* persist-order J1 (reader: R2 journal_look, then R1): slices (W1) are durable before the commit line, or the only word,
     * that makes them count. So is the lane's list, except in domain msync: a line without its list has a wrong checksum. */
    persist_fence(p);
    if ((several && journals_step(&lane, journal_commit, &w) < 0) || store_words(c->set) < 0 ||
        store_sizes(c) < 0)
        goto doubt;
    /* persist-order J4 (reader: R2): every word is durable before the lane is retired. Otherwise a crash
     * could leave some of them stored, and no lane to store the rest from. Also W2.
     * persist-order G4 (reader: the first write beyond the old end): a larger size is durable before it
     * becomes visible. persist-order S2 (reader: clear_words in length.c): a smaller one is durable before
     * the words behind the end are cleared. */
    persist_fence(p);
    if (are_poisoned(sum))
        goto doubt;
    /* Visible before the lane is retired: a process that takes over the pages of one file (takeover.c) learns
     * from the lane that there are other files, and marks the pages of all. Without a lane all pages must be visible
     * as committed, or marked. */
    show_all(c);
    if (!several)
        return 0;
    if (journals_step(&lane, journal_retire, &w) < 0)
        goto doubt;
    journals_give_lane(&lane, false);
    count(sum->first->mapping->file, COUNT_BYTES_TO_MEDIA,
          sizeof(struct journal_commit) + sum->files * sizeof(struct journal_file) +
              sum->words * sizeof(struct journal_word) + 8);
    return 0;
doubt:
    for (struct part *part = sum->first; part; part = part->next)
        (void)file_in_doubt(part->mapping->file, "a commit");
    if (several)
        journals_give_lane(&lane, true);
    return -1;
}

int commit_prepare(struct mapping *m, struct page_set *h, uint64_t pages)
{
    if (pages < 2 || may_use_rtm(&m->file->persist, m->flags & ATO_NO_RTM, pages))
        return 0;
    const struct part part = {.mapping = m};
    return journals_take_lane(&part, pages, &h->lane);
}

static int commit(struct commit *c, const struct sum *sum)
{
    for (const struct part *part = sum->first->next; part; part = part->next)
        if (journals_alike(sum->first->mapping->file, part->mapping->file) < 0)
            return -1;
    const bool one = sum->words == 1;
    enum counter path = COUNT_COMMITS_RTM;
    int r = one ? 0 : commit_rtm(c, sum);
    if (r == 0) {
        path = one ? COUNT_COMMITS_SINGLE : COUNT_COMMITS_JOURNAL;
        r = commit_words(c, sum);
    }
    if (r < 0)
        return -1;
    for (const struct part *part = sum->first; part; part = part->next)
        if (part->pages)
            commit_account(part->mapping, path, part->slices, part->pages);
    return 0;
}

int commit_run(struct commit *c)
{
    struct held_page *only = c->set->pages;
    struct sum sum;
    if (c->set->n == 1 && only->pending && c->nparts == 1 && !c->parts->resizes)
        return commit_page(c->parts->mapping, only, bitmap_count(only->pending));
    sum_up(c, &sum);
    for (const struct part *part = sum.first; part; part = part->next)
        (void)under_way_begin(part->mapping->file);
    int r = sum.first ? commit(c, &sum) : 0;
    for (unsigned i = 0; !sum.first && i < c->nparts && r == 0; i++)
        r = file_check(c->parts[i].mapping->file); /* what was compared may have been zeros */
    for (const struct part *part = sum.first; part; part = part->next)
        under_way_end(under_way_of(part->mapping->file));
    return r;
}

int commit_each_page(struct mapping *m, struct page_set *h)
{
    struct part part = {.mapping = m};
    struct commit c = {.set = h, .parts = &part, .nparts = 1};
    struct sum sum;
    sum_up(&c, &sum);
    if (sum.words == 0)
        return 0;
    const struct persist *p = &m->file->persist;
    if (check_all(&sum) < 0) /* with pending masks: W4 when the pages are released */
        return -1;
    persist_fence(p); /* W1 */
    if (store_words(h) < 0)
        return file_in_doubt(m->file, "a commit");
    persist_fence(p); /* W2 */
    if (are_poisoned(&sum))
        return file_in_doubt(m->file, "a commit");
    seam_point(SEAM_DURABLE, h);
    for (uint64_t i = 0; i < h->n; i++)
        if (h->pages[i].pending)
            commit_show_one(&h->pages[i], false);
    commit_account(m, COUNTERS, part.slices, part.pages);
    return 0;
}
