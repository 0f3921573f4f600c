/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/commit/showing.h"

#include "lib/commit/size.h"
#include "lib/file/page.h"
#include "reflection/format/layout.h"
#include "reflection/media/bitmap.h"

/* ---- sizes ---- */

static bool cuts(const struct part *part)
{
    return part->resizes && part->size < part->old;
}

/* Returns the range of whole pages that the part cuts off. */
static struct size_range cut_off(const struct part *part)
{
    return (struct size_range){part->mapping->file, layout_pages(part->size),
                               layout_pages(part->old), part->tag};
}

/* Returns the slices of a held page that stay within its file. */
static uint64_t kept(const struct commit *c, const struct held_page *at)
{
    const struct part *part = showing_part(c, at->file, NULL);
    /* Pages behind the end are handled by size_mark(). */
    return cuts(part) && at->page < layout_pages(part->size) ? bitmap_within(at->page, part->size)
                                                             : ~0ull;
}

static void mark_sizes(const struct commit *c)
{
    for (unsigned i = 0; i < c->nparts; i++) {
        const struct part *part = &c->parts[i];
        struct size_range range = cut_off(part);
        struct shared_header *h = part->mapping->file->shared.header;
        if (part->resizes)
            page_mark_flipping(&h->sizing);
        if (cuts(part))
            size_mark(&range);
    }
}

static void unmark_sizes(const struct commit *c)
{
    for (unsigned i = 0; i < c->nparts; i++) {
        struct part *part = &c->parts[i];
        struct file *f = part->mapping->file;
        struct size_range range = cut_off(part);
        if (!part->resizes)
            continue;
        /* Release: pairs with file_size(): a thread that sees a larger size sees the longer files. */
        __atomic_store_n(&f->shared.header->size, part->size, __ATOMIC_RELEASE);
        f->pairing.size = part->size;
        if (cuts(part))
            size_unmark(&range);
        page_unmark_flipping(&f->shared.header->sizing);
    }
}

/* ---- marks of pages ---- */

static bool is_some_cut(const struct commit *c)
{
    bool some_cut = false;
    for (unsigned i = 0; i < c->nparts; i++)
        some_cut |= cuts(&c->parts[i]);
    return some_cut;
}

static void mark_pages(const struct commit *c, bool some_cut)
{
    const struct page_set *h = c->set;
    for (uint64_t i = 0; i < h->n; i++) {
        if (!h->pages[i].pending && !(some_cut && kept(c, &h->pages[i]) != ~0ull))
            continue;
        seam_point(SEAM_FLIP, h);
        page_mark_flipping(h->pages[i].state);
    }
}

/* ---- all of it ---- */

void showing_all(struct commit *c)
{
    struct page_set *h = c->set;
    const bool some_cut = is_some_cut(c);
    seam_point(SEAM_DURABLE, h);
    seam_point(SEAM_FLIP, h);
    mark_sizes(c);
    mark_pages(c, some_cut);
    for (uint64_t i = 0; i < h->n; i++) {
        struct held_page *at = &h->pages[i];
        uint64_t stays = some_cut ? kept(c, at) : ~0ull;
        seam_point(SEAM_FLIPPING, h);
        if (at->pending || stays != ~0ull)
            page_set_bitmap(at->state, showing_bitmap(at) & stays);
    }
    unmark_sizes(c);
    for (uint64_t i = 0; i < h->n; i++) {
        struct held_page *at = &h->pages[i];
        if (!at->pending && !(some_cut && kept(c, at) != ~0ull))
            continue;
        at->pending = 0;
        seam_point(SEAM_FLIPPED, h);
        page_unmark_changed(at->state);
    }
    for (unsigned i = 0; i < c->nparts; i++)
        c->parts[i].resizes = false;
}
