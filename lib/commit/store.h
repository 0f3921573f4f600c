/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Stores new bytes of one page, which the caller holds. They always go to the invalid homes of its slices (I2), so
 * nothing changes for readers yet.
 *
 * `pending` names the slices that the operation has stored already: such a slice is stored to the same place again,
 * and completed from there. What a write of whole slices needs is inline: their copy takes no longer than a call.
 */
#ifndef ATO_LIB_COMMIT_STORE_H
#define ATO_LIB_COMMIT_STORE_H

#include "lib/file/file.h"
#include "lib/file/space.h"
#include "lib/page/page_set.h"
#include "lib/page/scratch.h"
#include "reflection/media/bitmap.h"

/* For how many ticks of the file's clock (FILE_TICK bytes each) a page is taken to stay in the caches. */
enum { CACHED_TICKS = 4 };

/*
 * Returns true if the lines that a write of n bytes stores to are probably not in the caches. They are the slices'
 * invalid homes, last stored to by the write before the last one. The guess is made from how much the process has
 * written to the file since the page was written. A page that was never written counts as cached: its space is new,
 * and the kernel has just cleared it. A wrong guess costs time and nothing else. The caller holds the page.
 */
static inline bool store_is_cold(const struct file *f, struct page_state *s, unsigned n)
{
    /* What must leave the caches goes past them anyway, and of a logged file the disk takes the time, not the CPU. */
    if (f->persist.domain != PERSIST_PROCESS)
        return false;
    uint8_t clock = __atomic_load_n(&f->clock, __ATOMIC_RELAXED);
    uint8_t now = clock ? clock : 1, then = s->written; /* 0: never written */
    /* Atomic: sleepers read the whole word (reservation.c). */
    __atomic_store_n(&s->written, now, __ATOMIC_RELAXED);
    return n >= PERSIST_COLD_BYTES && then && (uint8_t)(now - then) > CACHED_TICKS;
}

/* Returns which space is missing for a write of the slices in `mask`, which is not 0: that of their invalid homes, and
 * that of the word, which lies in the reflection. Of an eager write, which is deployed once it is committed, that of the original too. */
static inline uint8_t store_needs(const struct page_state *s, uint64_t mask, bool eager)
{
    const uint8_t lacks = ~s->flags & (PAGE_O_ALLOCATED | PAGE_R_ALLOCATED);
    if (__builtin_expect(!lacks, 1))
        return 0;
    return lacks & (PAGE_R_ALLOCATED | (eager || mask & s->bitmap ? PAGE_O_ALLOCATED : 0));
}

/* Allocates space for all homes of a write to pages that the caller holds. Returns 0; -1: errors of space_make(). */
static inline int store_make_space(struct file *f, uint64_t offset, uint64_t n, bool eager)
{
    struct space_run run = {.file = f};
    FOR_EACH_PAGE(page, begin, bytes, offset, n)
    {
        const uint64_t mask = bitmap_touched((unsigned)begin, (unsigned)bytes);
        const struct page_state *s = shared_held(&f->shared, page);
        if (space_run_add(&run, page, store_needs(s, mask, eager)) < 0)
            return -1;
    }
    return space_run_end(&run);
}

/* store_page() for slices that are written in part, or compared. By value: the compiler would keep a page whose address is
 * taken in memory. */
uint64_t store_slices(struct file *f, struct homes homes, uint64_t bitmap, uint64_t pending,
                      unsigned begin, unsigned n, const char *src, bool skip_equal, bool cold);

/* The homes to store to of a held page: it may just have got a place, or gets memory now. */
static inline void store_find_homes(struct held_page *at)
{
    if (__builtin_expect(at->file->sparse, 0))
        at->homes = file_homes_of(at->file, at->page, at->state);
    if (__builtin_expect(at->file->logged, 0) && at->homes.word) {
        at->homes.r = scratch_take(at->file);
        at->homes.word = NULL;
    }
}

/* Stores the slices of `mask`, of the page `bytes`. Returns the new pending mask. */
static inline uint64_t store_mask(struct held_page *at, const char *bytes, uint64_t mask)
{
    const bool cold = store_is_cold(at->file, at->state, PAGE_BYTES);
    store_find_homes(at);
    persist_scatter(&at->file->persist, at->homes.o, at->homes.r, bytes, page_set_seen(at), mask,
                    cold); /* I2 */
    return at->pending | mask;
}

/* Stores n bytes to a held page, from `begin` on. flags: ATO_SKIP_EQUAL. Returns its new pending mask. */
static inline uint64_t store_page(struct held_page *at, unsigned begin, unsigned n,
                                  const char *bytes, unsigned flags)
{
    const bool cold = store_is_cold(at->file, at->state, n);
    const uint64_t mask = bitmap_touched(begin, n);
    store_find_homes(at);
    if (__builtin_expect((begin | n) % SLICE_BYTES || (flags & ATO_SKIP_EQUAL), 0))
        return store_slices(at->file, at->homes, page_set_seen(at), at->pending, begin, n, bytes,
                            flags & ATO_SKIP_EQUAL, cold);
    persist_scatter(&at->file->persist, at->homes.o, at->homes.r, bytes - begin, page_set_seen(at),
                    mask, cold); /* I2 */
    return at->pending | mask;
}

#endif
