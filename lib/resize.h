/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A file's size as part of a transaction.
 *
 * From the first change on the transaction has the file's `sizing`, so that nobody else changes the size. To
 * others the file stays as long as it is. What goes on until the commit:
 *
 *   longer    both files get as long on the media as they are going to be; what is not needed is
 *             cut off when the transaction ends; where that fails, or in a crash, the next change does it, or
 *             the end of the last mapping (growth.h)
 *   shorter   everybody is kept from the pages that are cut off (size.h); what the transaction wrote there
 *             is forgotten
 *   longer again than it was in between: what lies there is written anew, as zeros, like anything else
 */
#ifndef ATO_LIB_RESIZE_H
#define ATO_LIB_RESIZE_H

#include "tx.h"

/* The file of m has `size` bytes for the transaction from now on. -1: errors of ato_tx_ftruncate(), and the
 * transaction is as it was. */
int resize(struct tx *t, struct mapping *m, uint64_t size);

/* Before the commit: S1 for each file that gets shorter. -1: EIO. */
int resize_announce(const struct tx *t);

/* After it: what was cut off is thrown away. */
void resize_clear(const struct tx *t);

/* For join.c: the size that the part speaks for is another's from now on, which has parts for the file, too. */
void resize_move(struct tx *to, const struct tx *from, const struct flip_part *part);

/* The transaction ends, or the call that made the part has failed: everybody may change the size. */
void resize_end(struct tx *t, struct flip_part *part);

#endif
