/* SPDX-License-Identifier: BSD-3-Clause */
#include "heat.h"

#include "reflection/format/layout.h"

#include <string.h>

static void count(void *arg, const struct look_word *at)
{
    struct heat *h = arg;
    uint64_t page = at->page, word = at->word;
    /* After an interrupted shrink there may be words behind the end, which do not count. */
    if (page >= h->pages || at->again)
        return;
    const uint64_t here = h->slices - page * PAGE_SLICES;
    if (here < PAGE_SLICES)
        word &= (1ull << here) - 1;
    const uint32_t bits = bitmap_count(word);
    h->count[page / h->bin_pages] += bits;
    h->reflected += bits;
    progress_show(h->progress, page, h->pages);
}

int heat_read(struct heat *h, int reflection, uint64_t length, uint32_t format, uint64_t size,
              struct progress *progress)
{
    memset(h, 0, sizeof(*h));
    h->size = size;
    h->pages = layout_pages(size);
    h->slices = size / SLICE_BYTES + (size % SLICE_BYTES != 0);
    h->bin_pages = h->pages / HEAT_BINS + (h->pages % HEAT_BINS != 0);
    h->bins = h->pages ? (h->pages - 1) / h->bin_pages + 1 : 0;
    h->progress = progress;
    return reflection < 0 ? 0 : look_each_word(reflection, length, format, count, h);
}

uint64_t heat_divide(const struct heat *h, uint64_t most, uint64_t *cells)
{
    const uint64_t each = h->bins ? (h->bins - 1) / most + 1 : 1;
    *cells = h->bins ? (h->bins - 1) / each + 1 : 0;
    return each;
}

struct heat_cell heat_cell(const struct heat *h, uint64_t each, uint64_t i)
{
    struct heat_cell c = {.page = i * each * h->bin_pages};
    const uint64_t left = h->pages - c.page, slices_left = h->slices - c.page * PAGE_SLICES;
    c.pages = left < each * h->bin_pages ? left : each * h->bin_pages;
    c.slices = slices_left < c.pages * PAGE_SLICES ? slices_left : c.pages * PAGE_SLICES;
    for (uint64_t bin = i * each; bin < (i + 1) * each && bin < h->bins; bin++)
        c.reflected += h->count[bin];
    return c;
}
