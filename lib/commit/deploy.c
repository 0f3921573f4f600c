/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Copies slices whose bit is 1 from R to O, which is their invalid home (I2), fences, and flips the bits to
 * 0. The content of a page does not change, so each page may flip by itself, without a journal, and many
 * pages share the two fences.
 */
#include "lib/commit/deploy.h"

#include "lib/commit/commit.h"
#include "lib/commit/log.h"
#include "lib/commit/show.h"
#include "lib/file/page.h"
#include "lib/file/place.h"
#include "lib/file/space.h"
#include "lib/page/page_set_reserve.h"
#include "lib/page/reservation.h"
#include "reflection/media/bitmap.h"
#include "reflection/media/heap.h"
#include "reflection/media/report.h"
#include "reflection/pairing/length.h"
#include "reflection/pairing/meta.h"

#include <errno.h>

/* Pages that share two fences. */
enum { BATCH = PAGE_SET_SMALL };

static int copy_home(struct held_page *at)
{
    struct file *f = at->file;
    struct page_state *s = at->state;
    uint64_t mask = s->bitmap;
    if (!mask)
        return 0;
    if (file_check(f) < 0) /* I2: a flip in doubt may have made O valid */
        return -1;
    /* The word is not 0, so it has space. But the pages beside its meta page may have none
     * (domain_make_storable()). */
    if (!(s->flags & PAGE_R_ALLOCATED) &&
        space_make_meta(f, file_place(f, at->page) / layout_chunk(file_format(f))) < 0)
        return -1;
    if (!(s->flags & PAGE_O_ALLOCATED) && space_make(f, at->page, PAGE_O_ALLOCATED) < 0)
        return -1;
    persist_home(&f->persist, at->homes.o, at->homes.r, mask, false);
    at->pending = mask;
    count(f, COUNT_DEPLOYED_SLICES, bitmap_count(mask));
    file_note_written(f);
    return 0;
}

/* Deploys all slices of the held pages of the file. No held page has a pending mask. Returns 0; -1 with errno. */
static int deploy_held(struct file *f, struct page_set *h)
{
    struct store_look look;
    int r = 0;
    show_look_begin(&look, f, h->own_views, false);
    /* A page without space keeps no other one from coming home, whose space an eager write has taken. */
    for (uint64_t i = 0; i < h->n; i++) {
        struct held_page *at = &h->pages[i];
        if (at->file != f || !at->state->bitmap)
            continue;
        store_look_before(&look, at->page);
        if (copy_home(at) < 0)
            r = -1;
        store_look_after(&look, at->page);
    }
    /* The pages that were copied may flip even if others failed. */
    if (commit_each_page(f, h) < 0)
        r = -1;
    show_look_end(&look);
    return r;
}

int deploy_committed(struct file *f, struct page_set *h)
{
    if (f->logged) /* show() has brought them home */
        return 0;
    /* persist-order W3 (reader: read.c, point 2): the flip becomes visible before the homes that it
     * made invalid are stored to. Elsewhere a reservation, a locked instruction, lies between them.
     * Here there is none, and non-temporal stores do not wait for earlier stores.
     * explorer: drop fence survives: it orders what other CPUs see, not what a crash leaves, and
     * the explorer lets one thread run at a time.
     * explorer: delay fence survives: for the same reason. */
    persist_fence(&f->persist);
    return deploy_held(f, h);
}

int deploy_pages(struct file *f, const uint64_t *pages, uint64_t n)
{
    struct page_span spans[BATCH];
    for (uint64_t i = 0, count, r; i < n; i += count) {
        count = lesser(n - i, BATCH);
        for (uint64_t k = 0; k < count; k++)
            spans[k] =
                (struct page_span){f, pages[i + k], pages[i + k], pages[i + k] * PAGE_BYTES + 1};
        struct page_set h;
        page_set_init(&h);
        r = page_set_reserve(&h, spans, (unsigned)count) < 0 || deploy_held(f, &h) < 0;
        page_set_release(&h);
        if (r)
            return -1;
    }
    return 0;
}

/* Reads the words of n pages of one chunk of a dense reflection. What they say of pages that are not loaded stays true after a
 * power cut. Returns 0; -1 with errno. */
