/* SPDX-License-Identifier: BSD-3-Clause */
/* The bytes of one page that a transaction has: what it stores there, and what it sees there. */
#ifndef ATO_LIB_TRANSACTION_STAGED_H
#define ATO_LIB_TRANSACTION_STAGED_H

#include "lib/page/handle.h"
#include "lib/page/page_set.h"

/* Stores bytes to a page of the transaction. flags: ATO_SKIP_EQUAL. Returns the page's new pending mask. */
uint64_t staged_put(struct tx *t, const struct held_page *at, unsigned begin, unsigned n,
                    const char *bytes, unsigned flags);

/* Copies bytes of the page as the transaction sees them. */
void staged_get(const struct held_page *at, unsigned begin, unsigned n, char *dst);

#endif
