/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a transaction has: its mappings, and the pages that it holds. It reserves them, finds them again, stores to them, and
 * gives them back if a call fails. A function that fails may have reserved some: the caller of the call gives these back.
 */
#ifndef ATO_LIB_TRANSACTION_CLAIM_H
#define ATO_LIB_TRANSACTION_CLAIM_H

#include "lib/commit/store.h"
#include "lib/page/handle.h"
#include "lib/page/page_set_reserve.h"

/* ---- mappings ---- */

/* Adds a mapping, unless the transaction has it: it cannot be unmapped from then on. Returns 0; -1 with ENOMEM; or, if
 * `to_write`, with EXDEV: the transaction has written to another file. */
int claim_mapping(struct tx *t, struct mapping *m, bool to_write);

/* Removes the mappings from the n-th on, since the call for which they were added has failed. */
void claim_drop_mappings(struct tx *t, unsigned n);

/* Returns true if the transaction changes the file's size. */
static inline bool claim_sizing(const struct tx *t, const struct file *f)
{
    return t->sized && t->written->file == f;
}

/* ---- pages ---- */

/* Returns the page of the transaction with that state (which may be NULL); NULL if it has not. */
static inline struct held_page *claim_find_at(struct tx *t, const struct page_state *s)
{
    uint64_t tx = s ? __atomic_load_n(&s->tx, __ATOMIC_RELAXED) : 0;
    uint64_t at = (uint32_t)tx;
    /* Valid only if the transaction's own memory says the same. */
    if (tx >> 32 != t->set.tag || at >= t->set.n || t->set.pages[at].state != s)
        return NULL;
    return &t->set.pages[at];
}

static inline struct held_page *claim_find(struct tx *t, struct file *f, uint64_t page)
{
    return claim_find_at(t, shared_peek(&f->shared, page));
}

/* Makes room for `more` pages. Returns 0; -1 with E2BIG, ENOMEM. */
int claim_make_room(struct tx *t, uint64_t more);

/* How long a transaction waits for a page by default. A transaction that holds pages waits less, because the holder of the page may be
 * waiting for one of them. */
enum { CLAIM_WAIT_MS = 1, CLAIM_WAIT_HOLDING_NS = 50 * 1000 };

/* Returns how a call of the transaction waits. */
static inline struct patience claim_patience(const struct tx *t)
{
    const bool holding = t->set.n && t->wait_ms == CLAIM_WAIT_MS;
    return (struct patience){.tx_ns = holding ? CLAIM_WAIT_HOLDING_NS : t->wait_ms * 1000000u,
                             .not_for_tx =
                                 __atomic_load_n(&t->thread, __ATOMIC_RELAXED) == TX_ALL_THREADS};
}

/* Passes on the result of such a wait. If it ran out, the transaction is refused (again.h). */
enum reservation claim_waited(struct tx *t, enum reservation r);

/* Reserves one page that the transaction does not have yet. There is room in the list. `sizing`: the transaction changes the
 * file's size. Returns as claim_range(); RESERVATION_FAILED: the page may be in the list. */
static inline enum reservation claim_take(struct tx *t, struct file *f, uint64_t page,
                                          struct page_state *s, const struct homes *homes,
                                          bool sizing)
{
    const struct patience patience = claim_patience(t);
    t->blocked = page;
    const enum reservation r =
        page_set_take_at(&t->set, f, page, s, homes, sizing ? 0 : page * PAGE_BYTES + 1, &patience);
    return __builtin_expect(r == RESERVATION_MINE, 1) ? r : claim_waited(t, r);
}

/* Reserves those pages of first..last that the transaction does not have yet. An epoch does not wait for
 * transactions: RESERVATION_OF_TX or RESERVATION_AGAIN for page t->blocked (page_set_await()). */
enum reservation claim_range(struct tx *t, struct file *f, uint64_t first, uint64_t last);

/* Stores bytes to a page of the transaction. flags: ATO_SKIP_EQUAL. */
static inline void claim_store(struct tx *t, struct held_page *at, unsigned begin, unsigned n,
                               const char *bytes, unsigned flags)
{
    const uint64_t pending = store_page(at, begin, n, bytes, flags);
    if (__builtin_expect(at->pending & ~pending, 0))
        t->set.forgotten = &at->file->persist; /* W4 */
    at->pending = pending;
}

#endif
