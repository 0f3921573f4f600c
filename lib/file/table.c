/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/file/table.h"

#include "lib/file/file.h"
#include "reflection/media/report.h"
#include "reflection/media/window.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

struct mapping *table_entries[TABLE_ENTRIES];

const char *table_address(char to[TABLE_ADDRESS], const void *addr)
{
    if (addr && addr != MAP_FAILED)
        (void)snprintf(to, TABLE_ADDRESS, "%p", addr);
    else
        (void)strcpy(to, addr ? "MAP_FAILED" : "NULL");
    return to;
}

struct mapping *table_find_exactly(const void *addr)
{
    struct mapping *m = table_find(addr);
    return m && (uint64_t)((const char *)addr - m->base) <= m->reach ? m : NULL;
}

struct mapping *table_expect(const void *addr)
{
    struct mapping *m = table_find_exactly(addr);
    char name[TABLE_ADDRESS];
    if (!m)
        report_error(EINVAL, "%s does not lie in a mapping of this process",
                     table_address(name, addr));
    return m;
}

struct mapping *table_find_to_change(const void *addr)
{
    struct mapping *m = table_expect(addr);
    if (m && !m->writable && !mapping_has_stores(m))
        return report_null(EACCES, "the mapping at %p was made for reading only", addr);
    return m;
}

static uint64_t whole(uint64_t n)
{
    return (n + TABLE_GRAIN - 1) & ~(TABLE_GRAIN - 1);
}

bool table_touches(const void *addr, size_t n)
{
    uint64_t first = (uint64_t)(uintptr_t)addr >> TABLE_SHIFT;
    uint64_t last = ((uint64_t)(uintptr_t)addr + (n ? n - 1 : 0)) >> TABLE_SHIFT;
    for (uint64_t i = first; i <= last && i < TABLE_ENTRIES; i++)
        if (table_entry(i))
            return true;
    return false;
}

void *table_reserve(void *hint, uint64_t n)
{
    const uint64_t wanted = (uint64_t)(uintptr_t)hint, end = TABLE_ENTRIES << TABLE_SHIFT;
    void *at = MAP_FAILED;
    n = whole(n);
    if (hint && wanted % TABLE_GRAIN == 0 && n <= end && wanted <= end - n) {
        at = mmap(hint, n, PROT_NONE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
        if (at != MAP_FAILED && at != hint) {
            munmap(at, n);
            at = MAP_FAILED;
        }
    }
    return at == MAP_FAILED ? window_reserve(n) : at;
}

void table_put(void *base, uint64_t n, struct mapping *m)
{
    uint64_t first = (uint64_t)(uintptr_t)base >> TABLE_SHIFT;
    for (uint64_t i = 0; i < whole(n) >> TABLE_SHIFT; i++)
        __atomic_store_n(&table_entries[first + i], m, __ATOMIC_RELEASE);
}
