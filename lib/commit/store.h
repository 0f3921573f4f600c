/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Stores new bytes of one page, which the caller holds. They always go to the invalid homes of its slices (I2), so
 * nothing changes for readers yet.
 *
 * `pending` names the slices that the operation has stored already: such a slice is stored to the same place again,
 * and completed from there. The functions are inline, because the copy of a few slices takes no longer than a call.
 */
#ifndef ATO_LIB_COMMIT_STORE_H
#define ATO_LIB_COMMIT_STORE_H

#include "lib/file/file.h"
#include "lib/file/space.h"
#include "lib/page/page_set.h"
#include "reflection/media/bitmap.h"

#include <string.h>

struct target {
    struct file *file;
    char *o, *r;
    uint64_t bitmap;
    uint64_t pending;
    bool skip_equal;
    bool cold; /* argument of persist_scatter() */
};

/* Stores slice i, of which only bytes [begin, end) are new. The other bytes are those that the operation sees; the
 * slice is stored as a whole. */
static inline void store_part(struct target *t, unsigned i, unsigned begin, unsigned end,
                              const char *src)
{
    _Alignas(64) char line[SLICE_BYTES];
    uint64_t bit = 1ull << i;
    char *valid = (t->bitmap & bit ? t->r : t->o) + i * SLICE_BYTES;
    char *other = (t->bitmap & bit ? t->o : t->r) + i * SLICE_BYTES;
    memcpy(line, t->pending & bit ? other : valid, SLICE_BYTES);
    if (t->skip_equal && memcmp(line + begin, src, end - begin) == 0)
        return;
    memcpy(line + begin, src, end - begin);
    if (t->skip_equal && (t->pending & bit) && memcmp(line, valid, SLICE_BYTES) == 0) {
        t->pending &= ~bit;
        return;
    }
    persist_line(&t->file->persist, other, line); /* I2 */
    t->pending |= bit;
}

/* Stores the whole slices of `mask`. `base`: where byte 0 of the page would be in the source. */
static inline void store_whole(struct target *t, uint64_t mask, const char *base)
{
    if (t->skip_equal) {
        uint64_t other = t->bitmap ^ t->pending;
        uint64_t differing = t->file->persist.kernel->differing(t->o, t->r, base, other, mask);
        /* Slices that the operation had changed and now changes back are no longer pending. */
        uint64_t again = t->pending & differing;
        if (__builtin_expect(!!again, 0)) {
            uint64_t back =
                again & ~t->file->persist.kernel->differing(t->o, t->r, base, t->bitmap, again);
            t->pending &= ~back;
            differing &= ~back;
        }
        mask = differing;
    }
    if (mask)
        persist_scatter(&t->file->persist, t->o, t->r, base, t->bitmap, mask, t->cold); /* I2 */
    t->pending |= mask;
}

/* Stores bytes [begin, begin + n) of the page. t->pending: all slices that the operation has stored so far. */
static inline void store_bytes(struct target *t, unsigned begin, unsigned n, const char *src)
{
    unsigned end = begin + n, first = begin / 64, last = (end - 1) / 64;
    const char *base = src - begin;
    if (first == last && n < 64) {
        store_part(t, first, begin % 64, begin % 64 + n, src);
        return;
    }
    if (begin % 64) {
        store_part(t, first, begin % 64, 64, src);
        first++;
    }
    if (end % 64) {
        store_part(t, last, 0, end % 64, base + (end - end % 64));
        if (last == first)
            return;
        last--;
    }
    if (first <= last)
        store_whole(t, bitmap_slices(first, last), base);
}

/* Bytes of a page from which on it pays to store past the caches; and for how many ticks of the file's clock
 * (FILE_TICK bytes each) a page is taken to stay in the caches. */
enum { COLD_BYTES = 1024, CACHED_TICKS = 4 };

/*
 * Returns true if the lines that a write of n bytes stores to are probably not in the caches. They are the slices'
 * invalid homes, last stored to by the write before the last one. The guess is made from how much the process has
 * written to the file since the page was written. A page that was never written counts as cached: its space is new,
 * and the kernel has just cleared it. A wrong guess costs time and nothing else. The caller holds the page.
 */
static inline bool store_is_cold(const struct file *f, struct page_state *s, unsigned n)
{
    /* What must leave the caches goes past them anyway, and in msync the disk takes the time, not the CPU. */
    if (f->persist.domain != PERSIST_PROCESS)
        return false;
    uint8_t clock = __atomic_load_n(&f->clock, __ATOMIC_RELAXED);
    uint8_t now = clock ? clock : 1, then = s->written; /* 0: never written */
    /* Atomic: sleepers read the whole word (load.c). */
    __atomic_store_n(&s->written, now, __ATOMIC_RELAXED);
    return n >= COLD_BYTES && then && (uint8_t)(now - then) > CACHED_TICKS;
}

/* Returns which space is missing for a write of the slices in `mask`, which is not 0: that of their invalid homes, and
 * that of the word, which lies in the reflection. */
static inline uint8_t store_needs(const struct page_state *s, uint64_t mask)
{
    const uint8_t need = PAGE_R_ALLOCATED | (mask & s->bitmap ? PAGE_O_ALLOCATED : 0);
    return need & (uint8_t)~s->flags;
}

/* Allocates space for all homes of a write to pages that the caller holds. Returns 0; -1: errors of space_make(). */
static inline int store_make_space(struct file *f, uint64_t offset, uint64_t n)
{
    struct space_run run = {.file = f};
    FOR_EACH_PAGE(page, begin, bytes, offset, n)
    {
        const uint64_t mask = bitmap_touched((unsigned)begin, (unsigned)bytes);
        if (space_run_add(&run, page, store_needs(shared_peek(&f->shared, page), mask)) < 0)
            return -1;
    }
    return space_run_end(&run);
}

/* Resets the count of reads since the last write, for the adaptive policy. Called before the stores: the locked
 * instruction would wait until they have drained. */
static inline void store_begin(struct page_state *s)
{
    if (__builtin_expect(__atomic_load_n(&s->notes, __ATOMIC_RELAXED) & PAGE_READS, 0))
        __atomic_fetch_and(&s->notes, (uint8_t)~PAGE_READS, __ATOMIC_RELAXED);
}

/* Stores n bytes to a held page, from `begin` on. flags: ATO_SKIP_EQUAL. Returns its new pending mask. */
static inline uint64_t store_page(const struct held_page *at, unsigned begin, unsigned n,
                                  const char *bytes, unsigned flags)
{
    struct target t = {.file = at->file,
                       .o = file_o(at->file, at->page),
                       .r = file_r(at->file, at->page),
                       .bitmap = at->state->bitmap,
                       .pending = at->pending,
                       .skip_equal = flags & ATO_SKIP_EQUAL,
                       .cold = store_is_cold(at->file, at->state, n)};
    store_bytes(&t, begin, n, bytes);
    return t.pending;
}

#endif
