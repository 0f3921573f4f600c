/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/read/range.h"

#include "lib/file/views.h"
#include "lib/read/reader.h"

#include <stdlib.h>

int range_outside(const struct mapping *m, const void *addr, size_t n)
{
    /* Shared memory that was cut may be longer again, by another process that needs more of it: then the header is zeros, without a
     * fault. */
    if (m && m->file->shared.head.base &&
        !__atomic_load_n(&m->file->shared.header->magic, __ATOMIC_RELAXED))
        fault_poison_here(&m->file->pairing.faults);
    if (m && file_check(m->file) < 0) /* its size may have become 0 */
        return -1;
    if (!addr)
        return report_error(EINVAL, "NULL is given as the address of %zu bytes", n);
    return report_error(EFAULT,
                        "[%p, +%zu) lies only partly in a mapping, or beyond the end of its "
                        "file",
                        addr, n);
}

int range_not_writable(const struct mapping *m, const void *addr)
{
    return mapping_has_stores(m)
               ? report_error(EINVAL,
                              "the mapping at %p has ATO_PLAIN_STORES: store there by plain "
                              "instructions, and commit with ato_msync()",
                              addr)
               : report_error(EACCES, "the mapping at %p is for reading only", addr);
}

int range_check_again(struct range *s, const void *addr, size_t n)
{
    struct file *f = s->m->file;
    uint64_t size = file_end(f);
    if (f->reader && reader_size(f, &size) < 0)
        return -1;
    if (!range_within(s, addr, n, size))
        return range_outside(s->m, addr, n);
    if (!f->o) /* a reader that does not watch has no views */
        return 0;
    if (views_reach(f, s->offset + n) < 0)
        return -1;
    if (s->m->quick)
        mapping_read_quickly(s->m);
    return 0;
}

char *range_copy_buffer(uint64_t n)
{
    char *copy = malloc(n);
    return copy ? copy
                : report_null(ENOMEM, "no memory to copy %llu bytes from mapping to mapping",
                              (unsigned long long)n);
}

int range_empty(const void *a, const void *b)
{
    return table_find_exactly(a) || table_find_exactly(b) ? 0 : range_none(a, b);
}

int range_none(const void *a, const void *b)
{
    char first[TABLE_ADDRESS], second[TABLE_ADDRESS];
    if (a == b)
        return report_error(EINVAL,
                            "%s lies in no mapping of this process (a forked child has none of its "
                            "parent's)",
                            table_address(first, a));
    return report_error(
        EINVAL,
        "neither %s nor %s lies in a mapping of this process (a forked child has none of "
        "its parent's)",
        table_address(first, a), table_address(second, b));
}
