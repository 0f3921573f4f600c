/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The reads and writes of a transaction, and what makes its pages ready for the commit.
 *
 * A call first reserves the pages that it touches and does not have yet (in the order of its addresses: waits.h
 * says why that may fail), then allocates space, and only then stores. So if a call fails, no pending slice is overwritten, and
 * the transaction is as it was when its caller has given back the pages and notes that it made.
 *
 * claim.h has the pages, queue.h the short writes that are not stored yet.
 *
 * Offsets and lengths lie within the file, by its size as the transaction sees it.
 */
#ifndef ATO_LIB_TRANSACTION_STAGING_H
#define ATO_LIB_TRANSACTION_STAGING_H

#include "lib/page/handle.h"
#include "lib/read/range.h"

/* A write of n bytes. */
struct staging_write {
    struct range to, from; /* from.m is NULL: the source is `bytes` */
    uint64_t n;
    const char *bytes;
    bool repeats; /* `bytes` is a page of one repeated byte */
};

/* Writes, and adds a part for the mapping. flags: ATO_EAGER, ATO_SKIP_EQUAL. Returns 0; -1: errors of ato_tx_memcpy(). */
int staging_write(struct tx *t, const struct staging_write *w, unsigned flags);

/* Reads n bytes as the transaction sees them. Returns 0; -1: errors of ato_tx_memcpy(). */
int staging_read(struct tx *t, struct mapping *m, uint64_t offset, char *dst, uint64_t n);

/* The steps of staging_write() from memory, when nothing is queued. The first does all that may fail. Returns as claim_range(). */
int staging_ready(struct tx *t, const struct staging_write *w);
void staging_put(struct tx *t, const struct staging_write *w, unsigned flags);

/* Before the commit, when nothing is queued: in domain msync, makes pending slices durable in their invalid homes.
 * Sorts the pages, so that adjacent ones are flushed in one call, and so are their words later. */
int staging_flush(struct tx *t);

#endif
