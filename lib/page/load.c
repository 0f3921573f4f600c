/* SPDX-License-Identifier: BSD-3-Clause */
/* First touch is modelled in read.pml. */
#include "lib/page/load.h"

#include "lib/file/page.h"
#include "lib/file/space.h"
#include "lib/page/reservation.h"
#include "reflection/media/report.h"

int load_page_slow(struct file *f, uint64_t page, struct page_state *s)
{
    uint64_t word = 0;
    uint8_t flags = 0;
    if (space_look(f, page, &flags) < 0)
        return -1;
    if (space_has_word(f, page)) {
        uint64_t *at = file_word(f, page);
        word = __atomic_load_n(at, __ATOMIC_RELAXED);
        if (word && space_look_r(f, page) < 0)
            return -1;
        if (!f->settled && page_flush_words(&f->persist, at, 1, f->pairing.path) < 0) /* R4 */
            return -1;
    }
    s->bitmap = word;
    /* Atomic: sleepers read the whole word. */
    __atomic_store_n(&s->flags, s->flags | flags, __ATOMIC_RELAXED);
    /* Release: a reader that sees a version sees the bitmap. */
    __atomic_store_n(&s->version, 1, __ATOMIC_RELEASE);
    return 0;
}

/* Checks whether a reader may load a page. It does not wait for an open transaction that is going to make the file
 * shorter, only for the few stores with which the commit makes the shrink visible: that commit stores `gone` before
 * it looks which pages are loaded, as it stored `cut` earlier (reservation_within()). Returns 0; -1 with EFAULT;
 * RESERVATION_AGAIN: try again in a moment. */
static int may_load(struct file *f, uint64_t page)
{
    uint64_t end = page * PAGE_BYTES + 1;
    if (end > __atomic_load_n(&f->shared.header->gone, __ATOMIC_ACQUIRE))
        return RESERVATION_AGAIN;
    return end <= file_size(f) ? 0 : reservation_beyond(f, end);
}

struct page_state *load_look(struct file *f, uint64_t page)
{
    struct page_state *s = shared_state(&f->shared, page), *sizing = &f->shared.header->sizing;
    if (!s)
        return NULL;
    /* A thread that holds a page that is not loaded loads it at once. A reader waits only for that, not for what
     * the holder does afterwards. */
    for (unsigned i = 0; !__atomic_load_n(&s->version, __ATOMIC_ACQUIRE); i++) {
        if (page_try_reserve(f, s)) {
            int r = may_load(f, page);
            if (r == 0)
                r = load_page(f, page, s);
            page_release(s);
            if (r == 0)
                return s;
            if (r < 0)
                return NULL;
            if (page_try_reserve(f, sizing)) {
                reservation_end_shrink(f);
                page_release(sizing);
            }
        }
        seam_point(SEAM_WAIT, s);
        /* Waits for the holder of the page, or, while the file gets shorter, for the holder of the size. */
        if (reservation_await(f, s, i) < 0 || reservation_await(f, sizing, i) < 0)
            return NULL;
    }
    return s;
}
