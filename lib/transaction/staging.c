/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/transaction/staging.h"

#include "lib/commit/hold.h"
#include "lib/commit/size.h"
#include "lib/commit/store.h"
#include "lib/file/clock.h"
#include "lib/file/page.h"
#include "lib/file/space.h"
#include "lib/page/handle.h"
#include "lib/page/load.h"
#include "lib/page/page_set.h"
#include "lib/page/part.h"
#include "lib/page/reservation.h"
#include "lib/read/read.h"
#include "lib/read/reader.h"
#include "lib/transaction/parts.h"
#include "reflection/media/report.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* ---- pages ---- */

struct held *staging_find(struct tx *t, struct file *f, uint64_t page)
{
    struct page_state *s = shared_peek(&f->shared, page);
    uint64_t tx = s ? __atomic_load_n(&s->tx, __ATOMIC_RELAXED) : 0;
    uint64_t at = (uint32_t)tx;
    /* Valid only if the transaction's own memory says the same. */
    if (tx >> 32 != t->hold.tag || at >= t->hold.n || t->hold.pages[at].state != s)
        return NULL;
    return &t->hold.pages[at];
}

static uint64_t region_bytes(uint64_t pages)
{
    return (pages * sizeof(struct held) + PAGE_BYTES - 1) & ~(PAGE_BYTES - 1);
}

/* Reserves address space for all pages that the transaction may ever have, so that an entry of the list never
 * moves. Only a part of it is writable memory: systems that limit the memory of a process (RLIMIT_DATA,
 * vm.overcommit_memory=2) count what may be written to. */
