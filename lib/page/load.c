/* SPDX-License-Identifier: BSD-3-Clause */
/* First touch is modelled in read.pml. */
#include "lib/page/load.h"

#include "lib/file/page.h"
#include "lib/file/place.h"
#include "lib/file/space.h"
#include "lib/page/reservation.h"

int load_page_slow(struct file *f, uint64_t page, struct page_state *s)
{
    uint64_t word = 0, *at;
    const int flags = space_look(f, page);
    if (flags < 0 || place_load(f, page, s, &at) < 0)
        return -1;
    if (at) {
        word = __atomic_load_n(at, __ATOMIC_RELAXED);
        if (word && space_look_r(f, page, s) < 0)
            return -1;
        if (!f->shared.header->settled && page_flush_word(f, at) < 0) /* R4 */
            return -1;
    }
    s->bitmap = word;
    /* Atomic: sleepers read the whole word. */
    __atomic_store_n(&s->flags, s->flags | (uint8_t)flags, __ATOMIC_RELAXED);
    /* Release: a reader that sees a version sees the bitmap. */
    __atomic_store_n(&s->version, 1, __ATOMIC_RELEASE);
    return 0;
}

struct page_state *load_look(struct file *f, uint64_t page)
{
    struct page_state *s = shared_state(&f->shared, page);
    const uint64_t end = page * PAGE_BYTES + 1;
    if (!s)
        return NULL;
    /* A thread that holds a page that is not loaded loads it at once. A reader waits only for that, not for what
     * the holder does afterwards. */
    for (unsigned i = 0; !__atomic_load_n(&s->version, __ATOMIC_ACQUIRE); i++) {
        if (page_try_reserve(f, s)) {
            int r = reservation_reaches(f, end);
            if (r == 0)
                r = load_page(f, page, s);
            page_release(s);
            if (r <= 0)
                return r == 0 ? s : NULL;
        }
        seam_point(SEAM_WAIT, s);
        if (reservation_await(f, s, i) < 0)
            return NULL;
    }
    return s;
}
