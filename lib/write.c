/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reserve all pages; copy to invalid homes (I2); flip (flip.c); release.
 *
 * Until the flip nothing that anybody believes has changed, so every way out before it is safe: an
 * error, a source that faults and kills the process, a power cut.
 */
#include "write.h"

#include "../reflection/bitmap.h"
#include "../reflection/report.h"
#include "deploy.h"
#include "flip.h"
#include "space.h"

#include <string.h>

/* ---- where the bytes come from ---- */

struct source {
    const char *bytes;    /* consecutive, or a page of one byte */
    bool repeats;         /* the latter */
    struct mapping *from; /* or: another place of a mapping, whose pages are held */
    uint64_t from_offset;
};

/* Gathers up to a page from held pages. By I2 the write under way stores to no home it reads. */
static void gather_held(struct hold *h, struct file *f, uint64_t offset, unsigned n, char *out)
{
    while (n) {
        unsigned begin = (unsigned)(offset % PAGE_BYTES);
        unsigned here = n < PAGE_BYTES - begin ? n : (unsigned)(PAGE_BYTES - begin);
        const struct held *at = hold_find(h, f, offset / PAGE_BYTES);
        copy_gather_range(f->persist.kernel, out, file_o(f, at->page), file_r(f, at->page),
                          at->state->bitmap, begin, here);
        out += here;
        offset += here;
        n -= here;
    }
}

/* ---- one page ---- */

struct target {
    struct file *file;
    char *o, *r;
    uint64_t bitmap;
    bool skip_equal;
    bool cold; /* as persist_scatter() takes it */
};

/* Slice i, of which only bytes [begin, end) are new: completed from its valid home, then stored as
 * a whole. Returns its bit if it was stored. */
static uint64_t put_part(const struct target *t, unsigned i, unsigned begin, unsigned end,
                         const char *src)
{
    _Alignas(64) char line[SLICE_BYTES];
    bool in_r = (t->bitmap >> i) & 1;
    const char *valid = (in_r ? t->r : t->o) + i * SLICE_BYTES;
    memcpy(line, valid, SLICE_BYTES);
    if (t->skip_equal && memcmp(line + begin, src, end - begin) == 0)
        return 0;
    memcpy(line + begin, src, end - begin);
    persist_line(&t->file->persist, (in_r ? t->o : t->r) + i * SLICE_BYTES, line); /* I2 */
    return 1ull << i;
}

/* Stores bytes [begin, begin + n) of the page to invalid homes; returns the mask of slices. */
static uint64_t put(const struct target *t, unsigned begin, unsigned n, const char *src)
{
    unsigned end = begin + n, first = begin / 64, last = (end - 1) / 64;
    uint64_t done = 0;
    const char *base = src - begin; /* where byte 0 of the page would be */
    if (first == last && n < 64)
        return put_part(t, first, begin % 64, begin % 64 + n, src);
    if (begin % 64) {
        done |= put_part(t, first, begin % 64, 64, src);
        first++;
    }
    if (end % 64) {
        done |= put_part(t, last, 0, end % 64, base + (end - end % 64));
        if (last == first)
            return done;
        last--;
    }
    if (first > last)
        return done;
    uint64_t whole = bitmap_slices(first, last);
    if (t->skip_equal)
        whole = t->file->persist.kernel->differing(t->o, t->r, base, t->bitmap, whole);
    if (whole)
        persist_scatter(&t->file->persist, t->o, t->r, base, t->bitmap, whole, t->cold); /* I2 */
    return done | whole;
}

/* Bytes in a page from which on it pays to go past the caches; and how many ticks of the file's clock,
 * of 4 MiB each, a page stays in them. */
enum { COLD_BYTES = 1024, CACHED_TICKS = 4 };

/*
 * Are the lines that a write of n bytes will store to out of the caches? They are the slices' invalid
 * homes, which the last write but one left there: what tells is how much the process has written to the
 * file since the page was written. A page that never was is taken to be cached: its space is new, and the
 * kernel has just cleared it. A guess: if it is wrong the write, or a read after it, takes longer,
 * nothing else. Reserved.
 */
