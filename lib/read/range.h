/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One side of a copy: the mapping in which it lies, if any, and whether it lies there as a whole. Counting of
 * copies.
 */
#ifndef ATO_LIB_READ_RANGE_H
#define ATO_LIB_READ_RANGE_H

#include "lib/file/file.h"
#include "lib/file/table.h"
#include "reflection/media/report.h"

struct range {
    struct mapping *m; /* NULL: plain memory */
    uint64_t offset;   /* in the file */
};

/* Reports that a range lies outside. `m`: the mapping in which it begins; NULL: none. Returns -1 with EFAULT; EINVAL for NULL; EIO if the
 * file is poisoned. */
int range_outside(const struct mapping *m, const void *addr, size_t n);
int range_none(const void *a, const void *b);
int range_not_writable(const struct mapping *m, const void *addr);

/* For calls that move no bytes. Returns 0; -1 with EINVAL if neither address lies in a mapping, or just behind one. */
int range_empty(const void *a, const void *b);

/* Returns whether [addr, addr + n) lies in the part of s->m that may be used, and within `size` bytes of its file. Sets
 * s->offset. */
static inline bool range_within(struct range *s, const void *addr, size_t n, uint64_t size)
{
    uint64_t at = (uint64_t)(uintptr_t)addr;
    struct mapping *m = s->m;
    if (__builtin_expect(at + n - 1 < at, 0))
        return false;
    uint64_t from = at - (uint64_t)(uintptr_t)m->base;
    if (__builtin_expect(from >= m->reach || n > m->reach - from, 0))
        return false;
    s->offset = m->offset + from;
    return __builtin_expect(s->offset < size && n <= size - s->offset, 1);
}

/* Sets s->m to the mapping in which addr lies, or to NULL for plain memory. Returns 0; -1 with EFAULT if the range
 * is partly in a mapping, EINVAL if addr is NULL. n > 0. */
static inline int range_look(struct range *s, const void *addr, size_t n)
{
    s->m = table_find(addr);
    s->offset = 0;
    if (s->m || __builtin_expect(addr && table_is_plain(addr, n), 1))
        return 0;
    return range_outside(NULL, addr, n);
}

/* range_check() for a range that does not lie within file_size(): the file may have grown. */
int range_check_again(struct range *s, const void *addr, size_t n);

/* Checks the range of a side that lies in a mapping. Returns 0; -1 as range_find(), or with ENOMEM: no address space for views. */
static inline int range_check(struct range *s, const void *addr, size_t n)
{
    return __builtin_expect(range_within(s, addr, n, file_size(s->m->file)), 1)
               ? 0
               : range_check_again(s, addr, n);
}

/* Finds the mapping of a side and checks the range. n > 0. Returns 0; -1 with EFAULT: partly in a mapping, or
 * beyond the end of the file. Whether the file is poisoned is asked later: when its pages are held, and after a copy. */
static inline int range_find(struct range *s, const void *addr, size_t n)
{
    if (range_look(s, addr, n) < 0)
        return -1;
    return s->m ? range_check(s, addr, n) : 0;
}

/* Returns memory for a copy of n bytes, which the caller frees; NULL with ENOMEM. */
char *range_copy_buffer(uint64_t n);

static inline int range_check_writable(const struct mapping *m, const void *addr)
{
    return __builtin_expect(m->writable, 1) ? 0 : range_not_writable(m, addr);
}

static inline void range_count_write(struct mapping *m, uint64_t n)
{
    struct tally t = tally_of(m->file);
    uint64_t before = __atomic_load_n(&t.of[COUNT_BYTES_WRITTEN], __ATOMIC_RELAXED);
    tally_add(t, COUNT_WRITES, 1);
    tally_add(t, COUNT_BYTES_WRITTEN, n);
    if (__builtin_expect((before ^ (before + n)) / FILE_TICK, 0))
        __atomic_fetch_add(&m->file->clock, 1, __ATOMIC_RELAXED);
}

static inline void range_tally_read(struct tally t, uint64_t n)
{
    tally_add(t, COUNT_READS, 1);
    tally_add(t, COUNT_BYTES_READ, n);
}

static inline void range_count_read(struct mapping *m, uint64_t n)
{
    range_tally_read(tally_of(m->file), n);
}

#endif
