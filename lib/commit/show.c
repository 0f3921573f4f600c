/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/commit/show.h"

#include "lib/file/page.h"
#include "lib/file/undo.h"
#include "lib/page/reservation.h"

/* With numbers, commits become visible one after the other: takes the number, and saves the pages for snapshots. While `showing` is held
 * nothing is waited for, so the wait is short, unless the holder was killed or is stopped. */
static int begin(struct undo *u, struct file *f, const struct page_set *h)
{
    static const struct patience endless = {.tx_ns = 1ull << 62};
    *u = (struct undo){.f = f};
    if (!file_is_numbered(f))
        return 0;
    if (reservation_take(f, &f->shared.header->undo.showing, &endless) < 0)
        return file_in_doubt(f, "a commit");
    undo_begin(u, f);
    for (uint64_t i = 0; i < h->n; i++)
        if (h->pages[i].pending)
            undo_save(u, h->pages[i].page, h->pages[i].state);
    undo_saved(u);
    return 0;
}

static void end(const struct undo *u)
{
    undo_end(u);
    if (u->number)
        page_release(&u->f->shared.header->undo.showing);
}

/* Makes the flips of all pages, and the size, visible in memory: at one moment for readers, since every page
 * is marked before the first bitmap changes, and the last bitmap has changed before the first mark goes. I4:
 * they are durable by now. If the process is killed meanwhile, the marks stay, and nobody reads these pages, until another
 * process recovers them. Modelled in read.pml, and what follows a kill in takeover.pml. */
static int show_all(struct file *f, struct page_set *h, bool resizes, uint64_t size)
{
    struct undo u;
    struct shared_header *header = f->shared.header;
    seam_point(SEAM_DURABLE, h);
    if (begin(&u, f, h) < 0)
        return -1;
    seam_point(SEAM_FLIP, h);
    if (resizes)
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
    if (resizes && f->logged)
        persist_store_word(&f->persist, show_size_word(f), manifest_encode_size(size));
    if (resizes) {
        /* Release: pairs with file_size(): a thread that sees a larger size sees the longer files. */
        __atomic_store_n(&header->size, size, __ATOMIC_RELEASE);
        f->pairing.size = size;
        page_unmark_changed(&header->sizing, u.number);
    }
    for (uint64_t i = 0; i < h->n; i++) {
        struct held_page *at = &h->pages[i];
        if (!at->pending)
            continue;
        at->pending = 0;
        seam_point(SEAM_FLIPPED, h);
        page_unmark_changed(at->state, u.number);
    }
    end(&u);
    return 0;
}

int show(const struct commit *c)
{
    return show_all(c->m->file, c->set, c->resizes, c->size);
}

int show_one_numbered(struct held_page *at)
{
    struct page_set set;
    page_set_init(&set);
    set.small[0] = *at;
    set.n = 1;
    at->pending = 0;
    return show_all(at->file, &set, false, 0);
}
