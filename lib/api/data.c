/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The public calls that move data. They find the mapping of each side of a copy, and check that the whole
 * side lies in it: the functions that they call rely on a valid mapping and offset.
 */
#include "lib/api/stores.h"
#include "lib/api/write.h"
#include "lib/commit/deploy.h"
#include "lib/commit/log.h"
#include "lib/commit/reclaim.h"
#include "lib/file/calls.h"
#include "lib/page/handle.h"
#include "lib/page/page_set.h"
#include "lib/page/page_set_reserve.h"
#include "lib/read/range.h"
#include "lib/read/read.h"
#include "lib/read/reader.h"
#include "lib/transaction/claim.h"
#include "lib/transaction/epoch.h"
#include "lib/transaction/tx.h"
#include "reflection/media/report.h"

#include "ato_engine.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* ---- writes of several ranges ---- */

/* All their pages are known before the first one is reserved. So they are reserved in ascending order, like those of one range,
 * and not in the order of calls, like those of a transaction. */
struct writes {
    struct staging_write *each;
    struct page_span *spans; /* the pages of all ranges, as far as they can be held */
    unsigned n, nspans;
    bool one; /* of ato_memcpy() */
};

static int read_side(const struct range *from, void *dst, uint64_t n)
{
    if (__builtin_expect(!!from->m->file->reader, 0))
        return reader_read(from->m, from->offset, dst, n);
    return from->m->epoch ? epoch_read(from->m, from->offset, dst, n)
                          : read_bytes(from->m, from->offset, dst, n, NULL, false);
}

/* For a source whose pages cannot be held, because this process may only read its file, or a mapping has an epoch: a
 * consistent copy of the whole source is written from memory. Reading it may wait for others: so it is read before any page is held. */
static int copy_source(struct staging_write *at)
{
    at->copy = range_copy_buffer(at->n);
    if (!at->copy || read_side(&at->from, at->copy, at->n) < 0)
        return -1;
    range_count_read(at->from.m, at->n);
    at->from.m = NULL;
    at->bytes = at->copy;
    return 0;
}

/* Adds the range w->each[w->n] to `dst`, both sides of which are found. */
static int take(struct writes *w, const void *dst)
{
    struct staging_write *at = &w->each[w->n];
    if (range_check_writable(at->to.m, dst) < 0)
        return -1;
    const struct mapping *m = w->each[0].to.m, *from = at->from.m;
    const bool epoch = at->to.m->epoch || m->epoch || (from && from->epoch);
    if (epoch && !w->one && (from || at->to.m != m))
        return report_error(EINVAL, "with a range of a mapping with ATO_EPOCHS, all ranges must be "
                                    "of that mapping, and their sources in memory");
    if (from && (epoch || from->file->reader) && copy_source(at) < 0)
        return -1;
    w->spans[w->nspans++] = page_span_of(at->to.m->file, at->to.offset, at->n);
    if (at->from.m)
        w->spans[w->nspans++] = page_span_of(at->from.m->file, at->from.offset, at->n);
    w->n++;
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
    return at->to.m ? take(w, v->dst) : range_none(v->dst, v->dst);
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
    struct tx *t = handle_make(thread_id(), ATO_TX_READ_COMMITTED | (flags & ATO_RELAXED));
    if (!t)
        return -1;
    qsort(w->spans, w->nspans, sizeof(*w->spans), by_order);
    int result = 0;
    /* Before the pages: the mappings cannot be unmapped from then on. */
    t->written = w->each[0].to.m; /* EXDEV comes before a wait for pages, too */
    for (unsigned i = 0; i < w->n && result == 0; i++)
        result = claim_mapping(t, w->each[i].to.m, true);
    if (result == 0)
        result = page_set_reserve(&t->set, w->spans, w->nspans);
    for (unsigned i = 0; i < w->n && result == 0; i++)
        result = staging_write(t, &w->each[i], flags);
    if (result == 0)
        result = tx_make_durable(t);
    tx_unmake(t);
    return result;
}

/* Writes what was added, unless `r` says that something could not be. There is memory for `count` ranges, which was all 0. */
static int finish(struct writes *w, unsigned count, int r, unsigned flags)
{
    if (r == 0 && w->n)
        r = write_ranges(w, flags);
    for (struct staging_write *at = w->each; at < w->each + count; at++) {
        if (r == 0 && at->to.m)
            range_count_write(at->to.m, at->n);
        if (r == 0 && at->from.m)
            range_count_read(at->from.m, at->n);
        free(at->copy);
    }
    return r;
}

/* Copies n bytes from mapping to mapping, in one step: the bytes that `from` has when `dst` changes. The ranges may overlap, as
 * with memmove(). */
