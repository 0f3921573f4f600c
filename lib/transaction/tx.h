/* SPDX-License-Identifier: BSD-3-Clause */
/* The commit and the end of a transaction. */
#ifndef ATO_LIB_TRANSACTION_TX_H
#define ATO_LIB_TRANSACTION_TX_H

#include "lib/page/handle.h"

#include "ato_engine.h"

/* Releases its pages and mappings, and forgets what it wrote and did not commit. It stays open. */
void tx_empty(struct tx *t);

/* tx_empty(), and makes its handle invalid. */
void tx_unmake(struct tx *t);

/* Commits a transaction in one step, durably, and deploys what the eager policy asks for, as far as that succeeds; its pages stay
 * held. Returns 0; -1: EIO if one of its files is poisoned, errors of commit_run(), or EAGAIN if it is refused (again.h), and
 * nothing changed. */
int tx_make_durable(struct tx *t);

/* The same, but may return when the commit is visible to writers: then sets *promise (ato_tx_commit_early()). */
int tx_commit_early(struct tx *t, struct ato_promise *promise);

#endif
