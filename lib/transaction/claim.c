/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/transaction/claim.h"

#include "lib/commit/size.h"
#include "lib/commit/store.h"
#include "lib/file/page.h"
#include "lib/file/space.h"
#include "lib/page/load.h"
#include "lib/page/page_set_reserve.h"
#include "lib/page/part.h"
#include "lib/page/reservation.h"
#include "lib/transaction/parts.h"
#include "reflection/media/report.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

static uint64_t region_bytes(uint64_t pages)
{
    return (pages * sizeof(struct held_page) + PAGE_BYTES - 1) & ~(PAGE_BYTES - 1);
}

/* Reserves address space for all pages that the transaction may ever have, so that an entry of the list never
 * moves. Only a part of it is writable memory: systems that limit the memory of a process (RLIMIT_DATA,
 * vm.overcommit_memory=2) count what may be written to. */
static int make_region(struct tx *t, uint64_t pages)
{
    const uint64_t all = region_bytes(t->max_pages), ready = region_bytes(pages);
    const bool anew = t->region_bytes < all;
    void *region = t->region;
    if (anew)
        region = mmap(NULL, all, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (region == MAP_FAILED)
        return report_error(ENOMEM, "no address space for a transaction of %llu pages",
                            (unsigned long long)t->max_pages);
    if ((anew || t->region_ready < ready) && mprotect(region, ready, PROT_READ | PROT_WRITE) < 0) {
        if (anew)
            munmap(region, all);
        return report_error(ENOMEM, "no memory for a transaction of %llu pages",
                            (unsigned long long)pages);
    }
    if (t->set.pages != region)
        memcpy(region, t->set.pages, t->set.n * sizeof(struct held_page));
    if (anew && t->region)
        munmap(t->region, t->region_bytes);
    if (anew)
        t->region_bytes = all;
    if (anew || t->region_ready < ready)
        t->region_ready = ready;
    t->set.pages = t->region = region;
    t->set.room = t->region_ready / sizeof(struct held_page);
    if (t->set.room > t->max_pages)
        t->set.room = t->max_pages;
    return 0;
}

int claim_pin(struct tx *t)
{
    if (make_region(t, t->max_pages) < 0)
        return -1;
    t->pinned = true;
    return 0;
}

/* Pages of the first step; then their number doubles. */
enum { LEAST_PAGES = 4096 };

int claim_make_room(struct tx *t, uint64_t more)
{
    const uint64_t need = t->set.n + more;
    if (more > t->max_pages - t->set.n)
        return report_error(E2BIG,
                            "a transaction of %llu pages and %llu more: its limit is %llu "
                            "(ato_tx_options.max_bytes)",
                            (unsigned long long)t->set.n, (unsigned long long)more,
                            (unsigned long long)t->max_pages);
    if (need <= t->set.room)
        return 0;
    uint64_t pages = LEAST_PAGES;
    while (pages < need)
        pages *= 2;
    return make_region(t, pages < t->max_pages ? pages : t->max_pages);
}

struct patience claim_patience(const struct tx *t)
{
    return (struct patience){.tx_ns = t->wait_ms * 1000000u};
}

int claim_waited(struct tx *t, int r)
{
    if (r < 0 && errno == EAGAIN && t->wait_ms)
        t->refused = true;
    return r;
}

/* Reserves a page. Returns 0; -1; or, with `not_for_tx`, RESERVATION_OF_TX or RESERVATION_AGAIN instead of waiting: then
 * nothing is reserved. */
static int reserve(struct tx *t, struct file *f, struct page_state *s, uint64_t page,
                   bool not_for_tx)
{
    seam_point(SEAM_RESERVE, s);
    /* The transaction has drained the page itself (resize.c). */
    if (__builtin_expect(__atomic_load_n(&s->tx, __ATOMIC_RELAXED) ==
                                 page_set_note(t->set.tag, SIZE_DRAINED) &&
                             page_set_is_of(f, s, t->set.tag),
                         0))
        return 0;
    for (;;) {
        int r = page_try_reserve(f, s) ? 0 : RESERVATION_OF_TX;
        struct patience patience = claim_patience(t);
        if (__builtin_expect(r != 0, 0)) {
            patience.not_for_tx = not_for_tx;
            r = claim_waited(t, reservation_wait(f, s, &patience));
            if (r != 0)
                return r;
        }
        if (parts_sizing(t, f))
            return 0;
        r = reservation_within(f, page * PAGE_BYTES + 1);
        if (__builtin_expect(r == 0, 1))
            return 0;
        page_release(s);
        if (r < 0 || not_for_tx)
            return r;
        if (claim_waited(t, reservation_wait_for_size(f, &patience)) < 0)
            return -1;
    }
}

/* Reserves one page that the transaction does not have yet. There is room in the list. Returns as reserve(); after
 * -1 the page may be in the list. */
static int take(struct tx *t, struct file *f, uint64_t page, bool not_for_tx)
{
    struct page_state *s = shared_state(&f->shared, page);
    int r = s ? reserve(t, f, s, page, not_for_tx) : -1;
    if (r != 0)
        return r;
    t->set.pages[t->set.n] = (struct held_page){.file = f, .state = s, .page = page};
    /* Release: pairs with look() in epoch.c, which follows this to the entry stored above. */
    __atomic_store_n(&s->tx, page_set_note(t->set.tag, t->set.n), __ATOMIC_RELEASE);
    t->set.n++;
    /* As in reserve_page(). */
    return file_check(f) < 0 || load_page(f, page, s) < 0 ? -1 : 0;
}

void claim_give_back(struct tx *t, uint64_t n)
{
    for (uint64_t i = t->set.n; i > n; i--) {
        struct held_page *at = &t->set.pages[i - 1];
        const struct part *part = parts_sizing(t, at->file);
        if (part)
            space_forget_behind_in(at->file, at->page, at->state);
        if (!part || at->page < layout_pages(part->low) || at->page >= layout_pages(part->old))
            continue;
        /* It was taken from the drained pages, and goes back there. The last page takes its place. */
        __atomic_store_n(&at->state->tx, page_set_note(t->set.tag, SIZE_DRAINED), __ATOMIC_RELAXED);
        *at = t->set.pages[--t->set.n];
        if (i - 1 < t->set.n)
            __atomic_store_n(&at->state->tx, page_set_note(t->set.tag, i - 1), __ATOMIC_RELAXED);
    }
    page_set_release_from(&t->set, n);
}

struct held_page *claim_new_page(struct tx *t, struct file *f, uint64_t page)
{
    uint64_t before = t->set.n;
    if (claim_make_room(t, 1) < 0)
        return NULL;
    if (take(t, f, page, false) == 0)
        return &t->set.pages[before];
    claim_give_back(t, before);
    return NULL;
}

int claim_missing(struct tx *t, struct file *f, uint64_t first, uint64_t last, bool not_for_tx,
                  uint64_t *page)
{
    uint64_t missing = 0;
    for (uint64_t at = first; at <= last; at++)
        missing += !claim_find(t, f, at);
    if (missing && claim_make_room(t, missing) < 0)
        return -1;
    for (*page = first; *page <= last && missing; (*page)++) {
        int r = claim_find(t, f, *page) ? 0 : take(t, f, *page, not_for_tx);
        if (r != 0)
            return r;
    }
    return file_check(f);
}

int claim_range(struct tx *t, struct file *f, uint64_t first, uint64_t last)
{
    uint64_t before = t->set.n, page;
    if (claim_missing(t, f, first, last, false, &page) == 0)
        return 0;
    claim_give_back(t, before);
    return -1;
}

/* How many spans ahead page states and homes are prefetched before they are reserved. */
enum { FETCHED = 4 };

static inline __attribute__((always_inline)) void fetch_span(const struct page_span *span)
{
    const struct page_state *s = shared_peek(&span->file->shared, span->first);
    if (s)
        store_fetch(span->file, s, span->first, 0);
}

/* One try. Returns 0; -1; or RESERVATION_OF_TX, RESERVATION_AGAIN for page *page of *file. */
static int try_spans(struct tx *t, const struct page_span *spans, unsigned n, struct file **file,
                     uint64_t *page)
{
    for (unsigned i = 0; i < n && i < FETCHED; i++)
        fetch_span(&spans[i]);
    for (unsigned i = 0; i < n; i++) {
        if (i + FETCHED < n)
            fetch_span(&spans[i + FETCHED]);
        *file = spans[i].file;
        for (*page = spans[i].first; *page <= spans[i].last; (*page)++) {
            if (claim_find(t, *file, *page))
                continue;
            int r = claim_make_room(t, 1);
            if (r == 0)
                r = take(t, *file, *page, true);
            if (r != 0)
                return r;
        }
    }
    int r = 0;
    for (unsigned i = 0; i < n && r == 0; i++) {
        *file = spans[i].file;
        r = reservation_within(*file, spans[i].end);
    }
    return r;
}

int claim_in_order(struct tx *t, const struct page_span *spans, unsigned n)
{
    struct file *f;
    uint64_t page;
    int r = try_spans(t, spans, n, &f, &page);
    while (r > 0) {
        page_set_release_from(&t->set, 0);
        r = page_set_await(f, page, r, 0);
        if (r == 0)
            r = try_spans(t, spans, n, &f, &page);
    }
    return r;
}