static int write_across(const struct range *to, const struct range *from, const void *dst, size_t n,
                        unsigned flags)
{
    struct staging_write each = {.to = *to, .from = *from, .n = n};
    struct page_span spans[2];
    struct writes w = {.each = &each, .spans = spans, .one = true};
    return finish(&w, 1, take(&w, dst), flags);
}

/* ---- one range ---- */

/* `repeats`: as in write_bytes(). */
static inline __attribute__((always_inline)) int
write_side(const struct range *to, const void *src, uint64_t n, bool repeats, unsigned flags)
{
    if (__builtin_expect(!to->m->epoch, 1))
        return write_bytes(to->m, to->offset, src, n, repeats, flags);
    const struct staging_write w = {.to = *to, .n = n, .bytes = src, .repeats = repeats};
    return epoch_write(&w, 1, flags);
}

/* `to_mapping`: the one that owns the GiB of dst; NULL: it is not known. */
static __attribute__((noinline)) void *copy(struct mapping *to_mapping, void *dst, const void *src,
                                            size_t n, unsigned flags)
{
    struct range to = {.m = to_mapping}, from;
    if (__builtin_expect(flags & ~(ATO_EAGER | ATO_SKIP_EQUAL | ATO_RELAXED), 0))
        return report_null(EINVAL, "flags 0x%x are not known", flags);
    if (__builtin_expect(n == 0, 0))
        return range_empty(dst, src) < 0 ? NULL : dst;
    if ((to.m ? range_check(&to, dst, n) : range_find(&to, dst, n)) < 0 ||
        range_find(&from, src, n) < 0)
        return NULL;
    CALL_ON(to_call, to.m);
    CALL_ON(from_call, from.m);
    int r;
    if (to.m) {
        if (from.m)
            return write_across(&to, &from, dst, n, flags) < 0 ? NULL : dst;
        r = range_check_writable(to.m, dst);
        if (r == 0)
            r = write_side(&to, src, n, false, flags);
        if (r == 0)
            range_count_write(to.m, n);
    } else {
        r = from.m ? read_side(&from, dst, n) : range_none(dst, src);
        if (r == 0)
            range_count_read(from.m, n);
    }
    return r < 0 ? NULL : dst;
}

void *ato_read_newest(void *dst, const void *src, size_t n)
{
    struct range from;
    if (range_find(&from, src, n) < 0)
        return NULL;
    if (!from.m || from.m->file->reader || from.m->epoch || !from.m->file->logged)
        return ato_memcpy(dst, src, n);
    CALL_ON(from_call, from.m);
    if (read_bytes(from.m, from.offset, dst, n, NULL, true) < 0)
        return NULL;
    range_count_read(from.m, n);
    return dst;
}

void *ato_memcpy_opt(void *dst, const void *src, size_t n, unsigned flags)
{
    return copy(NULL, dst, src, n, flags);
}

/* ato_memcpy() of more than a few bytes, or of a few that lie in R and stay there. A function of its own, since calls cost the other
 * one registers. */
static __attribute__((noinline)) void *copy_many(void *dst, const void *src, size_t n)
{
    struct mapping *to = NULL,
                   *from = n - 1 < PAGE_BYTES ? table_find_source(dst, src, n, &to) : NULL;
    if (from) {
        CALL_ON(call, from);
        const uint64_t offset = from->offset + (uint64_t)((const char *)src - from->base);
        if (__builtin_expect(from->flags & ATO_PLAIN, 0)
                ? reader_read_plain(from, offset, dst, n)
                : read_at_once(from, src, dst, n, false, NULL)) {
            range_count_read(from, n);
            return dst;
        }
    }
    return copy(to, dst, src, n, 0);
}

void *ato_memcpy(void *dst, const void *src, size_t n)
{
    /* Loaded once each, like `f` below: each instruction on the way of a read counts (read_at_once()). */
    const unsigned own = thread_own_number();
    if (__builtin_expect(n - 1 >= SLICE_BYTES, 0) || own >= THREAD_SHARED)
        return copy_many(dst, src, n);
    struct mapping *to, *from = table_find_source(dst, src, n, &to);
    if (!from)
        return copy(to, dst, src, n, 0);
    CALL_ON(call, from);
    const struct file *const f = from->file;
    if (__builtin_expect(read_at_once(from, src, dst, n, true, NULL), 1)) {
        range_tally_read(tally_of_own(f, own), n);
        return dst;
    }
    return policy_of(from) == ATO_READ_GATHER ? copy_many(dst, src, n) : copy(NULL, dst, src, n, 0);
}

