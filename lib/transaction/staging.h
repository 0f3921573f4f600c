/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The reads and writes of a transaction, and what makes its pages ready for the commit.
 *
 * A call first reserves the pages that it touches and does not have yet (in the order of its addresses: waits.h
 * says why that may fail), then allocates space, and only then stores. So if a call fails, the transaction is as it
 * was: pages that the call reserved are released, and no pending slice is overwritten.
 *
 * claim.h has the pages, queue.h the short writes that are not stored yet.
 *
 * Offsets and lengths lie within the file, by its size as the transaction sees it.
 */
#ifndef ATO_LIB_TRANSACTION_STAGING_H
#define ATO_LIB_TRANSACTION_STAGING_H

#include "lib/page/handle.h"

/* A write of n bytes at `offset` of m's file. */
struct staging_write {
    struct mapping *m;
    uint64_t offset, n;
    const char *bytes;    /* the source, if `from` is NULL */
    bool repeats;         /* `bytes` is a page of one repeated byte */
    struct mapping *from; /* the mapping of the source; or NULL */
    uint64_t from_offset;
};

/* Writes. flags: ATO_SKIP_EQUAL. Returns 0; -1: errors of ato_tx_memcpy(). */
int staging_write(struct tx *t, const struct staging_write *w, unsigned flags);

/* Reads n bytes as the transaction sees them. Returns 0; -1: errors of ato_tx_memcpy(). */
int staging_read(struct tx *t, struct mapping *m, uint64_t offset, char *dst, uint64_t n);

/* The steps of staging_write() from memory, for an epoch. The first does all that may fail. Without `blocked` it waits as the
 * transaction does. With it, it does not wait for transactions: returns RESERVATION_OF_TX or RESERVATION_AGAIN for page *blocked
 * (page_set_await()). Returns 0; -1. On failure some pages may be reserved. */
int staging_ready(struct tx *t, const struct staging_write *w, uint64_t *blocked);
void staging_put(struct tx *t, const struct staging_write *w, unsigned flags);

/* Before the commit, when nothing is queued: in domain msync, makes pending slices durable in their invalid homes.
 * Sorts the pages, so that adjacent ones are flushed in one call, and so are their words later. */
int staging_flush(struct tx *t);

#endif
