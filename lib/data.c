/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The calls that move data: which side of a copy lies in which mapping, and whether it lies there
 * as a whole. Everything behind this file works on a mapping and an offset that are known good.
 */
#include "../reflection/report.h"
#include "calls.h"
#include "deploy.h"
#include "file.h"
#include "read.h"
#include "table.h"
#include "write.h"

#include <string.h>
#include <sys/mman.h>

/* One side of a copy. */
struct side {
    struct mapping *m; /* NULL: plain memory */
    uint64_t offset;   /* in the file */
};

static int outside(const void *addr, size_t n)
{
    return report_error(EFAULT,
                        "[%p, +%zu) lies only partly in a mapping, or beyond the end of its "
                        "file",
                        addr, n);
}

/* Finds the side, n > 0. EFAULT: partly in a mapping. EIO: its file is poisoned. */
static inline int find_side(struct side *s, const void *addr, size_t n)
{
    uint64_t at = (uint64_t)(uintptr_t)addr;
    s->m = table_find(addr);
    s->offset = 0;
    if (!s->m)
        return __builtin_expect(table_is_plain(addr, n), 1) ? 0 : outside(addr, n);
    if (__builtin_expect(at + n - 1 < at, 0))
        return outside(addr, n);
    struct mapping *m = s->m;
    uint64_t from = at - (uint64_t)(uintptr_t)m->base;
    if (__builtin_expect(from >= m->reach || n > m->reach - from, 0))
        return outside(addr, n);
    s->offset = m->offset + from;
    uint64_t size = file_size(m->file);
    if (__builtin_expect(s->offset >= size || n > size - s->offset, 0))
        return outside(addr, n);
    return file_check(m->file);
}

static int no_mapping(const void *a, const void *b)
{
    return report_error(EINVAL, "neither %p nor %p lies in a mapping of this process", a, b);
}

static int check_writable(const struct mapping *m, const void *addr)
{
    return m->writable ? 0 : report_error(EACCES, "the mapping at %p is for reading only", addr);
}

static inline void count_write(struct mapping *m, uint64_t n)
{
    struct tally t = tally_of(m);
    uint64_t before = tally_get(t, COUNT_BYTES_WRITTEN);
    tally_add(t, COUNT_WRITES, 1);
    tally_add(t, COUNT_BYTES_WRITTEN, n);
    if (__builtin_expect((before ^ (before + n)) / FILE_TICK, 0))
        __atomic_fetch_add(&m->file->clock, 1, __ATOMIC_RELAXED);
}

static inline void count_read(struct mapping *m, uint64_t n)
{
    struct tally t = tally_of(m);
    tally_add(t, COUNT_READS, 1);
    tally_add(t, COUNT_BYTES_READ, n);
}

static int write_across(const struct side *to, const struct side *from, uint64_t n, unsigned flags)
{
    if (write_from_mapping(to->m, to->offset, from->m, from->offset, n, flags) < 0)
        return -1;
    count_read(from->m, n);
    return 0;
}

void *ato_memcpy_opt(void *dst, const void *src, size_t n, unsigned flags)
{
    struct side to, from;
    if (__builtin_expect(flags & ~(ATO_EAGER | ATO_SKIP_EQUAL), 0)) {
        report_error(EINVAL, "flags 0x%x are not known", flags);
        return NULL;
    }
    if (__builtin_expect(n == 0, 0)) {
        if (table_find_exactly(dst) || table_find_exactly(src))
            return dst;
        no_mapping(dst, src);
        return NULL;
    }
    if (find_side(&to, dst, n) < 0 || find_side(&from, src, n) < 0)
        return NULL;
    CALL_ON(to_call, to.m);
    CALL_ON(from_call, from.m);
    int r;
    if (to.m) {
        r = check_writable(to.m, dst);
        if (r == 0)
            r = from.m ? write_across(&to, &from, n, flags)
                       : write_bytes(to.m, to.offset, src, n, flags);
        if (r == 0)
            count_write(to.m, n);
    } else {
        r = from.m ? read_bytes(from.m, from.offset, dst, n) : no_mapping(dst, src);
        if (r == 0)
            count_read(from.m, n);
    }
    return r < 0 ? NULL : dst;
}

void *ato_memcpy(void *dst, const void *src, size_t n)
{
    struct mapping *from = table_find(src);
    if (from && n - 1 < PAGE_BYTES && table_is_plain(dst, n)) {
        CALL_ON(call, from);
        if (read_at_once(from, src, dst, n)) {
            count_read(from, n);
            return dst;
        }
    }
    return ato_memcpy_opt(dst, src, n, 0);
}

void *ato_memset(void *dst, int c, size_t n)
{
    struct side to;
    if (n == 0) {
        if (table_find_exactly(dst))
            return dst;
        no_mapping(dst, dst);
        return NULL;
    }
    if (find_side(&to, dst, n) < 0)
        return NULL;
    if (!to.m) {
        no_mapping(dst, dst);
        return NULL;
    }
    CALL_ON(call, to.m);
    if (check_writable(to.m, dst) < 0 || write_fill(to.m, to.offset, c, n, 0) < 0)
        return NULL;
    count_write(to.m, n);
    return dst;
}

int ato_deploy(const void *addr, size_t n)
{
    struct side s;
    if (n == 0)
        return table_find_exactly(addr) ? 0 : no_mapping(addr, addr);
    if (find_side(&s, addr, n) < 0)
        return -1;
    if (!s.m)
        return no_mapping(addr, addr);
    CALL_ON(call, s.m);
    if (s.m->reader)
        return report_error(EACCES,
                            "the mapping at %p is of a read-only descriptor: it brings nothing "
                            "home",
                            addr);
    return deploy_range(s.m, s.offset / PAGE_BYTES, (s.offset + n - 1) / PAGE_BYTES);
}

/* What msync(2) takes for the mapping: as long as it was asked for or as its file is by now, in whole
 * pages. */
static uint64_t mapping_extent(const struct mapping *m)
{
    uint64_t size = file_size(m->file), grown = size > m->offset ? size - m->offset : 0;
    uint64_t n = grown < m->reach ? grown : m->reach;
    n = n > m->length ? n : m->length;
    return (n + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
}

int ato_msync(void *addr, size_t n, int flags)
{
    const int known = MS_SYNC | MS_ASYNC | MS_INVALIDATE;
    uint64_t at = (uint64_t)(uintptr_t)addr;
    if ((flags & ~known) || (flags & (MS_SYNC | MS_ASYNC)) == (MS_SYNC | MS_ASYNC))
        return report_error(EINVAL, "msync flags 0x%x", (unsigned)flags);
    if (at % PAGE_BYTES)
        return report_error(EINVAL, "%p is not at a page's beginning", addr);
    struct mapping *m = table_find(addr);
    CALL_ON(call, m);
    uint64_t from = m ? at - (uint64_t)(uintptr_t)m->base : 0;
    uint64_t length = m ? mapping_extent(m) : 0;
    if (!m || from > length || n > length - from)
        return report_error(ENOMEM, "[%p, +%zu) does not lie in a mapping", addr, n);
    return file_check(m->file);
}
