/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/commit/show.h"

#include "lib/file/page.h"

/* Makes the flips of all pages, and the size, visible in memory: at one moment for readers, since every page
 * is marked before the first bitmap changes, and the last bitmap has changed before the first mark goes. I4:
 * they are durable by now. If the process is killed meanwhile, the marks stay, and nobody reads these pages, until another
 * process recovers them. Modelled in read.pml, and what follows a kill in takeover.pml. */
void show(const struct commit *c)
{
    struct page_set *h = c->set;
    struct file *f = c->m->file;
    struct shared_header *header = f->shared.header;
    seam_point(SEAM_DURABLE, h);
    seam_point(SEAM_FLIP, h);
    if (c->resizes)
        page_turn_mark(&header->sizing);
    for (uint64_t i = 0; i < h->n; i++) {
        if (!h->pages[i].pending)
            continue;
        seam_point(SEAM_FLIP, h);
        page_turn_mark(h->pages[i].state);
    }
    for (uint64_t i = 0; i < h->n; i++) {
        struct held_page *at = &h->pages[i];
        seam_point(SEAM_FLIPPING, h);
        if (at->pending && f->logged)
            persist_home(&f->persist, at->homes.o, at->homes.r, at->pending, false);
        else if (at->pending)
            page_set_bitmap(at->state, show_bitmap(at));
    }
    /* explorer: tear word survives: the record says the size, until a checkpoint has made the word durable. */
    if (c->resizes && f->logged)
        persist_store_word(&f->persist, show_size_word(f), manifest_encode_size(c->size));
    if (c->resizes) {
        /* Release: pairs with file_size(): a thread that sees a larger size sees the longer files. */
        __atomic_store_n(&header->size, c->size, __ATOMIC_RELEASE);
        f->pairing.size = c->size;
        page_unmark_changed(&header->sizing);
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
