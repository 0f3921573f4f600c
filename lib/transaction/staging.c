/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/transaction/staging.h"

#include "lib/commit/commit.h"
#include "lib/commit/log.h"
#include "lib/commit/store.h"
#include "lib/file/space.h"
#include "lib/page/page_set_reserve.h"
#include "lib/page/reservation.h"
#include "lib/read/read.h"
#include "lib/read/reader.h"
#include "lib/transaction/claim.h"
#include "lib/transaction/notes.h"
#include "reflection/media/heap.h"
#include "reflection/media/report.h"

#include "ato_engine.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- the queue ---- */

void queue_forget(struct tx *t)
{
    if (t->queue)
        t->queue->n = t->queue->used = 0;
}

static const char *valid(const struct held_page *at, unsigned slice)
{
    const char *page = page_set_seen(at) >> slice & 1 ? at->homes.r : at->homes.o;
    return page + slice * SLICE_BYTES;
}

/* Completes the first and last slice of the first write to a page, so that whole slices are stored. */
static void complete(struct queue *q, const struct held_page *at, struct queued *w)
{
    const unsigned before = w->begin % SLICE_BYTES, end = w->begin + w->bytes;
    const unsigned behind = (SLICE_BYTES - end % SLICE_BYTES) % SLICE_BYTES;
    if (before)
        copy_few(q->bytes + w->from - before, valid(at, w->begin / SLICE_BYTES), before);
    if (behind)
        copy_few(q->bytes + w->from + w->bytes, valid(at, end / SLICE_BYTES) + end % SLICE_BYTES,
                 behind);
    w->from -= before;
    w->begin = (uint16_t)(w->begin - before);
    w->bytes = (uint16_t)(w->bytes + before + behind);
}

void queue_drain(struct tx *t)
{
    struct queue *q = t->queue;
    if (queue_is_empty(t))
        return;
    /* All reads come before all stores: so the loads wait for nothing. */
    for (struct queued *w = q->writes; w < q->writes + q->n; w++)
        if (w->first)
            complete(q, &t->set.pages[w->place], w);
    for (const struct queued *w = q->writes; w < q->writes + q->n; w++)
        claim_store(t, &t->set.pages[w->place], w->begin, w->bytes, q->bytes + w->from, w->flags);
    queue_forget(t);
}

bool queue_add(struct tx *t, const struct held_page *at, bool first, unsigned begin, unsigned n,
               const char *bytes, unsigned flags)
{
    struct queue *q = t->queue;
    if (__builtin_expect(!q, 0)) {
        q = aligned_alloc(_Alignof(struct queue), sizeof(*q));
        if (!q)
            return false;
        q->n = q->used = 0;
        t->queue = q;
    }
    unsigned from = q->used + begin % SLICE_BYTES;
    if (q->n == QUEUE_WRITES || from + n > QUEUE_BYTES)
        return false;
    struct queued *w = &q->writes[q->n++];
    *w = (struct queued){.place = (uint32_t)(at - t->set.pages),
                         .from = from,
                         .begin = (uint16_t)begin,
                         .bytes = (uint16_t)n,
                         .flags = (uint8_t)flags,
                         .first = first};
    if (__builtin_expect(n <= SLICE_BYTES, 1))
        copy_few(q->bytes + from, bytes, n);
    else
        memcpy(q->bytes + from, bytes, n);
    q->used = (from + n + SLICE_BYTES - 1) & ~(SLICE_BYTES - 1u);
    return true;
}

/* ---- reading ---- */

/* Checks that the file still reaches `end`. The transaction has the pages, so no other thread moves the end now. If
 * the transaction itself changes the size, the caller has checked that already. */
static int check_end(const struct tx *t, struct file *f, uint64_t end)
{
    return claim_sizing(t, f) ? 0 : reservation_reaches(f, end);
}

/* Reads what is committed, as it was at one moment. Unless the transaction is READ_COMMITTED, notes the pages that it does not
 * have. */
static int read_others(struct tx *t, struct mapping *m, uint64_t offset, char *dst, uint64_t n)
{
    const bool notes = !(t->flags & ATO_TX_READ_COMMITTED);
    struct read_versions v;
    int r = read_bytes(m, offset, dst, n, notes ? &v : NULL, t->flags & ATO_TX_EARLY);
    if (r < 0 || !notes)
        return r;
    const uint64_t *version = v.of;
    FOR_EACH_PAGE(page, begin, bytes, offset, n)
    {
        if (r == 0 && !claim_find(t, m->file, page))
            r = notes_add(t, m->file, shared_held(&m->file->shared, page),
                          page * PAGE_BYTES + begin + bytes, *version);
        version++;
    }
    read_versions_free(&v);
    return r == 0 ? notes_hold(t) : r;
}

