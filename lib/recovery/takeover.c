/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The bitmaps on the media are authoritative. The dead process may have made them visible in memory in part, or not
 * at all. So all its pages are marked as flipping, all words are reloaded, all marks are removed. So readers of
 * several pages see its last operation as a whole or not at all. Modelled in takeover.pml, except for the size.
 *
 * A shrink that is durable becomes visible as in showing.c. Pages that got a state after the dead process had drained
 * the others are held by no thread, or for a moment by one that wants to load the page and finds the end before it.
 * These pages are taken too.
 */
#include "lib/recovery/takeover.h"

#include "lib/file/attach.h"
#include "lib/file/page.h"
#include "lib/file/space.h"
#include "reflection/media/bitmap.h"
#include "reflection/media/domain.h"
#include "reflection/media/fsops.h"
#include "reflection/media/report.h"
#include "reflection/pairing/growth.h"
#include "reflection/pairing/meta.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

struct page {
    struct page_state *state;
    uint64_t page;
    uint64_t bitmap; /* as on the media */
    bool showed;     /* marked as flipping when its holder died */
};

struct dead {
    struct file *f;
    uint32_t holder;
    struct page *pages;
    uint64_t n, room;
    bool sizing;
    bool unsettled; /* some words must be made durable */
    bool in_place;  /* a word of the original, too */
    uint64_t size;  /* as on the media */
    void *words;    /* own mapping of a meta page beyond the views; NULL: none */
};

static int add(struct dead *d, struct page_state *s, uint64_t page)
{
    if (d->n == d->room) {
        const uint64_t room = d->room ? 2 * d->room : 64;
        struct page *more = realloc(d->pages, room * sizeof(*more));
        if (!more)
            return report_error(
                ENOMEM, "no memory to free the pages of %s that a dead process had reserved",
                d->f->pairing.path);
        d->pages = more;
        d->room = room;
    }
    d->pages[d->n++] =
        (struct page){.state = s, .page = page, .showed = s->version && !(s->version & 1)};
    return 0;
}

static bool is_held_by(const struct page_state *s, uint32_t holder)
{
    return __atomic_load_n(&s->holder, __ATOMIC_ACQUIRE) == holder;
}

static bool has(const struct dead *d, const struct page_state *s)
{
    return is_held_by(s, d->holder);
}

static int find_pages(struct dead *d)
{
    uint64_t page = 0;
    for (struct page_state *s; (s = shared_next_state(&d->f->shared, &page, UINT64_MAX));)
        if (has(d, s) && add(d, s, page - 1) < 0)
            return -1;
    return 0;
}

/* Marks a page, unless the dead process has marked it already. Such a page keeps its owner: that thread's
 * shared_showing tells readers which state of the page is current, until all is reloaded. Version 0: not loaded, so
 * no reader uses it. */
static void mark(struct page_state *s)
{
    if (s->version & 1)
        page_mark_for(s, PAGE_TAKEN_OVER);
}

static void unmark(struct page_state *s)
{
    if (s->version)
        page_unmark_flipping(s);
}

/* ---- the size ---- */

static int reload_size(struct dead *d)
{
    struct file *f = d->f;
    pthread_mutex_lock(&f->medium);
    int r = page_flush_words(f, growth_size_word(&f->pairing), 1); /* R5 */
    pthread_mutex_unlock(&f->medium);
    if (r < 0 || pairing_refresh_size(&f->pairing) < 0)
        return -1;
    d->size = f->pairing.size;
    return 0;
}

/* Reserves a page that is cut off and that the dead process does not hold. */
static int claim(struct dead *d, struct page_state *s, uint64_t page)
{
    struct file *f = d->f;
    for (unsigned i = 0; !page_try_reserve(f, s); i++) {
        uint32_t holder = __atomic_load_n(&s->holder, __ATOMIC_RELAXED);
        if (holder == d->holder) /* the dead process had it all the time */
            return 0;
        /* This holder is dead too. It did no more than load the page, since the end was before it. */
        if (holder && i % 1024 == 1023 && attach_is_dead(f, holder) &&
            __atomic_compare_exchange_n(&s->holder, &holder, f->holder, false, __ATOMIC_ACQUIRE,
                                        __ATOMIC_RELAXED))
            break;
        page_pause(i);
    }
    if (add(d, s, page) == 0)
        return 0;
    page_release(s);
    return -1;
}

