/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The bitmaps on the media are the truth. What the dead process was about to show in memory, or had shown in
 * part, is taken from there: all its pages are marked as flipping, all words are reloaded, all marks go. So
 * readers of several pages see its last operation as a whole or not at all. Modelled in takeover.pml, but for
 * the size.
 *
 * A shrink that is durable is shown as flip.c does: pages whose states are new since the dead one drained
 * them are held by nobody, or for a moment by who is about to load one and find out. They are taken, too.
 */
#include "takeover.h"

#include "../reflection/bitmap.h"
#include "../reflection/domain.h"
#include "../reflection/growth.h"
#include "../reflection/meta.h"
#include "../reflection/report.h"
#include "peers.h"
#include "size.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

struct page {
    struct page_state *state;
    uint64_t page;
};

struct dead {
    struct file *f;
    uint32_t holder;
    struct page *pages;
    uint64_t n, room;
    bool sizing;
    uint64_t size; /* as it is on the media */
    /* Of the meta page that was looked at last: */
    uint64_t chunk;
    bool has_words;
    char *words; /* its mapping, where the views do not reach so far */
};

static int add(struct dead *d, struct page_state *s, uint64_t page)
{
    if (d->n == d->room) {
        const uint64_t room = d->room ? 2 * d->room : 64;
        struct page *more = realloc(d->pages, room * sizeof(*more));
        if (!more)
            return report_error(ENOMEM, "no memory to free what a dead process held of %s",
                                d->f->pairing.path);
        d->pages = more;
        d->room = room;
    }
    d->pages[d->n++] = (struct page){s, page};
    return 0;
}

static bool is_his(const struct dead *d, const struct page_state *s)
{
    return __atomic_load_n(&s->holder, __ATOMIC_ACQUIRE) == d->holder;
}

static int find_pages(struct dead *d)
{
    uint64_t page = 0;
    for (struct page_state *s; (s = shared_next_state(&d->f->shared, &page, UINT64_MAX));)
        if (is_his(d, s) && add(d, s, page - 1) < 0)
            return -1;
    return 0;
}

/* Its holder may have marked it. 0: not loaded, and no reader goes by it. */
static void mark(struct page_state *s)
{
    if (s->version & 1)
        pages_mark_flipping(s);
}

static void unmark(struct page_state *s)
{
    if (s->version)
        pages_unmark_flipping(s);
}

/* ---- the size ---- */

static int reload_size(struct dead *d)
{
    struct file *f = d->f;
    pthread_mutex_lock(&f->medium);
    int r = pages_settle_word(f, growth_size_word(&f->pairing)); /* R5 */
    pthread_mutex_unlock(&f->medium);
    if (r < 0 || pairing_refresh_size(&f->pairing) < 0)
        return -1;
    d->size = f->pairing.size;
    return 0;
}

/* A page that is cut off and not his. */
static int claim(struct dead *d, struct page_state *s, uint64_t page)
{
    struct file *f = d->f;
    for (unsigned i = 0; !pages_try_reserve(f, s); i++) {
        uint32_t holder = __atomic_load_n(&s->holder, __ATOMIC_RELAXED);
        if (holder == d->holder) /* he had it all the time */
            return 0;
        /* Dead, too: it did no more than to load the page, since the end was before it. */
        if (holder && i % 1024 == 1023 && peers_is_dead(f, holder) &&
            __atomic_compare_exchange_n(&s->holder, &holder, f->holder, false, __ATOMIC_ACQUIRE,
                                        __ATOMIC_RELAXED))
            break;
        pages_pause(i);
    }
    if (add(d, s, page) == 0)
        return 0;
    pages_release(s);
    return -1;
}

