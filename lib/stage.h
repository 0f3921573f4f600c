/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The pages of a transaction, and what it reads and writes there.
 *
 * A call first reserves what it touches and has not yet (in the order of its addresses: waits.h says why
 * that may fail), makes space, and only then stores; so what fails, fails with the transaction as it was:
 * pages that the call reserved are given back, and nothing that was pending is overwritten.
 *
 * Short writes are queued, and stored when something has to know: at the latest before the commit. A page
 * is reserved by a locked instruction, which waits until all stores before it have drained: so that of 32
 * pages, one after the other, would take longer than all the rest of their transaction.
 *
 * Offsets and lengths lie within the file, as the transaction sees its size.
 */
#ifndef ATO_LIB_STAGE_H
#define ATO_LIB_STAGE_H

#include "tx.h"

/* Where bytes come from: memory, a page of one byte that repeats, or another place of a mapping. */
struct stage_source {
    const char *bytes;
    bool repeats;
    struct mapping *from;
    uint64_t from_offset;
};

/* flags: ATO_SKIP_EQUAL. -1: errors of ato_tx_memcpy(). */
int stage_write(struct tx *t, struct mapping *m, uint64_t offset, uint64_t n,
                const struct stage_source *src, unsigned flags);

/* What the transaction sees. */
int stage_read(struct tx *t, struct mapping *m, uint64_t offset, char *dst, uint64_t n);

/* Are so many bytes, within a slice behind the end that the file has for others, zeros for it? */
bool stage_is_zeros(struct tx *t, struct file *f, uint64_t offset, uint64_t n);

/* The steps of stage_write() from memory, for an epoch, whose readers look on: */
/* All that may fail. Without `blocked` it waits as the transaction does; with it, for no transaction:
 * PAGES_OF_TX, PAGES_AGAIN, at page *blocked (hold_await()). On failure some pages are its. */
int stage_ready(struct tx *t, struct file *f, uint64_t offset, uint64_t n, uint64_t *blocked);
/* Is there a slice among them that was written before, and would be stored to again? */
bool stage_rewrites(struct tx *t, struct file *f, uint64_t offset, uint64_t n);
/* Stores; `publish`: and counts what was stored as written. */
void stage_put(struct tx *t, struct file *f, uint64_t offset, uint64_t n,
               const struct stage_source *src, unsigned flags, bool publish);
/* Counts all of it as written. */
void stage_publish(struct tx *t, struct file *f, uint64_t offset, uint64_t n);

/* Stores what is queued. */
void stage_drain(struct tx *t);

/* Are there writes queued that are going to change several pages, of not so many that any lane of a journal
 * would hold them all? */
bool stage_is_for_several(const struct tx *t);

/* Bytes of address space that it has for that and for its pages, and keeps when it is over. */
uint64_t stage_kept_bytes(const struct tx *t);

/* Forgets what is queued. */
void stage_forget(struct tx *t);

/* All pages of spans that are in order (hold.h), for a transaction that has none yet and will need no other:
 * as a plain operation reserves them. On failure some are its. */
int stage_claim_in_order(struct tx *t, const struct hold_span *spans, unsigned n);

/* Before the commit, in domain msync: what is pending becomes durable in its invalid homes. Pages side by
 * side are flushed in one call, and so are their words, if they are sorted. */
bool stage_has_to_be_flushed(const struct tx *t);
bool stage_is_sorted(const struct tx *t);
void stage_sort(struct tx *t);
int stage_flush(struct tx *t);

/* From now on its pages lie where they are for good, until tx_unmake(): others look at them. ENOMEM. */
int stage_settle(struct tx *t);

/* Room for so many pages more. E2BIG, ENOMEM. */
int stage_make_room(struct tx *t, uint64_t more);

/* How it waits, from now on. */
struct patience stage_patience(const struct tx *t);

/* A page that the transaction has; NULL. */
struct held *stage_find(struct tx *t, struct file *f, uint64_t page);

/* Gives back the pages from the n-th on: the call that they were for has failed. */
void stage_give_back(struct tx *t, uint64_t n);

/* Reserves pages that are not the transaction's yet. On failure none of these is. */
int stage_claim(struct tx *t, struct file *f, uint64_t first, uint64_t last);

#endif
