/* SPDX-License-Identifier: BSD-3-Clause */
/* The order of reservations, of W4 and of releases is modelled in read.pml. */
#include "hold.h"

#include "../reflection/report.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int make_room(struct hold *h, uint64_t more)
{
    if (h->room - h->n >= more)
        return 0;
    uint64_t room = h->n + more;
    struct held *pages = malloc(room * sizeof(*pages));
    if (!pages)
        return report_error(ENOMEM, "no memory to hold %llu pages", (unsigned long long)room);
    memcpy(pages, h->pages, h->n * sizeof(*pages));
    if (h->pages != h->small)
        free(h->pages);
    h->pages = pages;
    h->room = room;
    return 0;
}

int hold_range(struct hold *h, struct file *f, uint64_t first, uint64_t last)
{
    if (make_room(h, last - first + 1) < 0)
        return -1;
    if (h->n && h->pages[h->n - 1].file == f && first <= h->pages[h->n - 1].page)
        first = h->pages[h->n - 1].page + 1;
    for (uint64_t page = first; page <= last; page++) {
        struct page_state *s = shared_state(&f->shared, page);
        if (!s)
            return -1;
        pages_reserve(f, s);
        h->pages[h->n++] = (struct held){.file = f, .state = s, .page = page};
        /* Asked again, now that nobody else can poison this page's word any more (I2). */
        if (file_check(f) < 0 || pages_load(f, page, s) < 0)
            return -1;
    }
    return 0;
}

void hold_release(struct hold *h)
{
    const struct persist *aborted = NULL;
    for (uint64_t i = 0; i < h->n; i++)
        if (h->pages[i].pending)
            aborted = &h->pages[i].file->persist;
    /* persist-order W4 (reader: whoever holds the page next): what an operation stored that came to
     * nothing has arrived before the page is given away. Non-temporal stores wait for nothing, not
     * even for the release; they would land on what the next holder has stored there, and flipped. I2.
     * explorer: drop fence survives: it orders what other CPUs see, not what a crash leaves, and the
     * explorer lets one thread run at a time.
     * explorer: delay fence survives: for the same reason. */
    if (__builtin_expect(!!aborted, 0))
        persist_fence(aborted);
    if (h->lane.in) /* the commit did without, or there was none */
        journals_give_lane(&h->lane);
    for (uint64_t i = 0; i < h->n; i++)
        pages_release(h->pages[i].state);
    if (h->pages != h->small)
        free(h->pages);
    hold_init(h);
}

struct held *hold_find(struct hold *h, const struct file *f, uint64_t page)
{
    uint64_t low = 0, high = h->n;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        struct held *at = &h->pages[middle];
        int order =
            at->file == f ? 0 : memcmp(at->file->pairing.record.id, f->pairing.record.id, 16);
        if (order < 0 || (order == 0 && at->page < page))
            low = middle + 1;
        else
            high = middle;
    }
    if (low < h->n && h->pages[low].file == f && h->pages[low].page == page)
        return &h->pages[low];
    return NULL;
}
