/* SPDX-License-Identifier: BSD-3-Clause */
/* Atomic writes of one range: from memory, and of a repeated byte. What is common is inline: calls cost registers. */
#ifndef ATO_LIB_API_WRITE_H
#define ATO_LIB_API_WRITE_H

#include "lib/commit/commit.h"
#include "lib/commit/store.h"
#include "lib/file/store_views.h"
#include "lib/file/undo.h"
#include "lib/page/reservation.h"

/* An eager write within one aligned word: the store of the word is the commit. Other programs see it wholly or not at all, and a
 * crash at any moment leaves nothing of it in the reflection. The page counts as flipping meanwhile: a reader must not see what
 * is not durable yet (I4). Returns 1 if the slice is valid in the reflection, and nothing was written. */
int write_in_place(const struct held_page *at, unsigned begin, unsigned n, const char *bytes);

/* write_bytes() for all but the common case. */
int write_others(struct mapping *m, uint64_t offset, const char *bytes, uint64_t n, bool repeats,
                 unsigned flags);
int write_several(struct mapping *m, uint64_t offset, uint64_t n, const char *from, bool repeats,
                  unsigned flags);

/*
 * Writes to one page, the common case; with `in_place`, write_in_place().
 *
 * It is short for a reason. While the fences of a write drain, the CPU goes on with what follows, as far as its window of
 * instructions reaches (512 on the CPU of benchmarks.md). If that includes the next write's prefetches, the addresses of its pages
 * are translated meanwhile: with 500 instructions a write of 256 bytes at a random place takes a fifth less time than with 530.
 * So what is rare is a call, no structure has its address taken, and nothing is computed twice.
 */
static inline __attribute__((always_inline)) int write_page(struct mapping *m, uint64_t offset,
                                                            unsigned n, const char *bytes,
                                                            unsigned flags, bool in_place)
{
    static const struct patience plain = {0}; /* waits as long as ATO_WAIT_MS says */
    struct file *f = m->file;
    uint64_t page = offset / PAGE_BYTES;
    unsigned begin = (unsigned)(offset % PAGE_BYTES);
    const uint64_t touched = bitmap_touched(begin, n);
    /* Counting the bits of a mask is a call on some CPUs. */
    const unsigned slices = (begin + n - 1) / 64 - begin / 64 + 1;
    struct page_state *s = shared_state(&f->shared, page);
    if (__builtin_expect(!s, 0))
        return -1;
    const struct homes homes = file_homes_of(f, page, s);
    page_fetch(&homes, s, begin);
    int r = reservation_take_within(f, s, offset + n, &plain);
    if (__builtin_expect(r < 0, 0))
        return -1;
    struct held_page at = {.file = f, .state = s, .page = page, .homes = homes};
    r = load_page(f, page, s);
    /* A view that comes into the list now waits for the page, and brings it home. */
    if (__builtin_expect(file_is_numbered(f), 0) && r == 0 && !in_place &&
        (undo_is_early(f, s) || store_views_any(f))) {
        page_release(s);
        return write_several(m, offset, n, bytes, false, flags);
    }
    uint8_t need = r == 0 && !in_place ? store_needs(s, touched, false) : 0;
    if (__builtin_expect(need, 0))
        r = space_make(f, page, need);
    if (r == 0 && in_place) {
        r = write_in_place(&at, begin, n, bytes);
    } else if (r == 0) {
        at.pending = store_page(&at, begin, n, bytes, flags);
        if (at.pending || f->logged) {
            const struct held_page stored = at; /* its address is taken, not that of `at` */
            r = f->logged
                    ? commit_page_to_log(m, &stored, show_is_relaxed(m, flags))
                    : commit_page(&at, at.pending == touched ? slices : bitmap_count(at.pending));
        } else {
            r = file_check(f); /* what was compared may have been zeros (fault.h) */
        }
        file_note_written(f);
    }
    page_release(s);
    return r;
}

/* Writes n bytes at `offset` of m's file; the caller has checked that they lie within it. `repeats`: `bytes` are of a page of one
 * repeated byte. `flags`: ATO_EAGER, ATO_SKIP_EQUAL. Returns 0: durable; -1: errors of ato_memcpy(), nothing changed. */
static inline __attribute__((always_inline)) int write_bytes(struct mapping *m, uint64_t offset,
                                                             const char *bytes, uint64_t n,
                                                             bool repeats, unsigned flags)
{
    const unsigned all = write_flags(m, flags);
    if (__builtin_expect(!(all & ATO_EAGER) && offset % PAGE_BYTES + n <= PAGE_BYTES, 1))
        return write_page(m, offset, (unsigned)n, bytes, flags, false);
    return write_others(m, offset, bytes, n, repeats, all);
}

#endif
