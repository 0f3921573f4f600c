/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Writes of several ranges in one step. All their pages are known before the first one is reserved. So they are
 * reserved in ascending order, like those of one range, and not in the order of calls, like those of a
 * transaction.
 */
#include "ato.h"

#include "lib/api/writev.h"
#include "lib/page/handle.h"
#include "lib/page/page_set_reserve.h"
#include "lib/page/part.h"
#include "lib/read/reader.h"
#include "lib/transaction/claim.h"
#include "lib/transaction/epoch.h"
#include "lib/transaction/parts.h"
#include "lib/transaction/tx.h"
#include "reflection/media/report.h"

#include <errno.h>
#include <stdlib.h>

struct transfer {
    struct range to, from;
    const char *src;
    char *copy; /* of a source whose pages cannot be held; or NULL */
    uint64_t n;
};

struct transfers {
    struct transfer *each;
    struct page_span *spans; /* the pages of all ranges */
    struct epoch_range *epoch;
    unsigned n, room, nspans, with_epoch;
};

static void release(struct transfers *r)
{
    for (unsigned i = 0; r->each && i <= r->n && i < r->room; i++)
        free(r->each[i].copy);
    free(r->each);
    free(r->spans);
    free(r->epoch);
}

static int make_room(struct transfers *r, unsigned n)
{
    r->each = calloc(n, sizeof(*r->each));
    r->spans = calloc(n, 2 * sizeof(*r->spans));
    r->epoch = calloc(n, sizeof(*r->epoch));
    r->room = n;
    if (r->each && r->spans && r->epoch)
        return 0;
    return report_error(ENOMEM, "no memory to write %u ranges", n);
}

static void add_span(struct transfers *r, const struct range *s, uint64_t n)
{
    r->spans[r->nspans++] = page_span_of(s->m->file, s->offset, n);
}

/* Makes a consistent copy of the source in memory. */
static int copy_source(struct transfer *at, uint64_t n)
{
    at->copy = range_copy_buffer(n);
    if (!at->copy || reader_read(at->from.m, at->from.offset, at->copy, n) < 0)
        return -1;
    range_count_read(at->from.m, n);
    at->src = at->copy;
    at->from.m = NULL;
    return 0;
}

static int add(struct transfers *r, const struct ato_iovec *v)
{
    struct transfer *at = &r->each[r->n];
    if (v->n == 0)
        return range_empty(v->dst, v->dst);
    if (range_find(&at->to, v->dst, v->n) < 0 || range_find(&at->from, v->src, v->n) < 0)
        return -1;
    if (!at->to.m)
        return range_none(v->dst, v->dst);
    if (range_check_writable(at->to.m, v->dst) < 0)
        return -1;
    at->src = v->src;
    if (at->from.m && at->from.m->file->reader && copy_source(at, v->n) < 0)
        return -1;
    at->n = v->n;
    add_span(r, &at->to, v->n);
    if (at->from.m)
        add_span(r, &at->from, v->n);
    bool epoch = at->to.m->epoch || (at->from.m && at->from.m->epoch);
    if (epoch && (at->from.m || at->to.m != r->each[0].to.m))
        return report_error(EINVAL, "with a range of a mapping with ATO_EPOCHS, all ranges must be "
                                    "of that mapping, and their sources in memory");
    r->epoch[r->n] = (struct epoch_range){at->to.offset, v->n, v->src, false};
    r->with_epoch += epoch;
    r->n++;
    return 0;
}

static int by_order(const void *a, const void *b)
{
    const struct page_span *x = a, *y = b;
    return page_set_order(x->file, x->first, y->file, y->first);
}

/* Writes all ranges in transaction t, which the caller begins and ends. */
static int write_all(struct tx *t, struct transfers *r, unsigned flags)
{
    qsort(r->spans, r->nspans, sizeof(*r->spans), by_order);
    for (unsigned i = 0; i < r->n; i++) {
        struct part *part = parts_add(t, r->each[i].to.m, true);
        if (!part)
            return -1;
        part->written = true;
        part->eager |= (flags & ATO_EAGER) || policy_of(r->each[i].to.m) == ATO_READ_EAGER;
    }
    if (claim_in_order(t, r->spans, r->nspans) < 0)
        return -1;
    for (unsigned i = 0; i < r->n; i++) {
        const struct transfer *at = &r->each[i];
        struct staging_source source = {
            .bytes = at->src, .from = at->from.m, .from_offset = at->from.offset};
        if (staging_write(t, at->to.m, at->to.offset, at->n, &source, flags) < 0)
            return -1;
    }
    if (tx_make_durable(t) < 0)
        return -1;
    tx_bring_home(t);
    return 0;
}

static int write_ranges(struct transfers *r, unsigned flags)
{
    if (r->with_epoch && r->with_epoch != r->n)
        return report_error(
            EINVAL,
            "with a range of a mapping with ATO_EPOCHS, all ranges must be of that mapping");
    if (r->with_epoch)
        return epoch_write(r->each[0].to.m, r->epoch, r->n, flags);
    struct tx *t = handle_make(thread_id(), 0);
    if (!t)
        return -1;
    int result = write_all(t, r, flags);
    tx_unmake(t);
    return result;
}

int writev_across(const struct range *to, const struct range *from, uint64_t n, unsigned flags)
{
    struct transfer one = {.to = *to, .from = *from, .n = n};
    struct page_span spans[2];
    struct transfers r = {.each = &one, .spans = spans, .n = 1};
    add_span(&r, to, n);
    add_span(&r, from, n);
    return write_ranges(&r, flags);
}

int ato_writev(const struct ato_iovec *iov, int count, unsigned flags)
{
    struct transfers r = {0};
    if (flags & ~(ATO_EAGER | ATO_SKIP_EQUAL))
        return report_error(EINVAL, "flags 0x%x are not known", flags);
    if (count < 0)
        return report_error(EINVAL, "%d ranges", count);
    if (count == 0)
        return 0;
    int result = make_room(&r, (unsigned)count);
    for (int i = 0; i < count && result == 0; i++)
        result = add(&r, &iov[i]);
    if (result == 0 && r.n)
        result = write_ranges(&r, flags);
    for (unsigned i = 0; i < r.n && result == 0; i++) {
        range_count_write(r.each[i].to.m, r.each[i].n);
        if (r.each[i].from.m)
            range_count_read(r.each[i].from.m, r.each[i].n);
    }
    release(&r);
    return result;
}