static bool guess_cold(const struct file *f, struct page_state *s, unsigned n)
{
    if (f->persist.domain != PERSIST_PROCESS)
        return false; /* what must leave the caches goes past them anyway; msync's time is not the CPU's */
    uint8_t clock = __atomic_load_n(&f->clock, __ATOMIC_RELAXED);
    uint8_t now = clock ? clock : 1, then = s->written;   /* 0: never */
    __atomic_store_n(&s->written, now, __ATOMIC_RELAXED); /* sleepers look at the word (pages.c) */
    return n >= COLD_BYTES && then && (uint8_t)(now - then) > CACHED_TICKS;
}

/* What the invalid homes of these slices lack in space; and O, if they are to come home. */
static uint8_t space_needed(const struct page_state *s, uint64_t mask, bool eager)
{
    uint8_t need = eager ? PAGE_O_ALLOCATED : 0;
    if (mask & ~s->bitmap)
        need |= PAGE_R_ALLOCATED;
    if (mask & s->bitmap)
        need |= PAGE_O_ALLOCATED;
    /* The word lies in the reflection: writing to O alone needs that too. */
    if (mask)
        need |= PAGE_R_ALLOCATED;
    return need & (uint8_t)~s->flags;
}

/*
 * What a write of a page will touch, fetched while the fences of the thread's last write are still
 * draining: the reservation that follows is a locked instruction, behind which nothing begins
 * earlier. Of the homes only the address translation is wanted, so that a line is fetched that the
 * write does not store to: it goes round the caches, and a copy there would have to leave first.
 * Inlined by force, because gcc takes a function of prefetches for one without effect, and drops
 * calls of it.
 */
static inline __attribute__((always_inline)) void
fetch(const struct file *f, const struct page_state *s, uint64_t page, unsigned begin)
{
    unsigned far = (begin / 64 + 32) % 64 * 64;
    __builtin_prefetch(s, 1);
    __builtin_prefetch(file_word(f, page), 1);
    __builtin_prefetch(file_o(f, page) + far);
    __builtin_prefetch(file_r(f, page) + far);
}

/* ---- the operation ---- */

/* Pages of a longer write that are fetched: the first ones, before anything is reserved. */
enum { FETCHED = 4 };

struct span {
    uint64_t offset, n, first, last; /* bytes; pages */
};

static struct span span_of(uint64_t offset, uint64_t n)
{
    return (struct span){offset, n, offset / PAGE_BYTES, (offset + n - 1) / PAGE_BYTES};
}

/* Bytes of the span within page `page`. */
static unsigned span_begin(const struct span *s, uint64_t page)
{
    return page == s->first ? (unsigned)(s->offset % PAGE_BYTES) : 0;
}

static unsigned span_bytes(const struct span *s, uint64_t page)
{
    uint64_t from = page * PAGE_BYTES + span_begin(s, page);
    uint64_t to = page == s->last ? s->offset + s->n : (page + 1) * PAGE_BYTES;
    return (unsigned)(to - from);
}

/* Space for all homes of the operation, in as few calls as there are runs of pages that need it. */
static int make_space(struct held *pages, uint64_t npages, const struct span *span, bool eager)
{
    struct file *f = pages[0].file;
    for (uint64_t i = 0; i < npages;) {
        uint64_t page = pages[i].page;
        uint64_t mask = bitmap_touched(span_begin(span, page), span_bytes(span, page));
        uint8_t need = space_needed(pages[i].state, mask, eager);
        uint64_t run = 1;
        if (!need) {
            i++;
            continue;
        }
        while (i + run < npages) {
            uint64_t next = pages[i + run].page;
            mask = bitmap_touched(span_begin(span, next), span_bytes(span, next));
            if (space_needed(pages[i + run].state, mask, eager) != need)
                break;
            run++;
        }
        if (space_make_run(f, page, run, need) < 0)
            return -1;
        for (uint64_t k = 0; k < run; k++) {
            struct page_state *s = pages[i + k].state;
            __atomic_store_n(&s->flags, s->flags | need, __ATOMIC_RELEASE);
        }
        i += run;
    }
    return 0;
}

