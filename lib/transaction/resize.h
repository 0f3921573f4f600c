/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A file's size as part of a transaction.
 *
 * From its first change of the size on, the transaction holds the file's `sizing`, so no other transaction changes
 * the size. For others the file keeps its length until the commit. Until then:
 *
 *   longer    both files get their new length on the media. With a log, from the second time on, the file gets a length ahead of that,
 *             and keeps it for the growths that follow, which need no sync then: until a shrink, ato_ftruncate(), or a growth that comes
 *             to nothing. When the transaction ends, what is not needed is
 *             cut off. If that fails, or after a crash, the next change of the size does it, or the end of the
 *             last mapping (length.h)
 *   shorter   all others are kept from the pages that are cut off; what the transaction wrote there
 *             is forgotten
 *   longer than what was cut off, in this transaction or an earlier one: the bytes in between are written as zeros,
 *             like other data
 *
 * A shrink only moves the end. Pages behind it keep their states, bitmaps and space until no process has the file
 * mapped. So a reader without a lock that began before may go on, and a growth finds there what the file had: the
 * transaction that makes the file longer writes zeros over it, as over any page.
 *
 * But nobody else may commit to the pages that are cut off when the file already is shorter for others. `cut` in the shared
 * header tells a thread that has just reserved a page there that it may not have it (reservation_within()), and the
 * shrink waits for those that reserved one before.
 *
 * Writers and readers go by the size in memory. Writers read it again under their reservations (reservation_within()),
 * readers after the versions (read.c).
 */
#ifndef ATO_LIB_TRANSACTION_RESIZE_H
#define ATO_LIB_TRANSACTION_RESIZE_H

#include "lib/page/handle.h"
#include "lib/page/page_set.h"

/* Changes the size of m's file to `to` bytes for the transaction, and adds the mapping. Returns 0; -1: errors of
 * ato_tx_ftruncate(), and the transaction is as it was, except for the mapping. */
int resize(struct tx *t, struct mapping *m, off_t to);

/* The first part of it: from now on no other process changes the size, which is t->size. `size`: what it will probably become. Returns 0; -1. */
int resize_begin(struct tx *t, struct mapping *m, uint64_t size);

/* Called before the commit of a new size: S1 if the file gets shorter. Returns 0; -1 with EIO. */
int resize_announce(const struct tx *t);

/* Gives `sizing` back, because the transaction ends, or because its first change of the size has failed. */
void resize_end(struct tx *t, struct file *f);

#endif
