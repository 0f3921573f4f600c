/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reservations of pages; and how the state of a page that is reserved is loaded, at its first touch.
 *
 * A plain operation reserves several pages in ascending order of (file id, page), so plain operations cannot
 * deadlock with each other. Transactions reserve in any order. So a transaction waits for a moment only, and is
 * refused if that does not suffice (again.h); and a plain operation holds nothing while it waits for a
 * transaction. No circle of waiting threads lasts.
 *
 * Reads take no reservation: read.c explains why a stale read is harmless.
 */
#ifndef ATO_LIB_PAGE_RESERVATION_H
#define ATO_LIB_PAGE_RESERVATION_H

#include "lib/file/page.h"

/* What came of a reservation. Only after RESERVATION_MINE is the page reserved. */
enum reservation {
    RESERVATION_FAILED = -1, /* with errno */
    RESERVATION_MINE = 0,
    RESERVATION_OF_TX, /* a transaction or epoch holds it for which `patience` says not to wait */
    RESERVATION_AGAIN, /* a shrink is under way: wait for it, and start again */
};

/*
 * Waits for a page that was not free, and reserves it. Errors: EDEADLK if the calling thread would wait for itself;
 * EAGAIN (a transaction) or ETIMEDOUT (a plain call) if the time is over; or an error of takeover() if the
 * holder is dead and its page cannot be freed.
 *
 * A plain operation that holds pages must not wait for a page of a transaction: plain operations reserve in order,
 * transactions do not, and the transaction may be waiting for one of these pages.
 */
enum reservation reservation_wait(struct file *f, struct page_state *s,
                                  const struct patience *patience);

/* How long a plain call waits. Set once, from ATO_WAIT_MS. */
extern uint64_t reservation_plain_ms;
enum { RESERVATION_PATIENCE_MS = 10000, RESERVATION_PATIENCE_MOST_MS = 1000 * 1000 * 1000 };

/* Reserves a page. Returns as reservation_wait(). */
static inline enum reservation reservation_take(struct file *f, struct page_state *s,
                                                const struct patience *patience)
{
    seam_point(SEAM_RESERVE, s);
    if (__builtin_expect(page_try_reserve(f, s), 1))
        return RESERVATION_MINE;
    return reservation_wait(f, s, patience);
}

/*
 * Checks that the file reaches byte `end`, and will until the page is released. The caller holds the page. Returns
 * 0; -1 with EFAULT if the file is shorter; RESERVATION_AGAIN if a shrink to less than `end` is under way, which waits
 * for reserved pages: then the caller releases the page, calls reservation_wait_for_size() and starts again.
 *
 * The caller must check this right after reserving, before load_page(). A shrink (resize.h) first stores `cut`, then
 * looks for page states and their holders, and a reservation is a locked instruction. So if the shrink did not see
 * this page's state or reservation, this load sees `cut`. `cut` is read before the size: when `cut` is withdrawn,
 * the new size is already there.
 */
enum reservation reservation_beyond(struct file *f, uint64_t end);

/* The same for a thread that does not mind a shrink that is under way. */
static inline enum reservation reservation_reaches(struct file *f, uint64_t end)
{
    return __builtin_expect(end <= file_size(f), 1) ? RESERVATION_MINE : reservation_beyond(f, end);
}

static inline enum reservation reservation_within(struct file *f, uint64_t end)
{
    uint64_t cut = __atomic_load_n(&f->shared.header->cut, __ATOMIC_ACQUIRE);
    if (__builtin_expect(end <= cut && end <= file_size(f), 1))
        return RESERVATION_MINE;
    return reservation_beyond(f, end);
}

/* Waits until no transaction changes the file's size. A plain operation must hold no page. Returns 0; -1: as
 * reservation_wait(). */
int reservation_wait_for_size(struct file *f, const struct patience *patience);

/*
 * Reserves a page, of a file that reaches byte `end` (0: whose size the caller's own transaction changes), and that is in
 * order: the previous holder may have left the page's word in doubt (I2). With patience->not_for_tx: RESERVATION_AGAIN instead of a
 * wait for a shrink.
 */
static inline enum reservation reservation_take_within(struct file *f, struct page_state *s,
                                                       uint64_t end,
                                                       const struct patience *patience)
{
    for (;;) {
        enum reservation r = reservation_take(f, s, patience);
        if (__builtin_expect(r != RESERVATION_MINE, 0))
            return r;
        r = file_check(f) < 0 ? RESERVATION_FAILED : reservation_within(f, end);
        if (__builtin_expect(r == RESERVATION_MINE, 1))
            return r;
        page_release(s);
        if (r == RESERVATION_FAILED || patience->not_for_tx)
            return r;
        if (reservation_wait_for_size(f, patience) < 0)
            return RESERVATION_FAILED;
    }
}

/* Pauses in iteration i of a loop that waits for the holder of a page, which may be another process and may have
 * died: then the page is freed. Returns 0; -1 if it cannot be freed. */
int reservation_await(struct file *f, const struct page_state *s, unsigned i);

static inline uint64_t reservation_patience_ms(void)
{
    return __atomic_load_n(&reservation_plain_ms, __ATOMIC_RELAXED);
}

/* Frees the page if its holder is still `holder`, and dead. Returns 0; -1 with errno. */
int reservation_look_after(struct file *f, const struct page_state *s, uint32_t holder);

/* Withdraws `cut`. The caller holds `sizing`; its shrink is over, or it makes none. Then a program other than the library
 * has stored `cut` (shared.h), and all users would wait forever. */
void reservation_end_shrink(struct file *f);

/* ---- first touch: page states are loaded ---- */

/* Loads the page's bitmap from the media and makes O readable, if that was not done yet. The caller holds the page.
 * Returns 0; -1 with ENOSPC or EIO: nothing changed. */
int load_page_slow(struct file *f, uint64_t page, struct page_state *s);

static inline int load_page(struct file *f, uint64_t page, struct page_state *s)
{
    if (__builtin_expect(__atomic_load_n(&s->version, __ATOMIC_RELAXED) != 0, 1))
        return 0;
    return load_page_slow(f, page, s);
}

/* Returns the page's state, loaded, for a reader; reserves the page for that if necessary. NULL with ENOSPC, EIO,
 * EFAULT, or an error of reservation_await(). */
struct page_state *load_look(struct file *f, uint64_t page);

#endif
