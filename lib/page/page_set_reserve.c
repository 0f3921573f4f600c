/* SPDX-License-Identifier: BSD-3-Clause */
/* The order of reservations, of W4 and of releases is modelled in read.pml. */
#include "lib/page/page_set_reserve.h"

#include "lib/file/undo.h"
#include "lib/page/scratch.h"
#include "reflection/media/races.h"
#include "reflection/media/report.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int page_set_make_room(struct page_set *h, uint64_t more)
{
    if (h->room - h->n >= more)
        return 0;
    uint64_t room = h->n + more > 2 * h->room ? h->n + more : 2 * h->room;
    struct held_page *kept = h->pages == h->small ? NULL : h->pages;
    struct held_page *pages = realloc(kept, room * sizeof(*pages));
    if (!pages)
        return report_error(ENOMEM, "no memory to hold %llu pages", (unsigned long long)room);
    if (!kept)
        memcpy(pages, h->small, h->n * sizeof(*pages));
    h->pages = pages;
    h->room = room;
    return 0;
}

int page_set_await(struct file *f, uint64_t page, enum reservation why, uint32_t epoch)
{
    const struct patience patience = {.epoch = epoch};
    if (why == RESERVATION_AGAIN)
        return reservation_wait_for_size(f, &patience);
    struct page_state *s = shared_state(&f->shared, page);
    int r = s ? reservation_take(f, s, &patience) : -1;
    if (r == 0)
        page_release(s);
    return r < 0 ? -1 : 0;
}

int page_set_take_base(struct held_page *at)
{
    const struct page_state *s = at->state;
    struct file *f = at->file;
    const struct page_state *showing = &f->shared.header->undo.showing;
    char *base = aligned_alloc(SLICE_BYTES, PAGE_BYTES);
    if (!base)
        return report_error(ENOMEM, "no memory for a page of %s", f->pairing.path);
    for (unsigned i = 0;; i++) { /* it may come home meanwhile */
        const uint64_t version = __atomic_load_n(&s->version, __ATOMIC_ACQUIRE);
        int r = 0;
        RACES_MEANT_BEGIN(); /* as in read_at_once() */
        if (undo_is_early(f, s))
            r = undo_newest(f, at->page, s, version, 0, PAGE_BYTES, base);
        else
            f->persist.kernel->plain(base, at->homes.o, PAGE_BYTES);
        RACES_MEANT_END(base, PAGE_BYTES);
        __atomic_thread_fence(__ATOMIC_ACQUIRE);
        if (r == 0 && __atomic_load_n(&s->version, __ATOMIC_RELAXED) == version)
            break;
        if (r < 0 || (r > 0 && reservation_await(f, showing, i) < 0)) {
            free(base);
            return -1;
        }
    }
    at->homes.o = base;
    return 0;
}

/* How many spans ahead page states and homes are prefetched; of one span, how many pages. */
enum { FETCHED = 4 };

static inline __attribute__((always_inline)) void fetch(const struct page_span *span, uint64_t page)
{
    const struct page_state *s = page <= span->last ? shared_look(&span->file->shared, page) : NULL;
    const struct homes homes = file_homes_of(span->file, page, s);
    if (s)
        page_fetch(&homes, s, 0);
}

/* One attempt. RESERVATION_OF_TX or RESERVATION_AGAIN: because of *page of *file. */
static enum reservation try_spans(struct page_set *h, const struct page_span *spans, unsigned n,
                                  struct file **file, uint64_t *page)
{
    const struct patience patience = {.not_for_tx = true};
    enum reservation r = RESERVATION_MINE;
    for (unsigned i = 0; i < FETCHED; i++)
        if (n == 1)
            fetch(spans, spans->first + i);
        else if (i < n)
            fetch(&spans[i], spans[i].first);
    for (unsigned i = 0; i < n && r == RESERVATION_MINE; i++) {
        if (i + FETCHED < n)
            fetch(&spans[i + FETCHED], spans[i + FETCHED].first);
        const struct held_page *last = h->n ? &h->pages[h->n - 1] : NULL;
        *file = spans[i].file;
        *page = spans[i].first;
        if (last && last->file == *file && *page <= last->page)
            *page = last->page + 1;
        for (; *page <= spans[i].last; (*page)++) {
            r = page_set_take(h, *file, *page, lesser(spans[i].end, *page * PAGE_BYTES + 1),
                              &patience);
            if (r != RESERVATION_MINE)
                return r;
        }
        r = reservation_within(*file, spans[i].end);
    }
    return r;
}

int page_set_reserve(struct page_set *h, const struct page_span *spans, unsigned n)
{
    struct file *f;
    uint64_t page, pages = 0;
    for (unsigned i = 0; i < n; i++)
        pages += spans[i].last - spans[i].first + 1;
    if (page_set_make_room(h, pages) < 0)
        return -1;
    for (enum reservation r; (r = try_spans(h, spans, n, &f, &page)) != RESERVATION_MINE;) {
        page_set_release_from(h, 0);
        if (r == RESERVATION_FAILED || page_set_await(f, page, r, 0) < 0)
            return -1;
    }
    return 0;
}

void page_set_release_from(struct page_set *h, uint64_t n)
{
    const struct persist *aborted = h->forgotten;
    for (uint64_t i = n; i < h->n; i++)
        if (h->pages[i].pending)
            aborted = &h->pages[i].file->persist;
    /* persist-order W4 (reader: the next holder of the page): stores of an operation that came to nothing
     * have arrived before the page is released. Non-temporal stores are not ordered with the release; a
     * late one would overwrite what the next holder has stored there and flipped. I2.
     * explorer: drop fence survives: it orders what other CPUs see, not what a crash leaves, and the
     * explorer lets one thread run at a time.
     * explorer: delay fence survives: for the same reason. */
    if (__builtin_expect(!!aborted, 0))
        persist_fence(aborted);
    for (uint64_t i = n; i < h->n; i++) {
        struct page_state *s = h->pages[i].state;
        struct file *f = h->pages[i].file;
        if (__builtin_expect(!h->pages[i].homes.word, 0))
            scratch_give(f, h->pages[i].homes.r);
        if (__builtin_expect(f->logged, 0) && h->pages[i].homes.o != file_o(f, h->pages[i].page))
            free(h->pages[i].homes.o);
        if (h->tag)
            __atomic_store_n(&s->tx, 0, __ATOMIC_RELAXED);
        page_release(s);
    }
    h->n = n;
    if (n == 0)
        h->forgotten = NULL;
}

void page_set_release(struct page_set *h)
{
    page_set_release_from(h, 0);
    if (h->pages != h->small)
        free(h->pages);
    page_set_init(h);
}

int page_set_order(const struct file *a, uint64_t a_page, const struct file *b, uint64_t b_page)
{
    int order = a == b ? 0 : memcmp(a->pairing.record.id, b->pairing.record.id, 16);
    return order ? order : (a_page > b_page) - (a_page < b_page);
}
