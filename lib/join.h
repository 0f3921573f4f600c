/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Two transactions of one thread become one: what one has is the other's from then on.
 *
 * What changes hands is in three places: lists in memory of the transactions' own, the numbers in page_state.tx
 * of pages and of sizes, and the handle. All that may fail comes first. Then the new owner has the pages in
 * its list, then the numbers change, and only then the old handle is nobody's.
 *
 * Who looks meanwhile:
 *   whoever wants a page   finds it reserved all the time, by a transaction of the same process
 *   waits.c                goes from the number to the thread, which is the same for both. A number that it has
 *                          read is not yet gone: it reads and follows one under its lock, which is passed
 *                          here before the handle goes
 *   labels.c, elsewhere    reads the one number or the other; when it looks again it finds the new one, and
 *                          takes that for another transaction that has come to the page, with a new label
 *   epoch.c                looks for its own number, which is neither
 *   stage.c                is the owner's alone, who is here
 *
 * A process that dies here dies with two open transactions, or one: its pages are freed by its number.
 */
#ifndef ATO_LIB_JOIN_H
#define ATO_LIB_JOIN_H

#include "tx.h"

/* Both are the calling thread's, which is in a call on them, and no epochs. `from` is over. -1 with E2BIG, ENOMEM,
 * EXDEV: both are as they were. */
int join(struct tx *into, struct tx *from);

#endif
