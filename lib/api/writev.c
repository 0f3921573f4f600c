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
#include "lib/transaction/claim.h"
#include "lib/transaction/epoch.h"
#include "lib/transaction/parts.h"
#include "lib/transaction/tx.h"
#include "reflection/media/report.h"

#include <errno.h>
#include <stdlib.h>

struct writes {
    struct staging_write *each;
    char **copies;           /* of sources whose pages cannot be held; else NULL */
    struct page_span *spans; /* the pages of all ranges */
    unsigned n, nspans;
};

static void release(struct writes *w, unsigned room)
{
    for (unsigned i = 0; w->copies && i < room; i++)
        free(w->copies[i]);
    free(w->each);
    free(w->copies);
    free(w->spans);
}

static int make_room(struct writes *w, unsigned n)
{
    w->each = calloc(n, sizeof(*w->each));
    w->copies = calloc(n, sizeof(*w->copies));
    w->spans = calloc(n, 2 * sizeof(*w->spans));
    if (w->each && w->copies && w->spans)
        return 0;
    return report_error(ENOMEM, "no memory to write %u ranges", n);
}

/* Makes a consistent copy of the source in memory. */
static int copy_source(struct staging_write *at, char **copy)
{
    *copy = range_copy_buffer(at->n);
    if (!*copy || reader_read(at->from, at->from_offset, *copy, at->n) < 0)
        return -1;
    range_count_read(at->from, at->n);
    at->bytes = *copy;
    at->from = NULL;
    return 0;
}

static void add_spans(struct writes *w, const struct staging_write *at)
{
    w->spans[w->nspans++] = page_span_of(at->m->file, at->offset, at->n);
    if (at->from)
        w->spans[w->nspans++] = page_span_of(at->from->file, at->from_offset, at->n);
}

static struct staging_write write_of(const struct range *to, const struct range *from,
                                     const void *src, uint64_t n)
{
    return (struct staging_write){.m = to->m,
                                  .offset = to->offset,
                                  .n = n,
                                  .bytes = src,
                                  .from = from->m,
                                  .from_offset = from->offset};
}

static int add(struct writes *w, const struct ato_iovec *v)
{
    struct staging_write *at = &w->each[w->n];
    struct range to, from;
    if (v->n == 0)
        return range_empty(v->dst, v->dst);
    if (range_find(&to, v->dst, v->n) < 0 || range_find(&from, v->src, v->n) < 0)
        return -1;
    if (!to.m)
        return range_none(v->dst, v->dst);
    if (range_check_writable(to.m, v->dst) < 0)
        return -1;
    *at = write_of(&to, &from, v->src, v->n);
    if (at->from && at->from->file->reader && copy_source(at, &w->copies[w->n]) < 0)
        return -1;
    const bool epoch = at->m->epoch || w->each[0].m->epoch || (at->from && at->from->epoch);
    if (epoch && (at->from || at->m != w->each[0].m))
        return report_error(EINVAL, "with a range of a mapping with ATO_EPOCHS, all ranges must be "
                                    "of that mapping, and their sources in memory");
    add_spans(w, at);
    w->n++;
    return 0;
}

static int by_order(const void *a, const void *b)
{
    const struct page_span *x = a, *y = b;
    return page_set_order(x->file, x->first, y->file, y->first);
}

/* Writes all ranges in transaction t, which the caller begins and ends. */
static int write_all(struct tx *t, struct writes *w, unsigned flags)
{
    qsort(w->spans, w->nspans, sizeof(*w->spans), by_order);
    for (unsigned i = 0; i < w->n; i++) {
        struct part *part = parts_add(t, w->each[i].m, true);
        if (!part)
            return -1;
        part->written = true;
        part->eager |= (flags & ATO_EAGER) || policy_of(w->each[i].m) == ATO_READ_EAGER;
    }
    if (claim_in_order(t, w->spans, w->nspans) < 0)
        return -1;
    for (unsigned i = 0; i < w->n; i++)
        if (staging_write(t, &w->each[i], flags) < 0)
            return -1;
    if (tx_make_durable(t) < 0)
        return -1;
    tx_bring_home(t);
    return 0;
}

static int write_ranges(struct writes *w, unsigned flags)
{
    if (w->each[0].m->epoch)
        return epoch_write(w->each, w->n, flags);
    struct tx *t = handle_make(thread_id(), 0);
    if (!t)
        return -1;
    int result = write_all(t, w, flags);
    tx_unmake(t);
    return result;
}

int writev_across(const struct range *to, const struct range *from, uint64_t n, unsigned flags)
{
    struct staging_write one = write_of(to, from, NULL, n);
    struct page_span spans[2];
    struct writes w = {.each = &one, .spans = spans, .n = 1};
    add_spans(&w, &one);
    return write_ranges(&w, flags);
}

int ato_writev(const struct ato_iovec *iov, int count, unsigned flags)
{
    struct writes w = {0};
    if (flags & ~(ATO_EAGER | ATO_SKIP_EQUAL))
        return report_error(EINVAL, "flags 0x%x are not known", flags);
    if (count < 0)
        return report_error(EINVAL, "%d ranges", count);
    if (count == 0)
        return 0;
    int result = make_room(&w, (unsigned)count);
    for (int i = 0; i < count && result == 0; i++)
        result = add(&w, &iov[i]);
    if (result == 0 && w.n)
        result = write_ranges(&w, flags);
    for (unsigned i = 0; i < w.n && result == 0; i++) {
        range_count_write(w.each[i].m, w.each[i].n);
        if (w.each[i].from)
            range_count_read(w.each[i].from, w.each[i].n);
    }
    release(&w, (unsigned)count);
    return result;
}
