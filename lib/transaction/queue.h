/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Short writes of a transaction that are not stored yet.
 *
 * They are stored when that becomes necessary, at the latest before the commit. The reason: a page is reserved by a
 * locked instruction, which waits until all earlier stores have drained. For 32 pages, one after the other, that would
 * take longer than the rest of their transaction.
 */
#ifndef ATO_LIB_TRANSACTION_QUEUE_H
#define ATO_LIB_TRANSACTION_QUEUE_H

#include "lib/page/handle.h"
#include "lib/page/page_set.h"

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

#endif
