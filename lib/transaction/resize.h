/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A file's size as part of a transaction.
 *
 * From its first change of the size on, the transaction holds the file's `sizing`, so no other transaction changes
 * the size. For others the file keeps its length until the commit. Until then:
 *
 *   longer    both files get their new length on the media. When the transaction ends, what is not needed is
 *             cut off. If that fails, or after a crash, the next change of the size does it, or the end of the
 *             last mapping (growth.h)
 *   shorter   all others are kept from the pages that are cut off (size.h); what the transaction wrote there
 *             is forgotten
 *   longer than what was cut off, in this transaction or an earlier one: the bytes in between are written as zeros,
 *             like other data
 */
#ifndef ATO_LIB_TRANSACTION_RESIZE_H
#define ATO_LIB_TRANSACTION_RESIZE_H

#include "lib/page/handle.h"
#include "lib/page/part.h"

/* Changes the size of m's file to `size` bytes for the transaction. Returns 0; -1: errors of ato_tx_ftruncate(),
 * and the transaction is as it was. */
int resize(struct tx *t, struct mapping *m, uint64_t size);

/* Called before the commit: S1 for each file that gets shorter. Returns 0; -1 with EIO. */
int resize_announce(const struct tx *t);

/* Gives `sizing` back, because the transaction ends, or because the call that made the part has failed. */
void resize_end(struct part *part);

#endif