/* Reserves the pages that a smaller size cuts off, as size_mark(). */
static int claim_cut_off(struct dead *d)
{
    struct shared_header *h = d->f->shared.header;
    uint64_t page = layout_pages(d->size);
    space_note_lowest(d->f, d->size);
    if (d->size >= __atomic_load_n(&h->size, __ATOMIC_RELAXED))
        return 0;
    __atomic_store_n(&h->gone, page * PAGE_BYTES, __ATOMIC_RELEASE);
    /* Pairs with may_load() in load.c. */
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    for (struct page_state *s; (s = shared_next_state(&d->f->shared, &page, UINT64_MAX));)
        if (!has(d, s) && claim(d, s, page - 1) < 0)
            return -1;
    return 0;
}

/* ---- words ---- */

static void forget_words(struct dead *d)
{
    if (d->words)
        munmap(d->words, PAGE_BYTES);
    d->words = NULL;
}

/* Sets *words to the words of a chunk; to NULL if they are 0 in a hole, where a load might be SIGBUS. Returns 0;
 * -1. */
static int find_words(struct dead *d, uint64_t chunk, const uint64_t **words)
{
    const struct pairing *pr = &d->f->pairing;
    const uint64_t there = meta_next(pr->reflection, chunk, chunk + 1);
    *words = NULL;
    if (there == UINT64_MAX)
        return report_errno(errno, "cannot search the bitmaps of %s", pr->path);
    if (there != chunk)
        return 0;
    if ((chunk + 1) * CHUNK_PAGES * PAGE_BYTES <= d->f->max_size) {
        *words = file_word(d->f, chunk * CHUNK_PAGES);
        return 0;
    }
    forget_words(d);
    void *map = domain_map(d->f->persist.domain, NULL, PAGE_BYTES, PROT_READ | PROT_WRITE,
                           pr->reflection, (off_t)layout_meta_page(chunk));
    if (map == MAP_FAILED)
        return report_errno(errno, "cannot map the bitmaps of %s", pr->path);
    *words = d->words = map;
    return 0;
}

/* Notes the bitmaps of pages [first, end) of `d`, which share a meta page, and makes them durable. Not where memory
 * has the same bitmap: then it is durable already (I4; and no word ever returns to an earlier value). This avoids a
 * wait until all that a transaction has stored is durable, though no process will ever read it. */
static int note_chunk(struct dead *d, uint64_t first, uint64_t end)
{
    const uint64_t *words;
    uint64_t low = CHUNK_PAGES, high = 0;
    if (find_words(d, d->pages[first].page / CHUNK_PAGES, &words) < 0)
        return -1;
    for (uint64_t i = first; i < end; i++) {
        struct page *p = &d->pages[i];
        const uint64_t at = p->page % CHUNK_PAGES;
        const uint64_t word = words ? __atomic_load_n(&words[at], __ATOMIC_RELAXED) : 0;
        p->bitmap = word & bitmap_within(p->page, d->size);
        /* It was flipping, and does not flip. */
        d->in_place |= p->showed && word == p->state->bitmap;
        if (!words || !p->state->version || word == p->state->bitmap)
            continue;
        low = at < low ? at : low;
        high = at > high ? at : high;
    }
    if (low > high)
        return 0;
    /* In domain msync each call takes as long as one for all words. */
    d->unsettled = d->f->persist.domain == PERSIST_MSYNC && d->n > 1;
    return d->unsettled ? 0 : page_flush_words(d->f, words + low, high - low + 1); /* R5 */
}

static int note_bitmaps(struct dead *d)
{
    int r = 0;
    for (uint64_t first = 0, end; r == 0 && first < d->n; first = end) {
        const uint64_t chunk = d->pages[first].page / CHUNK_PAGES;
        for (end = first + 1; end < d->n && d->pages[end].page / CHUNK_PAGES == chunk;)
            end++;
        r = note_chunk(d, first, end);
    }
    /* persist-order R5 (writer: W2 in commit.c): as in page_flush_words(). */
    if (r == 0 && d->unsettled && fsops_fsync(d->f->pairing.reflection) < 0)
        r = report_errno(errno, "cannot make the bitmaps of %s durable", d->f->pairing.path);
    /* persist-order R6 (writer: W6 in write.c): a word that was stored in place may be visible and not durable. */
    if (r == 0 && d->in_place && d->f->persist.domain != PERSIST_PROCESS &&
        fsops_fsync(d->f->pairing.original) < 0)
        r = report_errno(errno, "cannot make %s durable", d->f->pairing.path);
    return r;
}

