/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which mapping an address lies in: a flat table over the address space, with one entry per GiB.
 *
 * Mappings begin at multiples of 1 GiB and own every GiB into which they reach, so `addr >> 30` finds the only
 * mapping that can be there: one load, no lock, in every call. The table covers the 47 bits that mmap() gives
 * without a hint. It is 1 MiB of zeros, of which a process touches a page or two.
 *
 * A reader of the table never finds a mapping that is going away, unless its caller passes an address of a mapping
 * that another thread is unmapping, which is the caller's error. Entries are cleared before the addresses are given
 * back to the kernel, so memory that the kernel maps there later is treated as plain memory.
 */
#ifndef ATO_LIB_FILE_TABLE_H
#define ATO_LIB_FILE_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TABLE_SHIFT   30
#define TABLE_GRAIN   (1ull << TABLE_SHIFT)
#define TABLE_ENTRIES (1ull << (47 - TABLE_SHIFT))

struct mapping;

extern struct mapping *table_entries[TABLE_ENTRIES];

static inline struct mapping *table_entry(uint64_t entry)
{
    /* Acquire: pairs with table_put(), so that the mapping is seen whole. */
    return __atomic_load_n(&table_entries[entry], __ATOMIC_ACQUIRE);
}

/* Returns the mapping that owns the GiB of `addr`, or NULL. */
static inline struct mapping *table_find(const void *addr)
{
    uint64_t entry = (uint64_t)(uintptr_t)addr >> TABLE_SHIFT;
    return entry < TABLE_ENTRIES ? table_entry(entry) : NULL;
}

/* Stores an address as sentences have it, NULL and MAP_FAILED by these names, in `to`. Returns `to`. */
enum { TABLE_ADDRESS = 24 };
const char *table_address(char to[TABLE_ADDRESS], const void *addr);

/* Returns the mapping in which `addr` lies, or that ends just before it; NULL: none. For calls that move no bytes. */
struct mapping *table_find_exactly(const void *addr);

/* The same; NULL with EINVAL and a sentence. */
struct mapping *table_expect(const void *addr);

/* The same, if the caller may write to the mapping's file. NULL with a sentence: EINVAL, EACCES. */
struct mapping *table_find_to_change(const void *addr);

/* Returns true if [addr, addr + n) reaches into a mapping. */
bool table_touches(const void *addr, size_t n);

/* Returns true if all of [addr, addr + n) is plain memory. n > 0. */
static inline bool table_is_plain(const void *addr, size_t n)
{
    uint64_t last = (uint64_t)(uintptr_t)addr + n - 1;
    if (table_find(addr) || last < (uint64_t)(uintptr_t)addr)
        return false;
    if (__builtin_expect(n > TABLE_GRAIN, 0))
        return !table_touches(addr, n);
    return !table_find((const void *)(uintptr_t)last);
}

/* Returns the mapping that owns the GiB of src; NULL also if dst[0, n) is not plain memory, or dst is NULL. Sets *to_mapping to the one
 * that owns the GiB of dst; NULL: none is known. 0 < n, and less than a GiB. */
static inline struct mapping *table_find_source(const void *dst, const void *src, size_t n,
                                                struct mapping **to_mapping)
{
    const uint64_t to = (uint64_t)(uintptr_t)dst, last = to + n - 1,
                   from = (uint64_t)(uintptr_t)src;
    *to_mapping = NULL;
    /* One test instead of four: no entry is beyond the table, and dst is not NULL. */
    if (__builtin_expect(((to - 1) | last | from) >> TABLE_SHIFT >= TABLE_ENTRIES, 0) ||
        (*to_mapping = table_entry(to >> TABLE_SHIFT)) || table_entry(last >> TABLE_SHIFT))
        return NULL;
    return table_entry(from >> TABLE_SHIFT);
}

/* Reserves address space of n bytes, rounded up to whole GiB, at a multiple of 1 GiB, without access. `hint` is
 * used if it fits. A forked child inherits it. Returns NULL with errno on failure. window_give_back() gives it back. */
void *table_reserve(void *hint, uint64_t n);
void table_put(void *base, uint64_t n, struct mapping *m); /* NULL: clears */

#endif