/* As size_mark(). */
static int claim_cut_off(struct dead *d)
{
    struct shared_header *h = d->f->shared.header;
    uint64_t page = layout_pages(d->size);
    size_note_lowest(d->f, d->size);
    if (d->size >= __atomic_load_n(&h->size, __ATOMIC_RELAXED))
        return 0;
    __atomic_store_n(&h->gone, page * PAGE_BYTES, __ATOMIC_RELEASE);
    /* Pairs with may_load() in pages.c. */
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    for (struct page_state *s; (s = shared_next_state(&d->f->shared, &page, UINT64_MAX));)
        if (!is_his(d, s) && claim(d, s, page - 1) < 0)
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

/* Where the word of a page lies; NULL: it is 0, in a hole, where a load might be SIGBUS; or (*r is -1)
 * it cannot be had. */
static const uint64_t *find_word(struct dead *d, uint64_t page, int *r)
{
    const struct pairing *pr = &d->f->pairing;
    const uint64_t chunk = page / CHUNK_PAGES;
    if (chunk != d->chunk) {
        forget_words(d);
        const uint64_t there = meta_next(pr->reflection, chunk, chunk + 1);
        if (there == UINT64_MAX)
            *r = report_errno(errno, "cannot look for the bitmaps of %s", pr->path);
        d->has_words = there == chunk;
        d->chunk = chunk;
    }
    if (!d->has_words)
        return NULL;
    if ((chunk + 1) * CHUNK_PAGES * PAGE_BYTES <= d->f->max_size)
        return file_word(d->f, page);
    if (!d->words) {
        void *map = domain_map(d->f->persist.domain, NULL, PAGE_BYTES, PROT_READ | PROT_WRITE,
                               pr->reflection, (off_t)layout_meta_page(chunk));
        if (map == MAP_FAILED) {
            *r = report_errno(errno, "cannot map the bitmaps of %s", pr->path);
            return NULL;
        }
        d->words = map;
    }
    return (const uint64_t *)d->words + page % CHUNK_PAGES;
}

static int reload_page(struct dead *d, const struct page *p)
{
    struct file *f = d->f;
    int r = 0;
    uint64_t bitmap = 0;
    if (!p->state->version)
        return 0;
    const uint64_t *word = find_word(d, p->page, &r);
    if (word) {
        r = pages_settle_word(f, word); /* R5 */
        bitmap = __atomic_load_n(word, __ATOMIC_RELAXED);
    }
    pages_set_bitmap(p->state, bitmap & bitmap_within(p->page, d->size));
    return r;
}

/* ---- all of it ---- */

/* A failure poisons the file: nobody knows what is on the media. As in file_msync(), one flush at a time. */
static void reload(struct dead *d)
{
    struct file *f = d->f;
    int r = d->sizing ? reload_size(d) : 0;
    if (r == 0 && d->sizing)
        r = claim_cut_off(d);
    for (uint64_t i = 0; i < d->n; i++)
        mark(d->pages[i].state);
    pthread_mutex_lock(&f->medium);
    for (uint64_t i = 0; i < d->n && r == 0; i++)
        r = reload_page(d, &d->pages[i]);
    pthread_mutex_unlock(&f->medium);
    if (r < 0)
        file_poison(f);
    forget_words(d);
}

static void give_back(struct page_state *s)
{
    __atomic_store_n(&s->tx, 0, __ATOMIC_RELAXED);
    pages_release(s);
}

int takeover(struct file *f, uint32_t gone)
{
    struct shared_header *h = f->shared.header;
    struct dead d = {.f = f,
                     .holder = gone,
                     .chunk = UINT64_MAX,
                     .size = __atomic_load_n(&h->size, __ATOMIC_RELAXED)};
    if (find_pages(&d) < 0) {
        free(d.pages);
        return -1;
    }
    d.sizing = is_his(&d, &h->sizing);
    if (d.sizing)
        mark(&h->sizing);
    reload(&d);
    if (d.sizing)
        __atomic_store_n(&h->size, d.size, __ATOMIC_RELEASE);
    for (uint64_t i = 0; i < d.n; i++)
        unmark(d.pages[i].state);
    if (d.sizing) {
        __atomic_store_n(&h->gone, UINT64_MAX, __ATOMIC_RELEASE);
        unmark(&h->sizing);
    }
    /* Who died may have stored to the original, and the kernel not have moved its times. */
    file_note_written(f);
    for (uint64_t i = 0; i < d.n; i++) {
        const struct held at = {.file = f, .state = d.pages[i].state, .page = d.pages[i].page};
        size_forget_behind(&at);
        give_back(at.state);
    }
    if (d.sizing) {
        __atomic_store_n(&h->cut, UINT64_MAX, __ATOMIC_RELEASE);
        give_back(&h->sizing);
    }
    free(d.pages);
    return 0;
}
