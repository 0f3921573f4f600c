/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/commit/size.h"

#include "lib/page/page_set.h"
#include "lib/page/reservation.h"
#include "reflection/media/fsops.h"
#include "reflection/media/report.h"
#include "reflection/pairing/growth.h"
#include "reflection/pairing/shrink.h"

#include <errno.h>
#include <string.h>

void size_forget_space(struct file *f)
{
    uint64_t size = f->pairing.size;
    struct page_state *s = size % PAGE_BYTES ? shared_peek(&f->shared, size / PAGE_BYTES) : NULL;
    if (s)
        __atomic_store_n(&s->flags, s->flags & (uint8_t)~PAGE_O_ALLOCATED, __ATOMIC_RELEASE);
}

int size_on_media(struct file *f, int (*step)(struct pairing *pr, uint64_t size), uint64_t size)
{
    pthread_mutex_lock(&f->medium);
    int r = step(&f->pairing, size);
    if (r == GROWTH_LOST)
        file_poison(f);
    pthread_mutex_unlock(&f->medium);
    return r < 0 ? -1 : 0;
}

/* Makes the bytes behind the original's end zeros: any process that has its last page mapped may have stored there, and
 * some file systems keep that. If a large page backs the file, as on tmpfs, there may be more pages behind the last one.
 * No reader goes there, and no slice wholly behind the end is valid. */
static int clear_behind(struct file *f, uint64_t to)
{
    static const char zeros[PAGE_BYTES];
    const uint64_t was = growth_longest(file_end(f), shrink_from(&f->pairing)),
                   from = (was + SLICE_BYTES - 1) / SLICE_BYTES * SLICE_BYTES,
                   n = layout_pages(was) * PAGE_BYTES - from;
    if (f->holes_fault) {
        if (from < to && fsops_punch(f->pairing.original, (off_t)from, (off_t)(to - from)) < 0 &&
            errno != EOPNOTSUPP)
            return report_errno(errno, "cannot clear the bytes behind the end of %s",
                                f->pairing.path);
    } else if (from < to && memcmp(f->o + from, zeros, n) != 0) {
        persist_copy(&f->persist, f->o + from, zeros, n); /* durable with G2 */
    }
    return 0;
}

int size_prepare_growth(struct file *f, uint64_t to)
{
    if (clear_behind(f, to) < 0)
        return -1;
    if (size_on_media(f, growth_prepare, to) == 0)
        return 0;
    size_forget_space(f);
    return -1;
}

static int announce(struct pairing *pr, uint64_t unused)
{
    (void)unused;
    return shrink_announce(pr);
}

int size_announce(struct file *f)
{
    return size_on_media(f, announce, 0);
}

int size_keep_out(const struct size_range *r, const struct patience *patience)
{
    struct file *f = r->file;
    struct shared_header *h = f->shared.header;
    uint64_t page = r->first, before = h->cut;
    __atomic_store_n(&h->cut, r->first * PAGE_BYTES, __ATOMIC_RELEASE);
    /* Pairs with reservation_within(): a thread that is not seen to hold a page below sees `cut`. */
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    int result = 0;
    for (struct page_state *s; result == 0 && (s = shared_next_state(&f->shared, &page, r->end));) {
        if (!__atomic_load_n(&s->holder, __ATOMIC_ACQUIRE) || page_set_is_of(f, s, r->tag))
            continue;
        result = reservation_take(f, s, patience);
        if (result == 0)
            page_release(s);
    }
    if (result == 0)
        return file_check(f);
    __atomic_store_n(&h->cut, before, __ATOMIC_RELEASE);
    return -1;
}

void size_let_in(struct file *f)
{
    __atomic_store_n(&f->shared.header->cut, UINT64_MAX, __ATOMIC_RELEASE);
}
