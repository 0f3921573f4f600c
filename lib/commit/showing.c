/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/commit/showing.h"

#include "lib/file/page.h"

static void mark_sizes(const struct commit *c)
{
    for (unsigned i = 0; i < c->nparts; i++)
        if (c->parts[i].resizes)
            page_mark_flipping(&c->parts[i].mapping->file->shared.header->sizing);
}

static void unmark_sizes(const struct commit *c)
{
    for (unsigned i = 0; i < c->nparts; i++) {
        struct part *part = &c->parts[i];
        struct file *f = part->mapping->file;
        if (!part->resizes)
            continue;
        /* Release: pairs with file_size(): a thread that sees a larger size sees the longer files. */
        __atomic_store_n(&f->shared.header->size, part->size, __ATOMIC_RELEASE);
        f->pairing.size = part->size;
        page_unmark_flipping(&f->shared.header->sizing);
        part->resizes = false;
    }
}

void showing_all(struct commit *c)
{
    struct page_set *h = c->set;
    seam_point(SEAM_DURABLE, h);
    seam_point(SEAM_FLIP, h);
    mark_sizes(c);
    for (uint64_t i = 0; i < h->n; i++) {
        if (!h->pages[i].pending)
            continue;
        seam_point(SEAM_FLIP, h);
        page_mark_flipping(h->pages[i].state);
    }
    for (uint64_t i = 0; i < h->n; i++) {
        struct held_page *at = &h->pages[i];
        seam_point(SEAM_FLIPPING, h);
        if (at->pending)
            page_set_bitmap(at->state, showing_bitmap(at));
    }
    unmark_sizes(c);
    for (uint64_t i = 0; i < h->n; i++) {
        struct held_page *at = &h->pages[i];
        if (!at->pending)
            continue;
        at->pending = 0;
        seam_point(SEAM_FLIPPED, h);
        page_unmark_changed(at->state);
    }
}
