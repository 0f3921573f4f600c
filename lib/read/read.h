/* SPDX-License-Identifier: BSD-3-Clause */
/* Consistent reads without a lock. read.c explains why they are consistent. */
#ifndef ATO_LIB_READ_READ_H
#define ATO_LIB_READ_READ_H

#include "lib/file/undo.h"
#include "lib/page/page_set.h"
#include "lib/page/reservation.h"
#include "reflection/media/bitmap.h"
#include "reflection/media/races.h"

/* The versions that a read has noted of its pages. */
#define READ_FEW        129
#define READ_NOT_COPIED UINT64_MAX /* of a page that is to be copied: no page has that version */
struct read_versions {
    uint64_t *of;
    uint64_t few[READ_FEW];
};

/* Sets `pages` versions to READ_NOT_COPIED. Returns 0; -1 with ENOMEM. */
int read_versions_init(struct read_versions *v, uint64_t pages);
void read_versions_free(struct read_versions *v);

/* Copies n bytes at `offset` of m's file to dst, as they were at one moment. The caller has checked that they
 * lie within the file. Sets *versions, unless it is NULL, which the caller frees after
 * a success. Returns 0; -1 with ENOSPC, ENOMEM, EIO, or EFAULT (the file got shorter meanwhile): dst
 * may hold anything then. */
int read_bytes(struct mapping *m, uint64_t offset, char *dst, uint64_t n,
               struct read_versions *versions, bool newest);

/* One pass of a read over its pages; *version is the first one's. Returns 1: all is copied, as it was at one moment; 0: one more
 * pass is necessary; -1: an error, such as ENOSPC for a page state.
 *
 * With `marked` the process may only read the file: it waits for nothing, and changes nothing. Then *marked is set to the
 * holder of a page that is marked as flipping, if there is one, and a page that is not loaded, which was not flipped since the
 * shared memory was made, is copied by its word on the media. */
int read_pass(struct file *f, uint64_t offset, char *dst, uint64_t n, uint64_t *version,
              uint32_t *marked, bool newest);

/* Copies bytes of a page by its word on the media. It uses pread(), so nothing can fault. Returns 0; -1 with errno. */
int read_by_word(struct file *f, uint64_t page, unsigned begin, unsigned n, char *dst);

/* Returns an odd version of a loaded page. Waits while the page is flipping, which takes as long as a few stores.
 * 0: its holder is dead and the page cannot be freed, or the file is poisoned. */
static inline uint64_t read_steady_version(struct file *f, const struct page_state *s)
{
    for (unsigned i = 0;; i++) {
        uint64_t v = __atomic_load_n(&s->version, __ATOMIC_ACQUIRE);
        /* A takeover that fails poisons the file before it removes a mark. */
        if (__builtin_expect(v & 1, 1))
            return i && file_check(f) < 0 ? 0 : v;
        seam_point(SEAM_WAIT, s);
        if (reservation_await(f, s, i) < 0)
            return 0;
    }
}

/* Copies bytes of a page by its current bitmap. Returns as undo_newest(). */
static inline int read_copy(struct file *f, const struct page_state *s, uint64_t page,
                            unsigned begin, unsigned n, char *dst, uint64_t version)
{
    if (__builtin_expect(undo_is_early(f, s), 0))
        return undo_newest(f, page, s, version, begin, n, dst);
    uint64_t bitmap = __atomic_load_n(&s->bitmap, __ATOMIC_ACQUIRE);
    if (__builtin_expect(f->logged, 0))
        bitmap = 0;
    copy_gather_range(f->persist.kernel, dst, file_o(f, page), file_r_to_read(f, page, s), bitmap,
                      begin, n);
    return 0;
}

