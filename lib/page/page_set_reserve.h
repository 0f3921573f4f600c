/* SPDX-License-Identifier: BSD-3-Clause */
/* Reserving and releasing the pages of an operation (page_set.h). */
#ifndef ATO_LIB_PAGE_PAGE_SET_RESERVE_H
#define ATO_LIB_PAGE_PAGE_SET_RESERVE_H

#include "lib/file/undo.h"
#include "lib/page/page_set.h"
#include "lib/page/reservation.h"

/* Makes room for `more` pages. Returns 0; -1 with ENOMEM. */
int page_set_make_room(struct page_set *h, uint64_t more);

/* Of a logged file's page whose newest content is not in the file: copies that to memory, which homes.o is until the page is released. Returns 0; -1 with errno. */
int page_set_take_base(struct held_page *at);

/* Reserves and loads a page of a file that reaches byte `end`, and adds it to the set, which has room. Returns as
 * reservation_take_within(); but RESERVATION_FAILED also if the page cannot be loaded: then it is in the set. */
static inline enum reservation page_set_take_at(struct page_set *h, struct file *f, uint64_t page,
                                                struct page_state *s, const struct homes *homes,
                                                uint64_t end, const struct patience *patience)
{
    const enum reservation r = reservation_take_within(f, s, end, patience);
    if (__builtin_expect(r != RESERVATION_MINE, 0))
        return r;
    if (h->tag)
        __atomic_store_n(&s->tx, page_set_note(h->tag, h->n), __ATOMIC_RELAXED);
    page_set_add(h, f, page, s, homes);
    int loaded = load_page(f, page, s);
    if (__builtin_expect(f->logged, 0) && loaded == 0 && undo_is_early(f, s))
        loaded = page_set_take_base(&h->pages[h->n - 1]);
    if (__builtin_expect(f->sparse, 0))
        h->pages[h->n - 1].homes = file_homes_of(f, page, s);
    return loaded < 0 ? RESERVATION_FAILED : RESERVATION_MINE;
}

/* The same, by the page's number alone. */
static inline enum reservation page_set_take(struct page_set *h, struct file *f, uint64_t page,
                                             uint64_t end, const struct patience *patience)
{
    struct page_state *s = shared_state(&f->shared, page);
    const struct homes homes = file_homes_of(f, page, s);
    return s ? page_set_take_at(h, f, page, s, &homes, end, patience) : RESERVATION_FAILED;
}

/* Reserves and loads the pages of n spans, which are in the order above by their first pages, and may
 * overlap. The set is empty before. If a transaction has one of the pages, or makes the file shorter, all
 * others are released until it ends. Returns 0; -1 with ENOMEM, ENOSPC, EIO, EDEADLK, ETIMEDOUT (reservation_wait()), EFAULT:
 * no page is held. */
int page_set_reserve(struct page_set *h, const struct page_span *spans, unsigned n);

/* After RESERVATION_OF_TX or RESERVATION_AGAIN (`why`): waits until the transaction that has the page, or makes the file
 * shorter, ends; or until the epoch of the caller's write has the page (patience.epoch). The caller has
 * released the pages that it reserved. Returns 0; -1 with errno: EDEADLK, ENOSPC, ... */
int page_set_await(struct file *f, uint64_t page, enum reservation why, uint32_t epoch);

/* Compares two pages in the order above: less than 0, 0, or more than 0. */
int page_set_order(const struct file *a, uint64_t a_page, const struct file *b, uint64_t b_page);

/* Releases the held pages from the n-th on. */
void page_set_release_from(struct page_set *h, uint64_t n);

/* Releases all pages. Drops pending masks that were not flipped: nothing has to be undone (I2). */
void page_set_release(struct page_set *h);

#endif
