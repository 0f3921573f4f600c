/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What happens after a transaction was refused.
 *
 * It is refused if others have changed what it has read, or if they keep a page that it writes for more than wait_ms. It has
 * no effect then, and holds nothing. The next transaction of the thread begins after a pause, which is random and
 * grows with each refusal: threads that were in each other's way do not meet again at once.
 *
 * After some refusals it goes first. It tells so in the shared memory of its files: other
 * transactions do not begin to use these files for a moment. And it holds what it reads, so that plain
 * writes wait for it, too.
 */
#ifndef ATO_LIB_TRANSACTION_AGAIN_H
#define ATO_LIB_TRANSACTION_AGAIN_H

#include "lib/page/handle.h"

/* How often the thread's transactions were refused since one ended in another way. */
extern __thread unsigned again_refusals __attribute__((tls_model("initial-exec")));

/* Called when a thread begins a transaction, if its last one was refused: pauses. */
void again_begin(struct tx *t);

/* Called before a transaction first uses a mapping of the file: waits for one that goes first, or says that
 * this one does. */
void again_let_first(const struct tx *t, struct file *f);

/* Called when a transaction ends, with its mappings, if it was refused or the last one was. */
void again_end(const struct tx *t);

#endif