static int read_words(const struct file *f, uint64_t first, uint64_t n, uint64_t *words)
{
    if (file_read_words(f, first, n, words, NULL) < 0)
        return -1;
    if (f->shared.header->settled || !meta_has_space(f->pairing.reflection, LAYOUT_DENSE, first))
        return 0;
    /* persist-order R4 (writer: W2 in commit.h): the caller takes a page with word 0 as deployed, and loads of the view may see it.
     * I5.
     * explorer: drop flush survives: no case has plain loads of the view after a deploy; calls that read flush the word themselves.
     * A unit test counts the flushes. */
    if (persist_flush_any(&f->persist, f->r + layout_meta_page(LAYOUT_DENSE, first / CHUNK_PAGES),
                          PAGE_BYTES) < 0)
        return report_errno(errno, "cannot make the bitmaps of %s durable", f->pairing.path);
    /* explorer: drop fence survives: as the flush.
     * explorer: delay fence survives: for the same reason. */
    persist_fence(&f->persist);
    return 0;
}

/* Finds the pages from *page to `last` that may have slices in R, or are held: their holder may be about to flip them, so the
 * caller has to wait for its release. Stops at the end of a chunk of a dense reflection, and sets *page to the next page. Makes no
 * state for pages that nobody has touched. Returns how many there are, in `found`; -1 with errno. Both arrays have room for those of a chunk. */
static int find_away(const struct file *f, uint64_t *page, uint64_t last, uint64_t *found,
                     uint64_t *words)
{
    const uint64_t end = lesser(last, *page | (CHUNK_PAGES - 1));
    uint64_t from = UINT64_MAX;
    int n = 0;
    for (; *page <= end; ++*page) {
        const struct page_state *s = shared_peek(&f->shared, *page);
        const uint64_t version = s ? __atomic_load_n(&s->version, __ATOMIC_ACQUIRE) : 0;
        bool away = s && __atomic_load_n(&s->holder, __ATOMIC_ACQUIRE);
        if (version) {
            away |= !(version & 1) || __atomic_load_n(&s->bitmap, __ATOMIC_RELAXED);
        } else if (f->sparse) {
            away |= place_find(f, *page) != FILE_NO_PLACE;
        } else if (!away) {
            if (from == UINT64_MAX) {
                from = *page;
                if (read_words(f, from, end + 1 - from, words) < 0)
                    return -1;
            }
            away = words[*page - from];
        }
        if (away)
            found[n++] = *page;
    }
    return n;
}

int deploy_range(struct file *f, uint64_t first, uint64_t last)
{
    if (f->logged)
        return !log_is_empty(f) && growth_check(&f->pairing) < 0 ? -1 : log_checkpoint(f);
    uint64_t *found HEAP = malloc(2 * CHUNK_PAGES * sizeof(*found));
    if (!found)
        return report_error(ENOMEM, "no memory to deploy %s", f->pairing.path);
    for (bool checked = false; first <= last;) {
        const int n = find_away(f, &first, last, found, found + CHUNK_PAGES);
        if (n > 0 && !checked && growth_check(&f->pairing) < 0)
            return -1;
        checked |= n > 0;
        if (n < 0 || deploy_pages(f, found, (uint64_t)n) < 0)
            return -1;
    }
    return 0;
}

void deploy_for_reader(struct file *f, uint64_t offset, uint64_t n)
{
    struct page_set h;
    if (f->logged)
        return;
    page_set_init(&h);
    FOR_EACH_PAGE(page, begin, bytes, offset, n)
    {
        struct page_state *s = shared_peek(&f->shared, page); /* the reader has looked */
        const uint64_t asked = bitmap_touched((unsigned)begin, (unsigned)bytes);
        if (s && (__atomic_load_n(&s->bitmap, __ATOMIC_RELAXED) & asked) &&
            page_try_reserve(f, s)) {
            const struct homes homes = file_homes_of(f, page, s);
            page_set_add(&h, f, page, s, &homes);
        }
        if (h.n == BATCH) {
            const int r = deploy_held(f, &h);
            page_set_release(&h);
            if (r < 0)
                return;
        }
    }
    (void)deploy_held(f, &h);
    page_set_release(&h);
}
