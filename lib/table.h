/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which mapping an address lies in: a flat table over the address space, one entry a GiB.
 *
 * Mappings begin on 1 GiB boundaries and own every GiB they reach into, so that `addr >> 30` finds
 * the only mapping there can be: one load, no lock, on every call's path. The table covers the 47
 * bits that mmap() gives without a hint; it is 1 MiB of zeros, of which a process touches a page
 * or two.
 *
 * A reader never meets a mapping that is going away, unless its caller passes an address of a
 * mapping that another thread is unmapping, which is the caller's error: entries are cleared before
 * the addresses are given back to the kernel, so that plain memory that the kernel puts there later
 * is found to be plain.
 */
#ifndef ATO_LIB_TABLE_H
#define ATO_LIB_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TABLE_SHIFT   30
#define TABLE_GRAIN   (1ull << TABLE_SHIFT)
#define TABLE_ENTRIES (1ull << (47 - TABLE_SHIFT))

struct mapping;

extern struct mapping *table_entries[TABLE_ENTRIES];

/* The mapping that owns the GiB of `addr`, or NULL. */
static inline struct mapping *table_find(const void *addr)
{
    uint64_t entry = (uint64_t)(uintptr_t)addr >> TABLE_SHIFT;
    if (entry >= TABLE_ENTRIES)
        return NULL;
    /* Acquire: pairs with table_put(), so that the mapping is seen whole. */
    return __atomic_load_n(&table_entries[entry], __ATOMIC_ACQUIRE);
}

/* The mapping that `addr` lies in, or behind whose last byte it is; NULL. For calls that move no
 * bytes. */
struct mapping *table_find_exactly(const void *addr);

/* The same of one whose file the caller may write to. NULL with a sentence: EINVAL, EACCES. */
struct mapping *table_find_to_change(const void *addr);

/* Does [addr, addr + n) reach into any mapping but `m` (NULL: into any at all)? */
bool table_touches_other(const void *addr, size_t n, const struct mapping *m);

/* Is [addr, addr + n) plain memory, as a whole? n > 0. */
static inline bool table_is_plain(const void *addr, size_t n)
{
    uint64_t last = (uint64_t)(uintptr_t)addr + n - 1;
    if (table_find(addr) || last < (uint64_t)(uintptr_t)addr)
        return false;
    if (__builtin_expect(n > TABLE_GRAIN, 0))
        return !table_touches_other(addr, n, NULL);
    return !table_find((const void *)(uintptr_t)last);
}

/* Address space of n bytes, rounded up to whole GiB, reserved on a GiB boundary: no access. `hint`
 * is used when it fits. NULL and errno. */
void *table_reserve(void *hint, uint64_t n);
void table_put(void *base, uint64_t n, struct mapping *m);
void table_clear(void *base, uint64_t n);

#endif
