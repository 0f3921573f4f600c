/* SPDX-License-Identifier: BSD-3-Clause */
/* The commit and the end of a transaction. */
#ifndef ATO_LIB_TRANSACTION_TX_H
#define ATO_LIB_TRANSACTION_TX_H

#include "lib/page/handle.h"

/* Releases its pages and mappings, and forgets what it wrote and did not commit. It stays open. */
void tx_empty(struct tx *t);

/* tx_empty(), and makes its handle invalid. */
void tx_unmake(struct tx *t);

/* Commits several transactions in one step, durably, and deploys what the eager policy asks for, as far as that
 * succeeds; their pages stay held. n > 0. Returns 0; -1: EIO if one of the files is poisoned, errors of commit_run(), or EAGAIN
 * if a transaction is refused (again.h), and nothing changed. */
int tx_make_all_durable(struct tx *const *t, unsigned n);

static inline int tx_make_durable(struct tx *t)
{
    return tx_make_all_durable(&t, 1);
}

#endif
