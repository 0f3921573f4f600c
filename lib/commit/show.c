/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/commit/show.h"

#include "lib/file/page.h"
#include "lib/file/undo.h"
#include "lib/page/reservation.h"

int show_begin(struct file *f, const struct held_page *pages, uint64_t n, bool late,
               uint64_t *number)
{
    static const struct patience plain = {0}, endless = {.tx_ns = 1ull << 62};
    struct undo u;
    *number = 0;
    if (!file_is_numbered(f))
        return 0;
    if (reservation_take(f, &f->shared.header->undo.showing, late ? &endless : &plain) < 0)
        return late ? file_in_doubt(f, "a commit") : -1;
    undo_begin(&u, f);
    for (uint64_t i = 0; i < n; i++)
        if (pages[i].pending)
            undo_save(&u, pages[i].page, pages[i].state);
    undo_saved(&u);
    *number = u.number;
    return 0;
}

void show_end(struct file *f, uint64_t number)
{
    if (!number)
        return;
    undo_end(f, number);
    page_release(&f->shared.header->undo.showing);
}

/* Makes the flips of all pages, and the size, visible in memory: at one moment for readers, since every page
 * is marked before the first bitmap changes, and the last bitmap has changed before the first mark goes. I4:
 * they are durable by now. If the process is killed meanwhile, the marks stay, and nobody reads these pages, until another
 * process recovers them. Modelled in read.pml, and what follows a kill in takeover.pml. */
void show(const struct commit *c, uint64_t number)
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
        page_mark_changing(h->pages[i].state);
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
        page_unmark_changed(&header->sizing, number);
    }
    for (uint64_t i = 0; i < h->n; i++) {
        struct held_page *at = &h->pages[i];
        if (!at->pending)
            continue;
        at->pending = 0;
        seam_point(SEAM_FLIPPED, h);
        page_unmark_changed(at->state, number);
    }
}
