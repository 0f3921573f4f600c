/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Epochs: every write through a mapping with ATO_EPOCHS belongs to the mapping's open transaction, until
 * ato_msync() commits it. All threads of the process share this transaction. Reads through the mapping see
 * what was written, reads through other mappings do not.
 *
 * Writers and commits take turns under a lock, which a writer releases while it waits for a page of a transaction.
 * Readers take it where the epoch has a page.
 */
#ifndef ATO_LIB_TRANSACTION_EPOCH_H
#define ATO_LIB_TRANSACTION_EPOCH_H

#include "lib/transaction/staging.h"

/* Makes the epoch of a new mapping: tx_unmake() drops what was not committed when the mapping goes away. Returns 0; -1 with EAGAIN, ENOMEM. */
int epoch_make(struct mapping *m);

/* Does writes from memory through the mapping of the first, in one step. Returns 0; -1 with errno, and the epoch is as it was. */
int epoch_write(const struct staging_write *writes, unsigned count, unsigned flags);

/* As read_bytes(), with what the epoch has written. */
int epoch_read(struct mapping *m, uint64_t offset, char *dst, uint64_t n);

/* Commits what was written, and begins the next epoch. Returns 0; -1 with errno of ato_tx_commit(): the epoch
 * stays open. */
int epoch_commit(struct mapping *m);

#endif
