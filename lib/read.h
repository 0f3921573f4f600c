/* SPDX-License-Identifier: BSD-3-Clause */
/* Consistent reads that wait for nobody; why they are consistent: read.c. */
#ifndef ATO_LIB_READ_H
#define ATO_LIB_READ_H

#include "../reflection/bitmap.h"
#include "../reflection/races.h"
#include "pages.h"

/* Copies n bytes at `offset` of m's file, which the caller has checked to lie within it, to dst: as
 * they were at one moment. -1: ENOSPC, ENOMEM, EIO, EFAULT (it was cut meanwhile); dst may hold
 * anything then. */
int read_bytes(struct mapping *m, uint64_t offset, char *dst, uint64_t n);

/* Walks the pages of [offset, offset + n). */
#define FOR_EACH_PAGE(page, begin, bytes, offset, n)                                               \
    for (uint64_t at_ = (offset), end_ = at_ + (n), page = at_ / PAGE_BYTES,                       \
                  begin = at_ % PAGE_BYTES,                                                        \
                  bytes = PAGE_BYTES - begin < end_ - at_ ? PAGE_BYTES - begin : end_ - at_;       \
         at_ < end_; at_ += bytes, page++, begin = 0,                                              \
                  bytes = PAGE_BYTES < end_ - at_ ? PAGE_BYTES : end_ - at_)

/* An odd version, of a page that is loaded: it is flipping for as long as a few stores take. 0: whoever does
 * that is dead, and the page cannot be freed. */
static inline uint64_t read_steady_version(struct file *f, const struct page_state *s)
{
    for (unsigned i = 0;; i++) {
        uint64_t v = __atomic_load_n(&s->version, __ATOMIC_ACQUIRE);
        if (__builtin_expect(v & 1,
                             1)) /* a takeover that fails says so before it takes a mark off */
            return i && file_check(f) < 0 ? 0 : v;
        seam_point(SEAM_WAIT, s);
        if (pages_await(f, s, i) < 0)
            return 0;
    }
}

/* Copies bytes of a page by the bitmap of now. */
static inline void read_copy(struct file *f, const struct page_state *s, uint64_t page,
                             unsigned begin, unsigned n, char *dst)
{
    uint64_t bitmap = __atomic_load_n(&s->bitmap, __ATOMIC_ACQUIRE);
    copy_gather_range(f->persist.kernel, dst, file_o(f, page), file_r(f, page), bitmap, begin, n);
}

/* The same of a page that somebody else may hold; did it keep the version that it had before?
 * A race that is meant: while this copies, a flip may be shown and a next writer store to what was valid.
 * The version tells, and the caller copies again (read.c, point 2). */
static inline bool read_try(struct file *f, const struct page_state *s, uint64_t version,
                            uint64_t page, unsigned begin, unsigned n, char *dst)
{
    seam_point(SEAM_VERSION, s);
    RACES_MEANT_BEGIN();
    read_copy(f, s, page, begin, n, dst);
    RACES_MEANT_END(dst, n);
    seam_point(SEAM_CHECK, s);
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    return __atomic_load_n(&s->version, __ATOMIC_RELAXED) == version;
}

/*
 * What most reads are: within a page whose state is there, nothing to bring home, no flip meanwhile,
 * nothing wrong. False: not so, and dst may hold anything.
 *
 * Apart from read_bytes() to be short. What a read waits for is memory, of which the CPU fetches the
 * more at once the fewer instructions lie between one read and the next: a load or a branch among
 * them, from the first-level cache, costs a nanosecond then, many times of what it costs otherwise.
 */
static inline bool read_at_once(struct mapping *m, const char *src, char *dst, size_t n)
{
    struct file *f = m->file;
    uint64_t offset = m->offset + (uint64_t)(src - m->base);
    uint64_t page = offset / PAGE_BYTES, begin = offset % PAGE_BYTES;
    if (n > PAGE_BYTES - begin)
        return false;
    /* Addresses are looked up while the bitmap comes. */
    __builtin_prefetch(f->o + offset);
    const bool gathers = policy_of(m) == ATO_READ_GATHER;
    if (gathers)
        __builtin_prefetch((const void *)((uintptr_t)f->r + layout_reflected(offset)));
    /* Acquire: pairs with reader_read(), for what comes next. */
    if (offset + n > m->offset + __atomic_load_n(&m->quick, __ATOMIC_ACQUIRE))
        return false;
    const struct shared_header *h = f->shared.header;
    const struct page_state *s = shared_peek(&f->shared, page);
    if (__builtin_expect(!s, 0))
        return false;
    uint64_t version = __atomic_load_n(&s->version, __ATOMIC_ACQUIRE);
    if (__builtin_expect(!(version & 1), 0))
        return false;
    /* Behind the version (read.c, point 5). */
    if (offset + n > __atomic_load_n(&h->size, __ATOMIC_ACQUIRE) ||
        __atomic_load_n(&h->poisoned, __ATOMIC_RELAXED))
        return false;
    uint64_t bitmap = __atomic_load_n(&s->bitmap, __ATOMIC_ACQUIRE);
    seam_point(SEAM_VERSION, s);
    RACES_MEANT_BEGIN(); /* as in read_try() */
    if (bitmap == 0) {
        f->persist.kernel->plain(dst, f->o + offset, n);
    } else if (gathers || !(bitmap & bitmap_touched((unsigned)begin, (unsigned)n))) {
        copy_gather_range(f->persist.kernel, dst, file_o(f, page), file_r(f, page), bitmap,
                          (unsigned)begin, (unsigned)n);
    } else {
        RACES_MEANT_END(dst, 0);
        return false;
    }
    RACES_MEANT_END(dst, n);
    seam_point(SEAM_CHECK, s);
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    return __atomic_load_n(&s->version, __ATOMIC_RELAXED) == version;
}

#endif
