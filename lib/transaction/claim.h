/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which pages a transaction holds: it reserves them, finds them again, stores to them, and gives them back if a call fails. A
 * function that fails may have reserved some: the caller of the call gives these back.
 */
#ifndef ATO_LIB_TRANSACTION_CLAIM_H
#define ATO_LIB_TRANSACTION_CLAIM_H

#include "lib/file/page.h"
#include "lib/page/handle.h"
#include "lib/page/page_set.h"

/* Returns a page that the transaction has; NULL if it has not. */
static inline struct held_page *claim_find(struct tx *t, struct file *f, uint64_t page)
{
    struct page_state *s = shared_peek(&f->shared, page);
    uint64_t tx = s ? __atomic_load_n(&s->tx, __ATOMIC_RELAXED) : 0;
    uint64_t at = (uint32_t)tx;
    /* Valid only if the transaction's own memory says the same. */
    if (tx >> 32 != t->set.tag || at >= t->set.n || t->set.pages[at].state != s)
        return NULL;
    return &t->set.pages[at];
}

struct held_page *claim_new_page(struct tx *t, struct file *f, uint64_t page);

/* Returns a page of the transaction, reserved if necessary. NULL on failure. */
static inline struct held_page *claim_page(struct tx *t, struct file *f, uint64_t page)
{
    struct held_page *at = claim_find(t, f, page);
    return at ? at : claim_new_page(t, f, page);
}

/* Reserves those pages of first..last that the transaction does not have yet. Returns 0; -1; or, for an epoch, which does not
 * wait for transactions, RESERVATION_OF_TX or RESERVATION_AGAIN for page t->blocked (page_set_await()). */
int claim_range(struct tx *t, struct file *f, uint64_t first, uint64_t last);

/* Stores bytes to a page of the transaction. flags: ATO_SKIP_EQUAL. Returns the page's new pending mask. */
uint64_t claim_store(struct tx *t, const struct held_page *at, unsigned begin, unsigned n,
                     const char *bytes, unsigned flags);

/* Returns how a call of the transaction waits. */
struct patience claim_patience(const struct tx *t);

/* Passes on the result of such a wait. If it ran out, the transaction is refused (again.h). */
int claim_waited(struct tx *t, int r);

#endif
