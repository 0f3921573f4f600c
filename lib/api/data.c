/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The public calls that move data. They find the mapping of each side of a copy, and check that the whole
 * side lies in it: the functions that they call rely on a valid mapping and offset.
 */
#include "lib/api/write.h"
#include "lib/api/writev.h"
#include "lib/commit/deploy.h"
#include "lib/file/calls.h"
#include "lib/read/range.h"
#include "lib/read/read.h"
#include "lib/read/reader.h"
#include "lib/transaction/epoch.h"
#include "reflection/media/report.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static int read_side(const struct range *from, void *dst, uint64_t n)
{
    if (__builtin_expect(!!from->m->file->reader, 0))
        return reader_read(from->m, from->offset, dst, n);
    return from->m->epoch ? epoch_read(from->m, from->offset, dst, n)
                          : read_bytes(from->m, from->offset, dst, n, NULL);
}

/* `repeats`: as in write_bytes(). */
static int write_side(const struct range *to, const void *src, uint64_t n, bool repeats,
                      unsigned flags)
{
    if (__builtin_expect(!to->m->epoch, 1))
        return write_bytes(to->m, to->offset, src, n, repeats, flags);
    const struct staging_write w = {.to = *to, .n = n, .bytes = src, .repeats = repeats};
    return epoch_write(&w, 1, flags);
}

/* Copies from mapping to mapping where one of them has an epoch, or where the pages of the source cannot be held because this
 * process may only read its file. Reads a consistent copy of the whole source, then writes that from memory. */
static int write_copy(const struct range *to, const struct range *from, uint64_t n, unsigned flags)
{
    char *copy = range_copy_buffer(n);
    int r = copy && read_side(from, copy, n) == 0 ? write_side(to, copy, n, false, flags) : -1;
    free(copy);
    return r;
}

static int write_across(const struct range *to, const struct range *from, uint64_t n,
                        unsigned flags)
{
    int r = to->m->epoch || from->m->epoch || from->m->file->reader
                ? write_copy(to, from, n, flags)
                : writev_across(to, from, n, flags);
    if (r == 0)
        range_count_read(from->m, n);
    return r;
}

void *ato_memcpy_opt(void *dst, const void *src, size_t n, unsigned flags)
{
    struct range to, from;
    if (__builtin_expect(flags & ~(ATO_EAGER | ATO_SKIP_EQUAL), 0))
        return report_null(EINVAL, "flags 0x%x are not known", flags);
    if (__builtin_expect(n == 0, 0))
        return range_empty(dst, src) < 0 ? NULL : dst;
    if (range_find(&to, dst, n) < 0 || range_find(&from, src, n) < 0)
        return NULL;
    CALL_ON(to_call, to.m);
    CALL_ON(from_call, from.m);
    int r;
    if (to.m) {
        r = range_check_writable(to.m, dst);
        if (r == 0)
            r = from.m ? write_across(&to, &from, n, flags) : write_side(&to, src, n, false, flags);
        if (r == 0)
            range_count_write(to.m, n);
    } else {
        r = from.m ? read_side(&from, dst, n) : range_none(dst, src);
        if (r == 0)
            range_count_read(from.m, n);
    }
    return r < 0 ? NULL : dst;
}

/* ato_memcpy() of more than a few bytes. A function of its own, since calls cost the other one registers. */
static __attribute__((noinline)) void *copy_many(void *dst, const void *src, size_t n)
{
    struct mapping *from = n - 1 < PAGE_BYTES ? table_find_source(dst, src, n) : NULL;
    if (from) {
        CALL_ON(call, from);
        if (read_at_once(from, src, dst, n, false)) {
            range_count_read(from, n);
            return dst;
        }
    }
    return ato_memcpy_opt(dst, src, n, 0);
}

void *ato_memcpy(void *dst, const void *src, size_t n)
{
    struct mapping *from;
    if (__builtin_expect(n - 1 < SLICE_BYTES, 1) && thread_is_numbered() &&
        (from = table_find_source(dst, src, n))) {
        CALL_ON(call, from);
        if (__builtin_expect(read_at_once(from, src, dst, n, true), 1)) {
            range_tally_read(tally_of_own(from), n);
            return dst;
        }
    }
    return copy_many(dst, src, n);
}

void *ato_memset(void *dst, int c, size_t n)
{
    char page[PAGE_BYTES];
    struct range to;
    if (n == 0)
        return range_empty(dst, dst) < 0 ? NULL : dst;
    if (range_find(&to, dst, n) < 0 || (!to.m && range_none(dst, dst) < 0))
        return NULL;
    CALL_ON(call, to.m);
    if (range_check_writable(to.m, dst) < 0)
        return NULL;
    memset(page, c, n < sizeof(page) ? n : sizeof(page));
    if (write_side(&to, page, n, true, 0) < 0)
        return NULL;
    range_count_write(to.m, n);
    return dst;
}

int ato_deploy(const void *addr, size_t n)
{
    struct range s;
    if (n == 0)
        return range_empty(addr, addr);
    if (range_find(&s, addr, n) < 0)
        return -1;
    if (!s.m)
        return range_none(addr, addr);
    CALL_ON(call, s.m);
    if (s.m->reader)
        return report_error(
            EACCES,
            "the mapping at %p has a read-only descriptor, through which nothing can be deployed",
            addr);
    return deploy_range(s.m, s.offset / PAGE_BYTES, (s.offset + n - 1) / PAGE_BYTES);
}

/* Returns the bytes of the mapping that msync(2) accepts, in whole pages: the length it was made with, or up
 * to the end of the file if the mapping has grown beyond that. */
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
        return report_error(EINVAL, "msync flags 0x%x are not valid", (unsigned)flags);
    if (at % PAGE_BYTES)
        return report_error(EINVAL, "%p is not the beginning of a page", addr);
    struct mapping *m = table_find(addr);
    CALL_ON(call, m);
    uint64_t from = m ? at - (uint64_t)(uintptr_t)m->base : 0;
    uint64_t length = m ? mapping_extent(m) : 0;
    if (!m || from > length || n > length - from)
        return report_error(ENOMEM, "[%p, +%zu) does not lie in a mapping", addr, n);
    return m->epoch ? epoch_commit(m) : file_check(m->file);
}
