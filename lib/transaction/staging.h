/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The reads and writes of a transaction, and what makes its pages ready for the commit.
 *
 * A call first reserves the pages that it touches and does not have yet (in the order of its addresses: claim.h
 * says why that may fail), then allocates space, and only then stores. So if a call fails, no pending slice is overwritten, and
 * the transaction is as it was when its caller has given back the pages and notes that it made.
 *
 * Offsets and lengths lie within the file, by its size as the transaction sees it.
 */
#ifndef ATO_LIB_TRANSACTION_STAGING_H
#define ATO_LIB_TRANSACTION_STAGING_H

#include "lib/read/range.h"
#include "lib/transaction/claim.h"

/* ---- the queue ---- */

/*
 * Short writes of a transaction that are not stored yet.
 *
 * They are stored when that becomes necessary, at the latest before the commit. The reason: a page is reserved by a
 * locked instruction, which waits until all earlier stores have drained. For 32 pages, one after the other, that would
 * take longer than the rest of their transaction.
 */
enum { QUEUE_WRITES = 256, QUEUE_BYTES = 32768 };

/* Queued writes, to pages that the transaction has and that have space. */
struct queue {
    unsigned n, used; /* writes queued; bytes used of `bytes` */
    struct queued {
        uint32_t place; /* of the page, in the transaction's list */
        uint32_t from;  /* offset in `bytes`; equal, modulo 64, to the offset in the page */
        uint16_t begin, bytes;
        uint8_t flags;
        bool first; /* first write to its page: no slice there was pending or queued */
    } writes[QUEUE_WRITES];
    _Alignas(64) char bytes[QUEUE_BYTES];
};

static inline bool queue_is_empty(const struct tx *t)
{
    return !t->queue || !t->queue->n;
}

/* Queues a write of n bytes within a page of the transaction, which has space. flags: ATO_SKIP_EQUAL. `first`: nothing
 * there is pending or queued. Returns false if there is no room. */
bool queue_add(struct tx *t, const struct held_page *at, bool first, unsigned begin, unsigned n,
               const char *bytes, unsigned flags);

/* Stores the queued writes. */
void queue_drain(struct tx *t);

/* Forgets the queued writes. */
void queue_forget(struct tx *t);

/* ---- reads and writes ---- */

/* A write of n bytes. */
struct staging_write {
    struct range to, from; /* from.m is NULL: the source is `bytes` */
    uint64_t n;
    const char *bytes;
    char *copy;   /* memory of its own with `bytes`, or NULL (data.c) */
    bool repeats; /* `bytes` is a page of one repeated byte */
};

/* Writes, and adds the mapping. flags: ATO_EAGER, ATO_SKIP_EQUAL. Returns 0; -1: errors of ato_tx_memcpy(). */
int staging_write(struct tx *t, const struct staging_write *w, unsigned flags);

/* The common case: n bytes from memory, to a page that is not reserved yet, or is the transaction's. `sizing`: the transaction
 * changes the file's size. flags: with ATO_EAGER also if that is the mapping's policy. Inline, as write.h is. */
static inline __attribute__((always_inline)) int
staging_write_page(struct tx *t, struct file *f, uint64_t offset, struct page_state *s,
                   const struct homes *homes, unsigned n, const char *bytes, unsigned flags,
                   bool sizing)
{
    const uint64_t page = offset / PAGE_BYTES;
    const unsigned begin = (unsigned)(offset % PAGE_BYTES);
    struct held_page *at = claim_find_at(t, s);
    const bool first = !at;
    if (first) {
        if ((t->set.n >= lesser(t->set.room, t->max_pages) && claim_make_room(t, 1) < 0) ||
            claim_take(t, f, page, s, homes, sizing) < 0)
            return -1;
        at = &t->set.pages[t->set.n - 1];
    }
    const uint8_t need = store_needs(s, bitmap_touched(begin, n), flags & ATO_EAGER);
    if (file_check(f) < 0 || (!sizing && reservation_reaches(f, offset + n) < 0) ||
        (__builtin_expect(need, 0) && space_make(f, page, need) < 0))
        return -1;
    /* Queued if reservations may follow: after the first write to a page, or after other queued writes. */
    if ((!first && queue_is_empty(t)) || !queue_add(t, at, first, begin, n, bytes, flags)) {
        queue_drain(t);
        claim_store(t, at, begin, n, bytes, flags);
    }
    file_note_written(f);
    return 0;
}

/* Reads n bytes as the transaction sees them. Returns 0; -1: errors of ato_tx_memcpy(). */
int staging_read(struct tx *t, struct mapping *m, uint64_t offset, char *dst, uint64_t n);

/* The steps of staging_write() from memory, when nothing is queued. The first does all that may fail. Returns as claim_range(). */
enum reservation staging_ready(struct tx *t, const struct staging_write *w, bool eager);
void staging_put(struct tx *t, const struct staging_write *w, unsigned flags);

#endif