/*
 * The common case of a read: within one page that has a state, nothing to deploy, no flip meanwhile, no error.
 * Returns true if the copy is valid, and sets *noted, unless `noted` is NULL, to the version that the page has. False: use
 * read_bytes(); dst may hold anything. n is from 1 to PAGE_BYTES. `few`: a constant, true for SLICE_BYTES or less: what lies in R
 * is left to others then, and nothing is called.
 *
 * It is separate from read_bytes() to be short. A read waits for memory, and the CPU fetches more of it at once the
 * fewer instructions lie between one read and the next. What holds the most room there are calls, taken branches,
 * stores, and on AMD's CPUs instructions that set flags: each costs 1 to 4 ns here, many times what it costs elsewhere.
 * The costs come in steps: with one instruction too many one call less fits. On Zen 4 a read of 64 bytes takes 57 ns with up to 116
 * instructions in ato_memcpy(), and 70 ns with 117; it has 112.
 */
static inline __attribute__((always_inline)) bool read_at_once(struct mapping *m, const char *src,
                                                               char *dst, size_t n, const bool few,
                                                               uint64_t *noted)
{
    struct file *f = m->file;
    uint64_t offset = m->offset + (uint64_t)(src - m->base);
    /* The address translation runs while the bitmap is fetched. */
    __builtin_prefetch((const void *)((uintptr_t)f->o + offset));
    /* A transaction's read deploys nothing: it often writes what it has read. */
    const bool gathers = !few && (noted || policy_of(m) == ATO_READ_GATHER);
    if (gathers && !f->sparse)
        __builtin_prefetch((const void *)((uintptr_t)f->r +
                                          layout_refpage(LAYOUT_DENSE, offset / PAGE_BYTES) +
                                          offset % PAGE_BYTES));
    /* Acquire: pairs with the release in reader_read(), for the loads that follow. */
    if (__builtin_expect((offset ^ (offset + n - 1)) >= PAGE_BYTES, 0) ||
        __builtin_expect(offset + n > __atomic_load_n(&m->quick, __ATOMIC_ACQUIRE), 0))
        return false;
    const uint64_t page = offset / PAGE_BYTES;
    const struct page_state *s =
        shared_look(&f->shared, page); /* not shared_peek(): a call costs registers */
    if (__builtin_expect(!s, 0))
        return false;
    /* For the copy the place is looked up again, after the bitmap: the page may have none yet. */
    if (__builtin_expect(f->sparse, 0) && gathers)
        __builtin_prefetch(file_r_to_read(f, page, s) + offset % PAGE_BYTES);
    uint64_t version = __atomic_load_n(&s->version, __ATOMIC_ACQUIRE);
    if (__builtin_expect(!(version & 1), 0))
        return false;
    /* After the version (read.c, point 5). */
    if (__builtin_expect(offset + n > __atomic_load_n(&f->shared.header->size, __ATOMIC_ACQUIRE),
                         0))
        return false;
    uint64_t bitmap = __atomic_load_n(&s->bitmap, __ATOMIC_ACQUIRE);
    const unsigned begin = (unsigned)(offset % PAGE_BYTES);
    /* Few bytes lie in one slice or two: a mask would take two more registers, which are saved in each call. */
    const bool home = __builtin_expect(!bitmap, 1) ||
                      !(few ? (bitmap >> begin / 64 | bitmap >> (begin + (unsigned)n - 1) / 64) & 1
                            : bitmap & bitmap_touched(begin, (unsigned)n));
    if (!home && (!gathers || f->logged))
        return false;
    seam_point(SEAM_VERSION, s);
    /* The race is intended: during the copy a flip may become visible, and the next writer may store to the home that was
     * valid. The version shows that, and the caller copies again (read.c, point 2). */
    RACES_MEANT_BEGIN();
    if (few)
        copy_few(dst, f->o + offset, n);
    else if (home)
        f->persist.kernel->plain(dst, f->o + offset, n);
    else
        copy_gather_range(f->persist.kernel, dst, file_o(f, page), file_r_to_read(f, page, s),
                          bitmap, begin, (unsigned)n);
    RACES_MEANT_END(dst, n);
    seam_point(SEAM_CHECK, s);
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    if (noted)
        *noted = version;
    /* After the copy: a fault in it poisons the file (fault.h). One test: of either there is none. */
    return !((__atomic_load_n(&s->version, __ATOMIC_RELAXED) ^ version) |
             __atomic_load_n(&f->shared.header->poisoned, __ATOMIC_RELAXED));
}

#endif