int ato_writev(const struct ato_iovec *iov, int count, unsigned flags)
{
    if (flags & ~(ATO_EAGER | ATO_SKIP_EQUAL | ATO_RELAXED))
        return report_error(EINVAL, "flags 0x%x are not known", flags);
    if (count < 0)
        return report_error(EINVAL, "%d ranges", count);
    struct writes w = {.each = calloc((unsigned)count, sizeof(*w.each) + 2 * sizeof(*w.spans))};
    if (!w.each && count)
        return report_error(ENOMEM, "no memory to write %d ranges", count);
    w.spans = (struct page_span *)(w.each + count);
    int r = 0;
    for (int i = 0; i < count && r == 0; i++)
        r = add(&w, &iov[i]);
    r = finish(&w, (unsigned)count, r, flags);
    free(w.each);
    return r;
}

void *ato_memset(void *dst, int c, size_t n)
{
    char page[PAGE_BYTES];
    struct range to;
    if (n == 0)
        return range_empty(dst, dst) < 0 ? NULL : dst;
    if (range_find(&to, dst, n) < 0 || (!to.m && range_none(dst, dst) < 0))
        return NULL;
    CALL_ON(call, to.m);
    if (range_check_writable(to.m, dst) < 0)
        return NULL;
    memset(page, c, n < sizeof(page) ? n : sizeof(page));
    if (write_side(&to, page, n, true, 0) < 0)
        return NULL;
    range_count_write(to.m, n);
    return dst;
}

/* For a call that moves bytes or space between the two files: runs it for the pages of a range. `what`: it does to them. Returns 0; -1
 * with EINVAL, EFAULT, EACCES, or as `run` does. */
static int run_for_pages(const void *addr, size_t n, const char *what,
                         int (*run)(struct file *f, uint64_t first, uint64_t last))
{
    struct range s;
    if (n == 0)
        return range_empty(addr, addr);
    if (range_find(&s, addr, n) < 0)
        return -1;
    if (!s.m)
        return range_none(addr, addr);
    CALL_ON(call, s.m);
    if (s.m->reader)
        return report_error(
            EACCES, "the mapping at %p has a read-only descriptor, through which nothing can be %s",
            addr, what);
    return file_check(s.m->file) < 0
               ? -1
               : run(s.m->file, s.offset / PAGE_BYTES, (s.offset + n - 1) / PAGE_BYTES);
}

int ato_deploy(const void *addr, size_t n)
{
    return run_for_pages(addr, n, "deployed", deploy_range);
}

int ato_reclaim(void *addr, size_t n)
{
    return run_for_pages(addr, n, "given back", reclaim_range);
}

/* Checks a range of whole pages. Returns its mapping, and sets *offset in its view; NULL with EINVAL, ENOMEM. */
static struct mapping *find_pages(const void *addr, size_t n, uint64_t *offset)
{
    uint64_t at = (uint64_t)(uintptr_t)addr;
    char name[TABLE_ADDRESS];
    if (at % PAGE_BYTES)
        return report_null(EINVAL, "%p is not the beginning of a page", addr);
    struct mapping *m = table_find(addr);
    /* In whole pages: the length it was made with, or up to the end of the file if it has grown beyond that. */
    uint64_t from = 0, length = 0;
    if (m) {
        const uint64_t size = mapping_has_stores(m) ? stores_size(m) : file_end(m->file);
        from = at - (uint64_t)(uintptr_t)m->base;
        length = lesser(size > m->offset ? size - m->offset : 0, m->reach);
        length = layout_pages(length > m->length ? length : m->length) * PAGE_BYTES;
    }
    *offset = from;
    if (!m || from > length || n > length - from)
        return report_null(ENOMEM, "[%s, +%zu) does not lie in a mapping",
                           table_address(name, addr), n);
    return m;
}

int ato_plain_discard(void *addr, size_t n)
{
    uint64_t offset;
    struct mapping *m = find_pages(addr, n, &offset);
    if (!m)
        return -1;
    CALL_ON(call, m);
    return mapping_has_stores(m)
               ? stores_discard(m, offset, n)
               : report_error(EINVAL, "the mapping at %p has no ATO_PLAIN_STORES", addr);
}

int ato_msync(void *addr, size_t n, int flags)
{
    const int known = MS_SYNC | MS_ASYNC | MS_INVALIDATE;
    uint64_t offset;
    if ((flags & ~known) || (flags & (MS_SYNC | MS_ASYNC)) == (MS_SYNC | MS_ASYNC))
        return report_error(EINVAL, "msync flags 0x%x are not valid", (unsigned)flags);
    struct mapping *m = find_pages(addr, n, &offset);
    if (!m)
        return -1;
    CALL_ON(call, m);
    const bool relaxed = mapping_has_stores(m) && (flags & MS_ASYNC);
    if (mapping_has_stores(m) && stores_commit(m, offset, n, relaxed) < 0)
        return -1;
    if (relaxed)
        return 0;
    if (m->epoch && epoch_commit(m) < 0)
        return -1;
    /* Early and relaxed commits may be visible, and not durable. */
    return m->file->logged && !m->file->reader ? log_settle(m->file) : file_check(m->file);
}
