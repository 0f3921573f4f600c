/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/read/range.h"

#include "lib/read/reader.h"

#include <stdlib.h>

int range_outside(const void *addr, size_t n)
{
    if (!addr)
        return report_error(EINVAL, "NULL is given as the address of %zu bytes", n);
    return report_error(EFAULT,
                        "[%p, +%zu) lies only partly in a mapping, or beyond the end of its "
                        "file",
                        addr, n);
}

bool range_grew(struct range *s, const void *addr, size_t n)
{
    if (!s->m->file->reader)
        return false;
    uint64_t size;
    return reader_size(s->m->file, &size) == 0 && range_within(s, addr, n, size) == 0;
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
        return report_error(EINVAL, "%s lies in no mapping of this process",
                            table_address(first, a));
    return report_error(EINVAL, "neither %s nor %s lies in a mapping of this process",
                        table_address(first, a), table_address(second, b));
}