/* In domain msync data is flushed by range, before the fence of the flip. */
static int flush_span(struct file *f, const struct span *s)
{
    if (f->persist.domain != PERSIST_MSYNC)
        return 0;
    uint64_t from = layout_reflected(s->first * PAGE_BYTES);
    uint64_t to = layout_reflected(s->last * PAGE_BYTES) + PAGE_BYTES;
    if (file_flush_data(f, file_o(f, s->first), (s->last - s->first + 1) * PAGE_BYTES) < 0)
        return -1;
    return file_flush_data(f, f->r + from, to - from);
}

/* The adaptive policy counts reads since the last write. Before anything is stored: the instruction is
 * a locked one, which would wait until the stores have drained. */
static inline void forget_reads(struct page_state *s)
{
    if (__builtin_expect(__atomic_load_n(&s->notes, __ATOMIC_RELAXED) & PAGE_READS, 0))
        __atomic_fetch_and(&s->notes, (uint8_t)~PAGE_READS, __ATOMIC_RELAXED);
}

static inline void note_written(struct file *f)
{
    if (__builtin_expect(!__atomic_load_n(&f->written, __ATOMIC_RELAXED), 0))
        __atomic_store_n(&f->written, true, __ATOMIC_RELAXED);
}

/* The pages of the span are held; `pages` is where they begin. */
static int write_held(struct mapping *m, struct hold *h, struct held *pages,
                      const struct span *span, const struct source *src, unsigned flags)
{
    struct file *f = m->file;
    uint64_t npages = span->last - span->first + 1;
    uint64_t stored = 0;
    bool eager = (flags & ATO_EAGER) || m->policy == ATO_READ_EAGER;
    char bounce[PAGE_BYTES];
    const char *bytes = src->bytes;
    uint64_t from = src->from_offset;
    if (make_space(pages, npages, span, eager) < 0)
        return -1;
    /* Of pages that may turn out to be equal nobody knows whether two of them flip. */
    if (!(flags & ATO_SKIP_EQUAL) && flip_prepare(m, h, npages) < 0)
        return -1;
    for (uint64_t i = 0; i < npages; i++)
        forget_reads(pages[i].state);
    for (uint64_t i = 0; i < npages; i++) {
        uint64_t page = pages[i].page;
        unsigned begin = span_begin(span, page), n = span_bytes(span, page);
        struct target t = {.file = f,
                           .o = file_o(f, page),
                           .r = file_r(f, page),
                           .bitmap = pages[i].state->bitmap,
                           .skip_equal = flags & ATO_SKIP_EQUAL,
                           .cold = guess_cold(f, pages[i].state, n)};
        if (src->from) {
            gather_held(h, src->from->file, from, n, bounce);
            bytes = bounce;
        }
        stored |= pages[i].pending = put(&t, begin, n, bytes);
        if (!src->from && !src->repeats)
            bytes += n;
        from += n;
    }
    if (stored && (flush_span(f, span) < 0 || flip_commit(m, h) < 0))
        return -1;
    note_written(f);
    /* The write is committed: that its slices cannot come home now (no space, a medium that fails:
     * then the next call says so) does not undo it. */
    if (eager) {
        /* persist-order W3 (reader: read.c, point 2): the flip is shown before the homes that it
         * made invalid are stored to. Elsewhere a reservation, a locked instruction, lies between;
         * here nothing does, and non-temporal stores wait for no earlier ones.
         * explorer: drop fence survives: it orders what other CPUs see, not what a crash leaves, and
         * the explorer lets one thread run at a time.
         * explorer: delay fence survives: for the same reason. */
        persist_fence(&f->persist);
        (void)deploy_held(m, h);
    }
    return 0;
}

