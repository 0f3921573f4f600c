/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Storing new bytes of one page, which the caller holds: always to the invalid homes of its slices (I2), so
 * that nothing is changed yet for anybody.
 *
 * `pending` is what the operation has stored there before: a slice of it is stored to the same place
 * again, and completed from there. Inline, because a plain write has none, and the copy of a page of a few
 * slices takes no longer than a call.
 */
#ifndef ATO_LIB_PUT_H
#define ATO_LIB_PUT_H

#include "../reflection/bitmap.h"
#include "file.h"

#include <string.h>

struct target {
    struct file *file;
    char *o, *r;
    uint64_t bitmap;
    uint64_t pending;
    bool skip_equal;
    bool cold; /* as persist_scatter() takes it */
};

/* Slice i, of which only bytes [begin, end) are new: completed with what the operation sees, then stored as
 * a whole. */
static inline void put_part(struct target *t, unsigned i, unsigned begin, unsigned end,
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

/* Whole slices of `mask`, none of which is pending as its new bytes are. `base`: where byte 0 of the page
 * would be. */
static inline void put_whole(struct target *t, uint64_t mask, const char *base)
{
    if (t->skip_equal) {
        uint64_t other = t->bitmap ^ t->pending;
        uint64_t differing = t->file->persist.kernel->differing(t->o, t->r, base, other, mask);
        /* What the operation has changed, and now changes back, is as it was. */
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

/* Bytes [begin, begin + n) of the page. t->pending: all that the operation has stored by now. */
static inline void put(struct target *t, unsigned begin, unsigned n, const char *src)
{
    unsigned end = begin + n, first = begin / 64, last = (end - 1) / 64;
    const char *base = src - begin;
    if (first == last && n < 64) {
        put_part(t, first, begin % 64, begin % 64 + n, src);
        return;
    }
    if (begin % 64) {
        put_part(t, first, begin % 64, 64, src);
        first++;
    }
    if (end % 64) {
        put_part(t, last, 0, end % 64, base + (end - end % 64));
        if (last == first)
            return;
        last--;
    }
    if (first <= last)
        put_whole(t, bitmap_slices(first, last), base);
}

/* Bytes in a page from which on it pays to go past the caches; and how many ticks of the file's clock,
 * of 4 MiB each, a page stays in them. */
enum { COLD_BYTES = 1024, CACHED_TICKS = 4 };

/*
 * Are the lines that a write of n bytes will store to out of the caches? They are the slices' invalid
 * homes, which the last write but one left there: what tells is how much the process has written to the
 * file since the page was written. A page that never was is taken to be cached: its space is new, and the
 * kernel has just cleared it. A guess: if it is wrong the write, or a read after it, takes longer,
 * nothing else. Reserved.
 */
static inline bool put_is_cold(const struct file *f, struct page_state *s, unsigned n)
{
    if (f->persist.domain != PERSIST_PROCESS)
        return false; /* what must leave the caches goes past them anyway; msync's time is not the CPU's */
    uint8_t clock = __atomic_load_n(&f->clock, __ATOMIC_RELAXED);
    uint8_t now = clock ? clock : 1, then = s->written;   /* 0: never */
    __atomic_store_n(&s->written, now, __ATOMIC_RELAXED); /* sleepers look at the word (pages.c) */
    return n >= COLD_BYTES && then && (uint8_t)(now - then) > CACHED_TICKS;
}

/*
 * What a write of a page will touch, fetched while the fences of the thread's last write are still
 * draining: the reservation that follows is a locked instruction, behind which nothing begins
 * earlier. Of the homes only the address translation is wanted, so that a line is fetched that the
 * write does not store to: it goes round the caches, and a copy there would have to leave first.
 * Inlined by force, because gcc takes a function of prefetches for one without effect, and drops
 * calls of it.
 */
static inline __attribute__((always_inline)) void
put_fetch(const struct file *f, const struct page_state *s, uint64_t page, unsigned begin)
{
    unsigned far = (begin / 64 + 32) % 64 * 64;
    __builtin_prefetch(s, 1);
    __builtin_prefetch(file_word(f, page), 1);
    __builtin_prefetch(file_o(f, page) + far);
    __builtin_prefetch(file_r(f, page) + far);
}

/* What the invalid homes of these slices lack in space; and O, if they are to come home. */
static inline uint8_t put_needs(const struct page_state *s, uint64_t mask, bool eager)
{
    uint8_t need = eager ? PAGE_O_ALLOCATED : 0;
    if (mask & ~s->bitmap)
        need |= PAGE_R_ALLOCATED;
    if (mask & s->bitmap)
        need |= PAGE_O_ALLOCATED;
    /* The word lies in the reflection: writing to O alone needs that too. */
    if (mask)
        need |= PAGE_R_ALLOCATED;
    return need & (uint8_t)~s->flags;
}

/* The adaptive policy counts reads since the last write. Before anything is stored: the instruction is
 * a locked one, which would wait until the stores have drained. */
static inline void put_begin(struct page_state *s)
{
    if (__builtin_expect(__atomic_load_n(&s->notes, __ATOMIC_RELAXED) & PAGE_READS, 0))
        __atomic_fetch_and(&s->notes, (uint8_t)~PAGE_READS, __ATOMIC_RELAXED);
}

static inline void put_end(struct file *f)
{
    file_note_written(f);
}

#endif