/* ---- all of it ---- */

static void show(const struct dead *d)
{
    struct shared_slot *slot = &d->f->shared.slots[shared_slot_of(d->holder)];
    if (d->sizing)
        __atomic_store_n(&d->f->shared.header->coming, d->size, __ATOMIC_RELEASE);
    /* Release: a reader that sees one of the bitmaps below, and does not wait until the marks are removed, sees
     * this too. */
    if (shared_holder(shared_slot_of(d->holder), slot->generation) == d->holder)
        __atomic_store_n(&slot->reloaded, 1, __ATOMIC_RELEASE);
    for (uint64_t i = 0; i < d->n; i++) {
        seam_point(SEAM_FLIPPING, d->f);
        if (d->pages[i].state->version)
            page_set_bitmap(d->pages[i].state, d->pages[i].bitmap);
    }
}

/* Reloads all from the media. A failure poisons the file: it is then unknown what the media have. As in
 * file_msync(), one flush at a time. The pages are in ascending order, except those that were claimed. */
static void reload(struct dead *d)
{
    struct file *f = d->f;
    int r = d->sizing ? reload_size(d) : 0;
    if (r == 0 && d->sizing)
        r = claim_cut_off(d);
    for (uint64_t i = 0; i < d->n; i++) {
        seam_point(SEAM_FLIP, f);
        mark(d->pages[i].state);
    }
    pthread_mutex_lock(&f->medium);
    if (r == 0)
        r = note_bitmaps(d);
    pthread_mutex_unlock(&f->medium);
    if (r == 0)
        show(d);
    else
        file_poison(f);
    forget_words(d);
}

static void give_back(struct page_state *s)
{
    __atomic_store_n(&s->tx, 0, __ATOMIC_RELAXED);
    page_release(s);
}

/* Hides the state that its holder was making visible: another file of the commit may decide which state is current. */
void takeover_hide(struct page_state *s)
{
    if (s->version & 1)
        page_mark_for(s, PAGE_HIDDEN);
    else
        __atomic_store_n(&s->owner, PAGE_HIDDEN, __ATOMIC_RELEASE);
}

void takeover_hide_all(struct shared *s, uint32_t gone)
{
    uint64_t page = 0;
    for (struct page_state *at; (at = shared_next_state(s, &page, UINT64_MAX));)
        if (is_held_by(at, gone))
            takeover_hide(at);
    if (is_held_by(&s->header->sizing, gone))
        takeover_hide(&s->header->sizing);
}

int takeover(struct file *f, uint32_t gone)
{
    struct shared_header *h = f->shared.header;
    struct dead d = {.f = f, .holder = gone, .size = __atomic_load_n(&h->size, __ATOMIC_RELAXED)};
    if (find_pages(&d) < 0) {
        free(d.pages);
        return -1;
    }
    d.sizing = has(&d, &h->sizing);
    if (d.sizing)
        mark(&h->sizing);
    reload(&d);
    if (d.sizing)
        __atomic_store_n(&h->size, d.size, __ATOMIC_RELEASE);
    for (uint64_t i = 0; i < d.n; i++) {
        seam_point(SEAM_FLIPPED, f);
        unmark(d.pages[i].state);
    }
    if (d.sizing) {
        __atomic_store_n(&h->gone, UINT64_MAX, __ATOMIC_RELEASE);
        unmark(&h->sizing);
    }
    /* The dead process may have stored to the original, and the kernel may not have changed its mtime yet. */
    file_note_written(f);
    for (uint64_t i = 0; i < d.n; i++) {
        space_forget_behind(f, d.pages[i].page, d.pages[i].state);
        give_back(d.pages[i].state);
    }
    if (d.sizing) {
        __atomic_store_n(&h->cut, UINT64_MAX, __ATOMIC_RELEASE);
        give_back(&h->sizing);
    }
    free(d.pages);
    return 0;
}
