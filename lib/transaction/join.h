/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Joins two transactions of one thread: `into` gets all that `from` has.
 *
 * Three things are moved: lists in the transactions' own memory, the numbers in page_state.tx of pages and
 * of sizes, and the handle. All that may fail comes first. Then `into` has the pages in its list, then the
 * numbers change, and only then the handle of `from` becomes invalid.
 *
 * What other threads and modules see meanwhile:
 *   a thread that wants a page  finds it reserved all the time, by a transaction of the same process
 *   waits.c                     goes from the number to the thread, which is the same for both. A number that
 *                               it has read is still valid: it reads and follows numbers under its lock, which
 *                               join() takes and releases before the handle goes
 *   labels.c, other processes   reads either number. If it finds the new one at its next look, it takes that
 *                               for another transaction that has got the page, and makes a new label
 *   epoch.c                     looks for its own number, which is neither
 *   staging.c                   is called by the owner alone, which is in join()
 *
 * A process that dies here has two open transactions, or one: page_state.holder tells which pages to free.
 */
#ifndef ATO_LIB_TRANSACTION_JOIN_H
#define ATO_LIB_TRANSACTION_JOIN_H

#include "lib/page/handle.h"

/* Both belong to the calling thread, which is in a call on them, and neither is an epoch. Returns 0, and
 * `from` is over; -1 with E2BIG, ENOMEM, EXDEV, and both are as they were. */
int join(struct tx *into, struct tx *from);

#endif
