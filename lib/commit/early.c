/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/commit/early.h"

#include "lib/file/undo.h"
#include "lib/page/reservation.h"
#include "reflection/media/fsops.h"
#include "reflection/media/heap.h"
#include "reflection/media/report.h"
#include "reflection/recovery/homecoming.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const struct patience plain = {0};

/* The bitmap of a page whose newest content is in an early copy. */
#define ALL UINT64_MAX

/* Saves what the pages have, and puts what they get into early copies. Returns how many there are in `copies`; less than the pages with
 * pending slices: there is no room. */
static uint64_t prepare(struct undo *u, const struct commit *c, struct undo_copy **copies)
{
    struct file *f = c->m->file;
    uint64_t n = 0;
    for (uint64_t i = 0; i < c->set->n; i++) {
        const struct held_page *at = &c->set->pages[i];
        if (!at->pending)
            continue;
        struct undo_copy *copy =
            undo_save(u, at->page, at->state, true) ? undo_room(u, at->page) : NULL;
        if (!copy)
            break;
        copy_gather_range(f->persist.kernel, copy->bytes, at->homes.o, at->homes.r, at->pending, 0,
                          PAGE_BYTES);
        undo_put(u, copy);
        copies[n++] = copy;
    }
    return n;
}

static void make_visible(const struct undo *u, const struct commit *c)
{
    struct page_set *h = c->set;
    struct shared_header *header = u->f->shared.header;
    if (c->resizes)
        page_turn_mark(&header->sizing);
    for (uint64_t i = 0; i < h->n; i++) {
        if (!h->pages[i].pending)
            continue;
        if (h->pages[i].state->bitmap)
            undo_outdate(u, h->pages[i].page, h->pages[i].state->version);
        seam_point(SEAM_FLIP, h);
        page_mark_changing(h->pages[i].state);
    }
    for (uint64_t i = 0; i < h->n; i++) {
        seam_point(SEAM_FLIPPING, h);
        if (h->pages[i].pending)
            page_set_bitmap(h->pages[i].state, ALL);
    }
    if (c->resizes) {
        /* In this order, and with marks on the pages: who sees the size also sees what is new in the file, and the other way around. */
        undo_raise(u->f, u->number);
        __atomic_store_n(&header->size, c->size, __ATOMIC_RELEASE);
        u->f->pairing.size = c->size;
        page_unmark_changed(&header->sizing, u->number);
    }
    for (uint64_t i = 0; i < h->n; i++) {
        if (!h->pages[i].pending)
            continue;
        h->pages[i].pending = 0;
        seam_point(SEAM_FLIPPED, h);
        page_unmark_changed(h->pages[i].state, u->number);
    }
}

uint64_t early_show(const struct commit *c, uint64_t end)
{
    struct file *f = c->m->file;
    struct shared_undo *h = &f->shared.header->undo;
    struct undo u = {0};
    KEEP_REPORT();
    struct undo_copy **copies HEAP = malloc(c->set->n * sizeof(*copies));
    if (!copies || reservation_take(f, &h->showing, &plain) < 0)
        return 0;
    undo_begin(&u, f, true);
    uint64_t pending = 0, made = u.saves ? prepare(&u, c, copies) : 0;
    for (uint64_t i = 0; i < c->set->n; i++)
        pending += c->set->pages[i].pending != 0;
    const bool done = u.saves && made == pending;
    if (done)
        make_visible(&u, c);
    while (!done && made > 0)
        __atomic_store_n(&copies[--made]->until, 0, __ATOMIC_RELEASE);
    if (u.saves)
        undo_saved(&u);
    if (done) {
        __atomic_store_n(&h->end, end, __ATOMIC_RELEASE);
        undo_end(f, u.number, true);
    }
    page_release(&h->showing);
    return done ? u.number : 0;
}

/* Implements the visit of undo_each_early(). Nobody reads the file itself while the bitmap is not 0. */
static int bring_home(struct file *f, uint64_t page, struct page_state *s, const char *bytes)
{
    /* Not by the view: it may be shorter than another process has made the file. Snapshots may see what is cut off. */
    const off_t length = fsops_length(f->pairing.original);
    const struct homecoming to = {f->pairing.original, (uint64_t)length, f->pairing.path};
    if (length < 0)
        return report_errno(errno, "cannot find the length of %s", f->pairing.path);
    if (page * PAGE_BYTES >= to.size)
        return 1;
    /* persist-order L2 (log.h): `bytes` is durable in the log. No view of plain stores needs what the file had: while there are others than
     * that of the commit no commit is early, and its own has kept what it needs (is_early() in log.c, give_back() in stores.c). */
    if (homecoming_write(&to, page, ALL, bytes) < 0)
        return -1;
    /* No mark: the early copy and the file have the same bytes, and the copy is used anew only when the page has another version. */
    page_set_bitmap(s, 0);
    return 0;
}

int early_bring_home(struct file *f)
{
    struct shared_undo *h = &f->shared.header->undo;
    if (!file_is_numbered(f) || !__atomic_load_n(&h->end, __ATOMIC_ACQUIRE))
        return 0;
    if (reservation_take(f, &h->showing, &plain) < 0)
        return -1;
    /* Before a page changes: who reads at `moment` may go by the bitmap. */
    undo_raise(f, h->shown);
    const int r = shared_reach_all(&f->shared) < 0 ? -1 : undo_each_early(f, bring_home);
    page_release(&h->showing);
    return r;
}
