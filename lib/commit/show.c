/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/commit/show.h"

#include "lib/file/page.h"
#include "lib/file/space.h"
#include "lib/file/undo.h"
#include "lib/page/reservation.h"
#include "reflection/media/report.h"

int show_take(struct file *f, bool late)
{
    static const struct patience plain = {0}, endless = {.tx_ns = 1ull << 62};
    return reservation_take(f, &f->shared.header->undo.showing, late ? &endless : &plain) == 0 ? 0
           : late ? file_in_doubt(f, "a commit")
                  : -1;
}

void show_look_begin(struct store_look *l, struct file *f, uint64_t except, bool showing)
{
    l->views = l->n = 0;
    l->took = false;
    if (!store_views_any_but(f, except))
        return;
    KEEP_REPORT();
    l->took = !showing && show_take(f, false) == 0;
    if (showing || l->took)
        store_look_begin(l, f, except);
    else
        store_views_lose(f, ~except);
}

void show_look_end(struct store_look *l)
{
    store_look_end(l);
    if (l->took)
        page_release(&l->f->shared.header->undo.showing);
}

uint64_t show_number(struct file *f, const struct held_page *pages, uint64_t n)
{
    struct undo u;
    undo_begin(&u, f, false);
    for (uint64_t i = 0; i < n; i++)
        if (pages[i].pending)
            (void)undo_save(&u, pages[i].page, pages[i].state, false);
    undo_saved(&u);
    return u.number;
}

/* What changes comes home at once where programs have plain stores: the original needs the space. */
static int make_home(struct file *f, const struct held_page *pages, uint64_t n)
{
    struct space_run run = {.file = f};
    for (uint64_t i = 0; i < n; i++)
        if (pages[i].pending &&
            space_run_add(&run, pages[i].page, ~pages[i].state->flags & PAGE_O_ALLOCATED) < 0)
            return -1;
    return space_run_end(&run);
}

int show_begin(struct file *f, const struct held_page *pages, uint64_t n, bool late,
               uint64_t *number)
{
    *number = 0;
    if (!file_is_numbered(f))
        return 0;
    if ((store_views_any(f) && make_home(f, pages, n) < 0) || show_take(f, late) < 0)
        return -1;
    *number = show_number(f, pages, n);
    return 0;
}

void show_end(struct file *f, uint64_t number)
{
    if (!number)
        return;
    undo_end(f, number, false);
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
    struct store_look look;
    seam_point(SEAM_DURABLE, h);
    seam_point(SEAM_FLIP, h);
    if (f->logged)
        show_look_begin(&look, f, h->own_views, number != 0);
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
        if (at->pending && f->logged) {
            char *o = file_o(f, at->page);
            store_look_before(&look, at->page);
            if (undo_is_early(f, at->state)) { /* of early commits, which are durable by now */
                persist_home(&f->persist, o, at->homes.o, UINT64_MAX, false);
                page_set_bitmap(at->state, 0);
            }
            persist_home(&f->persist, o, at->homes.r, at->pending, false);
            store_look_after(&look, at->page);
        } else if (at->pending)
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
    /* Before a mark goes: then plain readers see the page, and those that read at `moment` must not see less. */
    if (f->logged && number)
        undo_raise(f, number);
    for (uint64_t i = 0; i < h->n; i++) {
        struct held_page *at = &h->pages[i];
        if (!at->pending)
            continue;
        at->pending = 0;
        seam_point(SEAM_FLIPPED, h);
        page_unmark_changed(at->state, number);
    }
    if (f->logged)
        show_look_end(&look);
}