/* Holds what must not be read as it is committed: beyond the end that the file has for others, nobody else has anything; and a
 * transaction that goes first holds all that it reads (again.h). Sets *from to where that begins: to `offset` also if all lies in one
 * page that the transaction has. Returns as claim_range(). */
static int hold_for_read(struct tx *t, struct file *f, uint64_t offset, uint64_t n, uint64_t *from)
{
    const uint64_t size = file_size(f), end = offset + n, page = offset / PAGE_BYTES;
    *from = end;
    if ((end <= (page + 1) * PAGE_BYTES && claim_find(t, f, page)) ||
        (t->first && !(t->flags & ATO_TX_READ_COMMITTED)))
        *from = offset;
    else if (claim_sizing(t, f) && end > size)
        *from = offset > size ? offset : size;
    return *from < end ? claim_range(t, f, *from / PAGE_BYTES, (end - 1) / PAGE_BYTES) : 0;
}

int staging_read(struct tx *t, struct mapping *m, uint64_t offset, char *dst, uint64_t n)
{
    struct file *f = m->file;
    uint64_t held;
    if (f->reader && !(t->flags & ATO_TX_READ_COMMITTED))
        return notes_refuse_reader(f);
    if (f->reader) /* the transaction has nothing in that file */
        return reader_read(m, offset, dst, n);
    if (hold_for_read(t, f, offset, n, &held) < 0 ||
        (held == offset && check_end(t, f, offset + n) < 0) ||
        (held > offset && read_others(t, m, offset, dst, held - offset) < 0))
        return -1;
    /* What the transaction has written goes over it. */
    FOR_EACH_PAGE(page, begin, bytes, offset, n)
    {
        const struct held_page *at = claim_find(t, f, page);
        /* What it has may be from an early commit. */
        if (at && undo_is_early(f, at->state) && !(t->flags & ATO_TX_EARLY) &&
            page_content(at->state->version) > f->shared.header->undo.moment && log_settle(f) < 0)
            return -1;
        if (at) {
            queue_drain(t);
            copy_gather_range(f->persist.kernel, dst, at->homes.o, at->homes.r,
                              page_set_seen(at) ^ at->pending, (unsigned)begin, (unsigned)bytes);
        }
        dst += bytes;
    }
    if (file_check(f) < 0) /* after the copy (fault.h) */
        return -1;
    return held < offset + n ? notes_hold(t) : 0;
}

/* ---- writing ---- */

enum reservation staging_ready(struct tx *t, const struct staging_write *w, bool eager)
{
    struct file *f = w->to.m->file;
    const struct page_span span = page_span_of(f, w->to.offset, w->n);
    const enum reservation r = claim_range(t, f, span.first, span.last);
    if (r == RESERVATION_MINE &&
        (check_end(t, f, span.end) < 0 || store_make_space(f, w->to.offset, w->n, eager) < 0))
        return RESERVATION_FAILED;
    return r;
}

void staging_put(struct tx *t, const struct staging_write *w, unsigned flags)
{
    struct file *f = w->to.m->file;
    const char *from = w->bytes;
    FOR_EACH_PAGE(page, begin, bytes, w->to.offset, w->n)
    {
        struct held_page *at = claim_find(t, f, page);
        if (at) /* shared memory is not trusted */
            claim_store(t, at, (unsigned)begin, (unsigned)bytes, from, flags);
        from += w->repeats ? 0 : bytes;
    }
    file_note_written(f);
}

static int write_memory(struct tx *t, const struct staging_write *w, unsigned flags)
{
    struct file *f = w->to.m->file;
    const uint64_t page = w->to.offset / PAGE_BYTES;
    if (w->to.offset % PAGE_BYTES + w->n <= PAGE_BYTES) {
        struct page_state *s = shared_state(&f->shared, page);
        const struct homes homes = file_homes_of(f, page, s);
        return s ? staging_write_page(t, f, w->to.offset, s, &homes, (unsigned)w->n, w->bytes,
                                      flags, claim_sizing(t, f))
                 : -1;
    }
    queue_drain(t);
    if (staging_ready(t, w, flags & ATO_EAGER) < 0)
        return -1;
    staging_put(t, w, flags);
    return 0;
}

int staging_write(struct tx *t, const struct staging_write *w, unsigned flags)
{
    struct mapping *m = w->to.m;
    struct staging_write plain = *w;
    char *copy HEAP = NULL;
    flags = write_flags(m, flags);
    if (claim_mapping(t, m, true) < 0)
        return -1;
    if (w->from.m) { /* from mapping to mapping: a read and a write */
        plain.bytes = copy = range_copy_buffer(w->n);
        if (!copy || staging_read(t, w->from.m, w->from.offset, copy, w->n) < 0)
            return -1;
    }
    if (write_memory(t, &plain, flags) < 0)
        return -1;
    t->written = m;
    t->eager |= (flags & ATO_EAGER) != 0;
    return 0;
}
