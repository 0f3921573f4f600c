/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Writes of several ranges in one step. All their pages are known before the first one is reserved. So they are
 * reserved in ascending order, like those of one range, and not in the order of calls, like those of a
 * transaction.
 */
#include "ato.h"

#include "lib/api/writev.h"
#include "lib/page/handle.h"
#include "lib/page/page_set.h"
#include "lib/page/page_set_reserve.h"
#include "lib/read/reader.h"
#include "lib/transaction/epoch.h"
#include "lib/transaction/parts.h"
#include "lib/transaction/tx.h"
#include "reflection/media/report.h"

#include <errno.h>
#include <stdlib.h>

struct writes {
    struct staging_write *each;
    char **copies;           /* of sources whose pages cannot be held; else NULL */
    struct page_span *spans; /* the pages of all ranges, as far as they can be held */
    unsigned n, nspans;
};

static void add_spans(struct writes *w, const struct staging_write *at)
{
    w->spans[w->nspans++] = page_span_of(at->to.m->file, at->to.offset, at->n);
    if (at->from.m)
        w->spans[w->nspans++] = page_span_of(at->from.m->file, at->from.offset, at->n);
}

/* The pages of a source cannot be held if this process may only read its file. Reading it may wait for other processes: so it
 * is read before any page is held. */
static int copy_source(struct staging_write *at, char **copy)
{
    *copy = range_copy_buffer(at->n);
    if (!*copy || reader_read(at->from.m, at->from.offset, *copy, at->n) < 0)
        return -1;
    range_count_read(at->from.m, at->n);
    at->from.m = NULL;
    at->bytes = *copy;
    return 0;
}

static int add(struct writes *w, const struct ato_iovec *v)
{
    struct staging_write *at = &w->each[w->n];
    if (v->n == 0)
        return range_empty(v->dst, v->dst);
    *at = (struct staging_write){.n = v->n, .bytes = v->src};
    if (range_find(&at->to, v->dst, v->n) < 0 || range_find(&at->from, v->src, v->n) < 0)
        return -1;
    if (!at->to.m)
        return range_none(v->dst, v->dst);
    if (range_check_writable(at->to.m, v->dst) < 0)
        return -1;
    const struct mapping *m = w->each[0].to.m, *from = at->from.m;
    if ((at->to.m->epoch || m->epoch || (from && from->epoch)) && (from || at->to.m != m))
        return report_error(EINVAL, "with a range of a mapping with ATO_EPOCHS, all ranges must be "
                                    "of that mapping, and their sources in memory");
    if (from && from->file->reader && copy_source(at, &w->copies[w->n]) < 0)
        return -1;
    add_spans(w, at);
    w->n++;
    return 0;
}

static int by_order(const void *a, const void *b)
{
    const struct page_span *x = a, *y = b;
    return page_set_order(x->file, x->first, y->file, y->first);
}

static int write_ranges(struct writes *w, unsigned flags)
{
    if (w->each[0].to.m->epoch)
        return epoch_write(w->each, w->n, flags);
    /* READ_COMMITTED: sources that may change are held. */
    struct tx *t = handle_make(thread_id(), ATO_TX_READ_COMMITTED);
    if (!t)
        return -1;
    qsort(w->spans, w->nspans, sizeof(*w->spans), by_order);
    int result = 0;
    /* Before the pages: the mappings cannot be unmapped from then on. */
    for (unsigned i = 0; i < w->n && result == 0; i++)
        result = parts_add(t, w->each[i].to.m, true) ? 0 : -1;
    if (result == 0)
        result = page_set_reserve(&t->set, w->spans, w->nspans);
    for (unsigned i = 0; i < w->n && result == 0; i++)
        result = staging_write(t, &w->each[i], flags);
    if (result == 0)
        result = tx_make_durable(t);
    tx_unmake(t);
    return result;
}

int writev_across(const struct range *to, const struct range *from, uint64_t n, unsigned flags)
{
    struct staging_write one = {.to = *to, .from = *from, .n = n};
    struct page_span spans[2];
    struct writes w = {.each = &one, .spans = spans, .n = 1};
    add_spans(&w, &one);
    return write_ranges(&w, flags);
}

int ato_writev(const struct ato_iovec *iov, int count, unsigned flags)
{
    struct writes w = {0};
    int result = 0;
    if (flags & ~(ATO_EAGER | ATO_SKIP_EQUAL))
        return report_error(EINVAL, "flags 0x%x are not known", flags);
    if (count < 0)
        return report_error(EINVAL, "%d ranges", count);
    if (count == 0)
        return 0;
    w.each = calloc((unsigned)count, sizeof(*w.each));
    w.copies = calloc((unsigned)count, sizeof(*w.copies));
    w.spans = calloc((unsigned)count, 2 * sizeof(*w.spans));
    if (!w.each || !w.copies || !w.spans)
        result = report_error(ENOMEM, "no memory to write %d ranges", count);
    for (int i = 0; i < count && result == 0; i++)
        result = add(&w, &iov[i]);
    if (result == 0 && w.n)
        result = write_ranges(&w, flags);
    for (unsigned i = 0; i < w.n && result == 0; i++) {
        range_count_write(w.each[i].to.m, w.each[i].n);
        if (w.each[i].from.m)
            range_count_read(w.each[i].from.m, w.each[i].n);
    }
    for (int i = 0; w.copies && i < count; i++)
        free(w.copies[i]);
    free(w.each);
    free(w.copies);
    free(w.spans);
    return result;
}