/* write_held() for plain memory and one page: what most writes are. */
static int write_page(struct mapping *m, uint64_t offset, unsigned n, const char *bytes,
                      unsigned flags)
{
    struct file *f = m->file;
    uint64_t page = offset / PAGE_BYTES;
    unsigned begin = (unsigned)(offset % PAGE_BYTES);
    struct page_state *s = shared_state(&f->shared, page);
    if (__builtin_expect(!s, 0))
        return -1;
    fetch(f, s, page, begin);
    pages_reserve(f, s);
    int r = file_check(f); /* as in hold_range() */
    if (r == 0)
        r = pages_load(f, page, s);
    uint8_t need = r == 0 ? space_needed(s, bitmap_touched(begin, n), false) : 0;
    if (__builtin_expect(need, 0))
        r = space_make(f, page, s, need);
    if (r == 0) {
        struct target t = {.file = f,
                           .o = file_o(f, page),
                           .r = file_r(f, page),
                           .bitmap = s->bitmap,
                           .skip_equal = flags & ATO_SKIP_EQUAL,
                           .cold = guess_cold(f, s, n)};
        struct span span = {offset, n, page, page};
        struct held at = {.file = f, .state = s, .page = page};
        forget_reads(s);
        at.pending = put(&t, begin, n, bytes);
        if (at.pending) {
            r = flush_span(f, &span);
            if (r == 0)
                r = flip_one(m, &at);
        }
        note_written(f);
    }
    pages_release(s);
    return r;
}

static int write_source(struct mapping *m, uint64_t offset, uint64_t n, const struct source *src,
                        unsigned flags)
{
    struct span span = span_of(offset, n);
    struct hold h;
    hold_init(&h);
    for (uint64_t page = span.first; page <= span.last && page < span.first + FETCHED; page++) {
        const struct page_state *s = shared_peek(&m->file->shared, page);
        if (s)
            fetch(m->file, s, page, span_begin(&span, page));
    }
    int r = hold_range(&h, m->file, span.first, span.last);
    if (r == 0)
        r = write_held(m, &h, h.pages, &span, src, flags);
    hold_release(&h);
    return r;
}

int write_bytes(struct mapping *m, uint64_t offset, const char *bytes, uint64_t n, unsigned flags)
{
    bool eager = (flags & ATO_EAGER) || m->policy == ATO_READ_EAGER;
    if (offset % PAGE_BYTES + n <= PAGE_BYTES && !eager)
        return write_page(m, offset, (unsigned)n, bytes, flags);
    struct source src = {.bytes = bytes};
    return write_source(m, offset, n, &src, flags);
}

int write_fill(struct mapping *m, uint64_t offset, int byte, uint64_t n, unsigned flags)
{
    char page[PAGE_BYTES];
    struct source src = {.bytes = page, .repeats = true};
    memset(page, byte, n < sizeof(page) ? n : sizeof(page));
    return write_source(m, offset, n, &src, flags);
}

static bool comes_first(const struct file *a, uint64_t a_page, const struct file *b,
                        uint64_t b_page)
{
    int order = memcmp(a->pairing.record.id, b->pairing.record.id, 16);
    return order ? order < 0 : a_page <= b_page;
}

int write_from_mapping(struct mapping *m, uint64_t offset, struct mapping *from,
                       uint64_t from_offset, uint64_t n, unsigned flags)
{
    struct span to = span_of(offset, n), back = span_of(from_offset, n);
    struct source src = {.from = from, .from_offset = from_offset};
    struct hold h;
    hold_init(&h);
    int r;
    if (comes_first(m->file, to.first, from->file, back.first)) {
        r = hold_range(&h, m->file, to.first, to.last);
        if (r == 0)
            r = hold_range(&h, from->file, back.first, back.last);
    } else {
        r = hold_range(&h, from->file, back.first, back.last);
        if (r == 0)
            r = hold_range(&h, m->file, to.first, to.last);
    }
    if (r == 0)
        r = write_held(m, &h, hold_find(&h, m->file, to.first), &to, &src, flags);
    hold_release(&h);
    return r;
}