static int make_region(struct tx *t, uint64_t pages)
{
    const uint64_t all = region_bytes(t->max_pages), ready = region_bytes(pages);
    const bool anew = t->region_bytes < all;
    void *region = t->region;
    if (anew)
        region = mmap(NULL, all, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (region == MAP_FAILED)
        return report_error(ENOMEM, "no address space for a transaction of %llu pages",
                            (unsigned long long)t->max_pages);
    if ((anew || t->region_ready < ready) && mprotect(region, ready, PROT_READ | PROT_WRITE) < 0) {
        if (anew)
            munmap(region, all);
        return report_error(ENOMEM, "no memory for a transaction of %llu pages",
                            (unsigned long long)pages);
    }
    if (t->hold.pages != region)
        memcpy(region, t->hold.pages, t->hold.n * sizeof(struct held));
    if (anew && t->region)
        munmap(t->region, t->region_bytes);
    if (anew)
        t->region_bytes = all;
    if (anew || t->region_ready < ready)
        t->region_ready = ready;
    t->hold.pages = t->region = region;
    t->hold.room = t->region_ready / sizeof(struct held);
    if (t->hold.room > t->max_pages)
        t->hold.room = t->max_pages;
    return 0;
}

int staging_pin(struct tx *t)
{
    if (make_region(t, t->max_pages) < 0)
        return -1;
    t->pinned = true;
    return 0;
}

/* Pages of the first step; then their number doubles. */
enum { LEAST_PAGES = 4096 };

int staging_make_room(struct tx *t, uint64_t more)
{
    const uint64_t need = t->hold.n + more;
    if (more > t->max_pages - t->hold.n)
        return report_error(E2BIG,
                            "a transaction of %llu pages and %llu more: its limit is %llu "
                            "(ato_tx_options.max_bytes)",
                            (unsigned long long)t->hold.n, (unsigned long long)more,
                            (unsigned long long)t->max_pages);
    if (need <= t->hold.room)
        return 0;
    uint64_t pages = LEAST_PAGES;
    while (pages < need)
        pages *= 2;
    return make_region(t, pages < t->max_pages ? pages : t->max_pages);
}

struct patience staging_patience(const struct tx *t)
{
    struct patience patience = {0};
    if (t->wait_ms)
        patience.deadline = clock_ns() + t->wait_ms * 1000000u;
    return patience;
}

/* Reserves a page. Returns 0; -1; or RESERVATION_OF_TX, RESERVATION_AGAIN if it is not to wait for these: nothing is reserved
 * then. */
static int reserve(struct tx *t, struct file *f, struct page_state *s, uint64_t page,
                   bool not_for_tx)
{
    seam_point(SEAM_RESERVE, s);
    /* The transaction has drained the page itself (resize.c). */
    if (__builtin_expect(__atomic_load_n(&s->tx, __ATOMIC_RELAXED) ==
                                 hold_note(t->hold.tag, SIZE_DRAINED) &&
                             hold_is_of(f, s, t->hold.tag),
                         0))
        return 0;
    for (;;) {
        int r = page_try_reserve(f, s) ? 0 : RESERVATION_OF_TX;
        struct patience patience;
        if (__builtin_expect(r != 0, 0)) {
            patience = staging_patience(t);
            patience.not_for_tx = not_for_tx;
            r = reservation_wait(f, s, &patience);
            if (r != 0)
                return r;
        }
        if (parts_sizing(t, f))
            return 0;
        r = reservation_within(f, page * PAGE_BYTES + 1);
        if (__builtin_expect(r == 0, 1))
            return 0;
        page_release(s);
        if (r < 0 || not_for_tx)
            return r;
        patience = staging_patience(t);
        if (reservation_wait_for_size(f, &patience) < 0)
            return -1;
    }
}

/* Reserves one page that the transaction does not have yet. There is room in the list. Returns as reserve(); after
 * -1 the page may be in the list. */
static int claim(struct tx *t, struct file *f, uint64_t page, bool not_for_tx)
{
    struct page_state *s = shared_state(&f->shared, page);
    int r = s ? reserve(t, f, s, page, not_for_tx) : -1;
    if (r != 0)
        return r;
    t->hold.pages[t->hold.n] = (struct held){.file = f, .state = s, .page = page};
    /* Release: pairs with look() in epoch.c, which follows this to the entry stored above. */
    __atomic_store_n(&s->tx, hold_note(t->hold.tag, t->hold.n), __ATOMIC_RELEASE);
    t->hold.n++;
    /* As in hold_page(). */
    return file_check(f) < 0 || load_page(f, page, s) < 0 ? -1 : 0;
}

void staging_give_back(struct tx *t, uint64_t n)
{
    for (uint64_t i = t->hold.n; i > n; i--) {
        struct held *at = &t->hold.pages[i - 1];
        const struct part *part = parts_sizing(t, at->file);
        if (part)
            space_forget_behind(at->file, at->page, at->state);
        if (!part || at->page < layout_pages(part->low) || at->page >= layout_pages(part->old))
            continue;
        /* It was taken from the drained pages, and goes back there. The last page takes its place. */
        __atomic_store_n(&at->state->tx, hold_note(t->hold.tag, SIZE_DRAINED), __ATOMIC_RELAXED);
        *at = t->hold.pages[--t->hold.n];
        if (i - 1 < t->hold.n)
            __atomic_store_n(&at->state->tx, hold_note(t->hold.tag, i - 1), __ATOMIC_RELAXED);
    }
    hold_release_from(&t->hold, n);
}

/* Returns a page of the transaction, reserved if necessary. NULL on failure: the transaction is as before. */
static struct held *have(struct tx *t, struct file *f, uint64_t page)
{
    struct held *at = staging_find(t, f, page);
    uint64_t before = t->hold.n;
    if (at || staging_make_room(t, 1) < 0)
        return at;
    if (claim(t, f, page, false) == 0)
        return &t->hold.pages[before];
    staging_give_back(t, before);
    return NULL;
}

/* Reserves those pages of a range that the transaction does not have. Returns as claim(), for page *page; on
 * failure some may be reserved. */
static int claim_range(struct tx *t, struct file *f, uint64_t first, uint64_t last, bool not_for_tx,
                       uint64_t *page)
{
    uint64_t missing = 0;
    for (uint64_t at = first; at <= last; at++)
        missing += !staging_find(t, f, at);
    if (missing && staging_make_room(t, missing) < 0)
        return -1;
    for (*page = first; *page <= last && missing; (*page)++) {
        int r = staging_find(t, f, *page) ? 0 : claim(t, f, *page, not_for_tx);
        if (r != 0)
            return r;
    }
    return file_check(f);
}

int staging_claim(struct tx *t, struct file *f, uint64_t first, uint64_t last)
{
    uint64_t before = t->hold.n, page;
    if (claim_range(t, f, first, last, false, &page) == 0)
        return 0;
    staging_give_back(t, before);
    return -1;
}

/* How many spans ahead page states and homes are prefetched before they are reserved. */
enum { FETCHED = 4 };

static inline __attribute__((always_inline)) void fetch_span(const struct hold_span *span)
{
    const struct page_state *s = shared_peek(&span->file->shared, span->first);
    if (s)
        store_fetch(span->file, s, span->first, 0);
}

/* Checks that the file still reaches `end`. The transaction has the pages, so no other thread moves the end now. If
 * the transaction itself changes the size, the caller has checked that already. */
static int check_end(const struct tx *t, struct file *f, uint64_t end)
{
    return parts_sizing(t, f) || end <= file_size(f) ? 0 : reservation_beyond(f, end);
}

/* One try. Returns 0; -1; or RESERVATION_OF_TX, RESERVATION_AGAIN for page *page of *file. */
static int claim_spans(struct tx *t, const struct hold_span *spans, unsigned n, struct file **file,
                       uint64_t *page)
{
    for (unsigned i = 0; i < n && i < FETCHED; i++)
        fetch_span(&spans[i]);
    for (unsigned i = 0; i < n; i++) {
        if (i + FETCHED < n)
            fetch_span(&spans[i + FETCHED]);
        *file = spans[i].file;
        for (*page = spans[i].first; *page <= spans[i].last; (*page)++) {
            if (staging_find(t, *file, *page))
                continue;
            int r = staging_make_room(t, 1);
            if (r == 0)
                r = claim(t, *file, *page, true);
            if (r != 0)
                return r;
        }
    }
    int r = 0;
    for (unsigned i = 0; i < n && r == 0; i++) {
        *file = spans[i].file;
        r = reservation_within(*file, spans[i].end);
    }
    return r;
}

int staging_claim_in_order(struct tx *t, const struct hold_span *spans, unsigned n)
{
    struct file *f;
    uint64_t page;
    int r = claim_spans(t, spans, n, &f, &page);
    while (r > 0) {
        hold_release_from(&t->hold, 0);
        r = hold_await(f, page, r, 0);
        if (r == 0)
            r = claim_spans(t, spans, n, &f, &page);
    }
    return r;
}

/* ---- walking a range, forwards or backwards ---- */

struct walk {
    uint64_t offset, n; /* what is left */
    bool backwards;
    uint64_t page; /* of the next piece, as the fields below */
    unsigned begin, bytes;
    uint64_t done; /* where it begins, from the beginning of the range */
    uint64_t whole;
};

static struct walk walk_of(uint64_t offset, uint64_t n, bool backwards)
{
    return (struct walk){.offset = offset, .n = n, .backwards = backwards, .whole = n};
}

static bool walk_on(struct walk *w)
{
    if (!w->n)
        return false;
    if (w->backwards) {
        uint64_t end = w->offset + w->n, from = (end - 1) / PAGE_BYTES * PAGE_BYTES;
        if (from < w->offset)
            from = w->offset;
        w->page = from / PAGE_BYTES;
        w->begin = (unsigned)(from % PAGE_BYTES);
        w->bytes = (unsigned)(end - from);
        w->done = from - w->offset;
    } else {
        w->page = w->offset / PAGE_BYTES;
        w->begin = (unsigned)(w->offset % PAGE_BYTES);
        w->bytes = (unsigned)(w->n < PAGE_BYTES - w->begin ? w->n : PAGE_BYTES - w->begin);
        w->done = w->whole - w->n;
        w->offset += w->bytes;
    }
    w->n -= w->bytes;
    return true;
}

/* ---- storing ---- */

/* Stores bytes to a page of the transaction. Returns its new pending mask. */
static uint64_t put_claimed(struct tx *t, const struct held *at, unsigned begin, unsigned n,
                            const char *bytes, unsigned flags)
{
    struct file *f = at->file;
    struct page_state *s = at->state;
    struct target target = {.file = f,
                            .o = file_o(f, at->page),
                            .r = file_r(f, at->page),
                            .bitmap = s->bitmap,
                            .pending = at->pending,
                            .skip_equal = flags & ATO_SKIP_EQUAL,
                            .cold = store_is_cold(f, s, n)};
    store_begin(s);
    store_bytes(&target, begin, n, bytes);
    if (__builtin_expect(at->pending & ~target.pending, 0))
        t->hold.forgotten = &f->persist; /* W4 */
    return target.pending;
}

enum { QUEUED_WRITES = 256, QUEUED_BYTES = 32768 };

/* Queued writes, to pages that the transaction has and that have space. */
struct queue {
    unsigned n, used; /* writes queued; bytes used of `bytes` */
    struct queued {
        uint32_t place; /* of the page, in the transaction's list */
        uint32_t from;  /* offset in `bytes`; equal, modulo 64, to the offset in the page */
        uint16_t begin, bytes;
        uint8_t flags;
        bool first; /* first write to its page: no slice there was pending or queued */
    } writes[QUEUED_WRITES];
    _Alignas(64) char bytes[QUEUED_BYTES];
};

static bool is_empty(const struct tx *t)
{
    return !t->queue || !t->queue->n;
}

bool staging_is_for_several(const struct tx *t)
{
    const struct queue *q = t->queue;
    if (is_empty(t) || t->hold.n > QUEUED_WRITES)
        return false;
    unsigned i = 0;
    while (i < q->n && !(q->writes[i].flags & ATO_SKIP_EQUAL) &&
           q->writes[i].place == q->writes[0].place)
        i++;
    return i < q->n && !(q->writes[i].flags & ATO_SKIP_EQUAL);
}

uint64_t staging_kept_bytes(const struct tx *t)
{
    uint64_t queued = (sizeof(struct queue) + PAGE_BYTES - 1) & ~(PAGE_BYTES - 1);
    return t->region_bytes + (t->queue ? queued : 0);
}

void staging_forget(struct tx *t)
{
    if (t->queue)
        t->queue->n = t->queue->used = 0;
}

static const char *valid(const struct held *at, unsigned slice)
{
    const char *page =
        at->state->bitmap >> slice & 1 ? file_r(at->file, at->page) : file_o(at->file, at->page);
    return page + slice * SLICE_BYTES;
}

/* Prefetches the slices that a write stores only in part, and that must be completed. always_inline: as
 * store_fetch(). */
static inline __attribute__((always_inline)) void fetch_parts(const struct held *at,
                                                              const struct queued *w)
{
    const unsigned end = w->begin + w->bytes;
    if (w->begin % SLICE_BYTES)
        __builtin_prefetch(valid(at, w->begin / SLICE_BYTES));
    if (end % SLICE_BYTES)
        __builtin_prefetch(valid(at, end / SLICE_BYTES));
}

/* Completes the first and last slice of the first write to a page, so that whole slices are stored. */
static void complete(struct queue *q, const struct held *at, struct queued *w)
{
    const unsigned before = w->begin % SLICE_BYTES, end = w->begin + w->bytes;
    const unsigned behind = (SLICE_BYTES - end % SLICE_BYTES) % SLICE_BYTES;
    if (before)
        memcpy(q->bytes + w->from - before, valid(at, w->begin / SLICE_BYTES), before);
    if (behind)
        memcpy(q->bytes + w->from + w->bytes, valid(at, end / SLICE_BYTES) + end % SLICE_BYTES,
               behind);
    w->from -= before;
    w->begin = (uint16_t)(w->begin - before);
    w->bytes = (uint16_t)(w->bytes + before + behind);
}

void staging_drain(struct tx *t)
{
    struct queue *q = t->queue;
    if (is_empty(t))
        return;
    /* All reads come before all stores: so the loads wait for nothing. */
    for (struct queued *w = q->writes; w < q->writes + q->n; w++)
        if (w->first)
            complete(q, &t->hold.pages[w->place], w);
    for (const struct queued *w = q->writes; w < q->writes + q->n; w++) {
        struct held *at = &t->hold.pages[w->place];
        at->pending = put_claimed(t, at, w->begin, w->bytes, q->bytes + w->from, w->flags);
    }
    staging_forget(t);
}

/* Queues a write of n bytes within a page. Returns false if there is no room. `first`: nothing there is pending or
 * queued. */
static bool queue(struct tx *t, const struct held *at, bool first, unsigned begin, unsigned n,
                  const char *bytes, unsigned flags)
{
    struct queue *q = t->queue;
    if (__builtin_expect(!q, 0)) {
        q = mmap(NULL, sizeof(*q), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (q == MAP_FAILED)
            return false;
        t->queue = q;
    }
    unsigned from = q->used + begin % SLICE_BYTES;
    if (q->n == QUEUED_WRITES || from + n > QUEUED_BYTES)
        return false;
    struct queued *w = &q->writes[q->n++];
    *w = (struct queued){.place = (uint32_t)(at - t->hold.pages),
                         .from = from,
                         .begin = (uint16_t)begin,
                         .bytes = (uint16_t)n,
                         .flags = (uint8_t)flags,
                         .first = first};
    if (first)
        fetch_parts(at, w);
    memcpy(q->bytes + from, bytes, n);
    q->used = (from + n + SLICE_BYTES - 1) & ~(SLICE_BYTES - 1u);
    return true;
}

/* ---- reading ---- */

/* Copies bytes of a page that the transaction has, as it sees them. */
static void copy_seen(const struct held *at, unsigned begin, unsigned n, char *dst)
{
    const struct file *f = at->file;
    copy_gather_range(f->persist.kernel, dst, file_o(f, at->page), file_r(f, at->page),
                      at->state->bitmap ^ at->pending, begin, n);
}

/* Reads a range of pages that the transaction has. */
static void read_claimed(struct tx *t, struct file *f, uint64_t offset, char *dst, uint64_t n)
{
    struct walk w = walk_of(offset, n, false);
    while (walk_on(&w))
        copy_seen(staging_find(t, f, w.page), w.begin, w.bytes, dst + w.done);
}

/* Reads what is committed, as it was at one moment, and puts the transaction's own writes over it. */
static int read_committed(struct tx *t, struct mapping *m, uint64_t offset, char *dst, uint64_t n)
{
    uint64_t size = file_size(m->file), end = offset + n, before = t->hold.n;
    if (m->file->reader) /* the transaction has nothing in that file */
        return reader_read(m, offset, dst, n);
    /* No other thread has anything beyond the end that the file has for others. */
    if (parts_sizing(t, m->file) && end > size) {
        uint64_t from = offset > size ? offset : size;
        if (staging_claim(t, m->file, from / PAGE_BYTES, (end - 1) / PAGE_BYTES) < 0)
            return -1;
        end = from;
    }
    if (end > offset && read_bytes(m, offset, dst, end - offset) < 0) {
        staging_give_back(t, before);
        return -1;
    }
    struct walk w = walk_of(offset, n, false);
    while (walk_on(&w)) {
        const struct held *at = staging_find(t, m->file, w.page);
        if (at)
            copy_seen(at, w.begin, w.bytes, dst + w.done);
    }
    return 0;
}

int staging_read(struct tx *t, struct mapping *m, uint64_t offset, char *dst, uint64_t n)
{
    uint64_t first = offset / PAGE_BYTES, last = (offset + n - 1) / PAGE_BYTES;
    for (uint64_t page = first; page <= last && !is_empty(t); page++)
        if (staging_find(t, m->file, page))
            staging_drain(t);
    if (m->file->reader && !(t->flags & ATO_TX_READ_COMMITTED))
        return report_error(EACCES,
                            "a transaction keeps the pages that it reads, and cannot keep those of "
                            "%s, which may only be read here: begin it with ATO_TX_READ_COMMITTED",
                            m->file->pairing.path);
    if (t->flags & ATO_TX_READ_COMMITTED)
        return read_committed(t, m, offset, dst, n);
    uint64_t before = t->hold.n;
    if (staging_claim(t, m->file, first, last) < 0)
        return -1;
    if (check_end(t, m->file, offset + n) < 0) {
        staging_give_back(t, before);
        return -1;
    }
    read_claimed(t, m->file, offset, dst, n);
    return 0;
}

bool staging_is_zeros(struct tx *t, struct file *f, uint64_t offset, uint64_t n)
{
    char bytes[SLICE_BYTES];
    const struct held *at = staging_find(t, f, offset / PAGE_BYTES);
    if (!at) /* no write went there */
        return true;
    copy_seen(at, (unsigned)(offset % PAGE_BYTES), (unsigned)n, bytes);
    for (uint64_t i = 0; i < n; i++)
        if (bytes[i])
            return false;
    return true;
}

/* ---- writing ---- */

/* Allocates space for all homes of the write, in one call for each run of pages that need it. */
static int make_space(struct tx *t, struct file *f, uint64_t offset, uint64_t n)
{
    uint64_t run = 0, from = 0;
    uint8_t need = 0;
    struct walk w = walk_of(offset, n, false);
    for (bool more = true; more;) {
        more = walk_on(&w);
        struct held *at = more ? staging_find(t, f, w.page) : NULL;
        uint8_t here = at ? store_needs(at->state, bitmap_touched(w.begin, w.bytes), false) : 0;
        if (run && here != need) {
            if (space_make_run(f, from, run, need) < 0)
                return -1;
            run = 0;
        }
        if (here && !run)
            from = w.page;
        run += here != 0;
        need = here;
    }
    return 0;
}

/* Copies from pages that the transaction has too; overlapping ranges as memmove(). */
static void copy_claimed(struct tx *t, struct file *f, uint64_t offset, uint64_t n,
                         const struct staging_source *src, unsigned flags)
{
    char piece[PAGE_BYTES];
    struct walk w = walk_of(offset, n, src->from->file == f && src->from_offset < offset);
    while (walk_on(&w)) {
        struct held *at = staging_find(t, f, w.page);
        read_claimed(t, src->from->file, src->from_offset + w.done, piece, w.bytes);
        at->pending = put_claimed(t, at, w.begin, w.bytes, piece, flags);
    }
}

/* Copies from a mapping whose pages the transaction does not keep, as they were at one moment. */
static int write_copy(struct tx *t, struct mapping *m, uint64_t offset, uint64_t n,
                      const struct staging_source *src, unsigned flags)
{
    char *copy = malloc(n);
    if (!copy)
        return report_error(ENOMEM, "no memory to copy %llu bytes from mapping to mapping",
                            (unsigned long long)n);
    struct staging_source plain = {.bytes = copy};
    uint64_t before = t->hold.n;
    int r = read_committed(t, src->from, src->from_offset, copy, n);
    if (r == 0)
        r = staging_write(t, m, offset, n, &plain, flags);
    if (r < 0)
        staging_give_back(t, before);
    free(copy);
    return r;
}

/* The common case of a write: to one page, from memory. */
static int write_page(struct tx *t, struct file *f, uint64_t offset, unsigned n, const char *bytes,
                      unsigned flags)
{
    unsigned begin = (unsigned)(offset % PAGE_BYTES);
    uint64_t page = offset / PAGE_BYTES, before = t->hold.n;
    struct held *at = have(t, f, page);
    if (!at)
        return -1;
    uint8_t need = store_needs(at->state, bitmap_touched(begin, n), false);
    if (file_check(f) < 0 || check_end(t, f, offset + n) < 0 ||
        (__builtin_expect(need, 0) && space_make(f, page, at->state, need) < 0)) {
        staging_give_back(t, before);
        return -1;
    }
    /* Queued if reservations may follow: after the first write to a page, or after other queued writes. */
    bool first = t->hold.n > before;
    if ((first || !is_empty(t)) && queue(t, at, first, begin, n, bytes, flags)) {
        store_end(f);
        return 0;
    }
    staging_drain(t);
    at->pending = put_claimed(t, at, begin, n, bytes, flags);
    store_end(f);
    return 0;
}

int staging_ready(struct tx *t, struct file *f, uint64_t offset, uint64_t n, uint64_t *blocked)
{
    uint64_t page, first = offset / PAGE_BYTES, last = (offset + n - 1) / PAGE_BYTES;
    int r = claim_range(t, f, first, last, blocked, blocked ? blocked : &page);
    if (r != 0)
        return r;
    return check_end(t, f, offset + n) < 0 || make_space(t, f, offset, n) < 0 ? -1 : 0;
}

void staging_put(struct tx *t, struct file *f, uint64_t offset, uint64_t n,
                 const struct staging_source *src, unsigned flags, bool publish)
{
    struct walk w = walk_of(offset, n, false);
    while (walk_on(&w)) {
        struct held *at = staging_find(t, f, w.page);
        uint64_t pending = put_claimed(t, at, w.begin, w.bytes,
                                       src->repeats ? src->bytes : src->bytes + w.done, flags);
        if (publish)
            __atomic_store_n(&at->pending, pending, __ATOMIC_RELEASE);
    }
    store_end(f);
}

bool staging_rewrites(struct tx *t, struct file *f, uint64_t offset, uint64_t n)
{
    struct walk w = walk_of(offset, n, false);
    while (walk_on(&w))
        if (staging_find(t, f, w.page)->pending & bitmap_touched(w.begin, w.bytes))
            return true;
    return false;
}

void staging_publish(struct tx *t, struct file *f, uint64_t offset, uint64_t n)
{
    struct walk w = walk_of(offset, n, false);
    while (walk_on(&w)) {
        struct held *at = staging_find(t, f, w.page);
        __atomic_store_n(&at->pending, at->pending | bitmap_touched(w.begin, w.bytes),
                         __ATOMIC_RELEASE);
    }
}

int staging_write(struct tx *t, struct mapping *m, uint64_t offset, uint64_t n,
                  const struct staging_source *src, unsigned flags)
{
    struct file *f = m->file;
    uint64_t before = t->hold.n;
    if (!src->from && offset % PAGE_BYTES + n <= PAGE_BYTES)
        return write_page(t, f, offset, (unsigned)n, src->bytes, flags);
    staging_drain(t);
    if (src->from && ((t->flags & ATO_TX_READ_COMMITTED) || src->from->file->reader))
        return write_copy(t, m, offset, n, src, flags);
    if (src->from && staging_claim(t, src->from->file, src->from_offset / PAGE_BYTES,
                                   (src->from_offset + n - 1) / PAGE_BYTES) < 0)
        return -1;
    if ((src->from && check_end(t, src->from->file, src->from_offset + n) < 0) ||
        staging_ready(t, f, offset, n, NULL) < 0) {
        staging_give_back(t, before);
        return -1;
    }
    if (src->from) {
        copy_claimed(t, f, offset, n, src, flags);
        store_end(f);
    } else {
        staging_put(t, f, offset, n, src, flags, true);
    }
    return 0;
}

/* ---- before the commit ---- */

static int by_order(const void *a, const void *b)
{
    const struct held *x = a, *y = b;
    return hold_order(x->file, x->page, y->file, y->page);
}

bool staging_is_sorted(const struct tx *t)
{
    const struct hold *h = &t->hold;
    uint64_t i = 1;
    while (i < h->n && by_order(&h->pages[i - 1], &h->pages[i]) < 0)
        i++;
    return i >= h->n;
}

void staging_sort(struct tx *t)
{
    struct hold *h = &t->hold;
    staging_drain(t);
    qsort(h->pages, h->n, sizeof(*h->pages), by_order);
    for (uint64_t i = 0; i < h->n; i++)
        __atomic_store_n(&h->pages[i].state->tx, hold_note(t->hold.tag, i), __ATOMIC_RELAXED);
}

bool staging_has_to_be_flushed(const struct tx *t)
{
    /* Files that are only read may have another domain. */
    for (unsigned i = 0; i < t->nparts && t->hold.n; i++)
        if (t->parts[i].mapping->file->persist.domain == PERSIST_MSYNC)
            return true;
    return false;
}

static bool goes_to_o(const struct held *at)
{
    return at->pending & at->state->bitmap;
}

static bool goes_to_r(const struct held *at)
{
    return at->pending & ~at->state->bitmap;
}

int staging_flush(struct tx *t)
{
    struct hold *h = &t->hold;
    for (uint64_t i = 0, end; i < h->n; i = end) {
        const struct held *first = &h->pages[i];
        struct file *f = first->file;
        bool o = false, r = false;
        /* Pages that are adjacent, in the reflection too. */
        for (end = i; end < h->n && h->pages[end].pending && h->pages[end].file == f &&
                      h->pages[end].page == first->page + (end - i) &&
                      h->pages[end].page / CHUNK_PAGES == first->page / CHUNK_PAGES;
             end++) {
            o = o || goes_to_o(&h->pages[end]);
            r = r || goes_to_r(&h->pages[end]);
        }
        if (end == i) {
            end++;
            continue;
        }
        if ((o && file_flush_data(f, file_o(f, first->page), (end - i) * PAGE_BYTES) < 0) ||
            (r && file_flush_data(f, file_r(f, first->page), (end - i) * PAGE_BYTES) < 0))
            return -1;
    }
    return 0;
}
