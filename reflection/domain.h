/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which durability domain a file gets: what its medium offers, and how files are mapped in it.
 */
#ifndef ATO_REFLECTION_DOMAIN_H
#define ATO_REFLECTION_DOMAIN_H

#include "persist.h"

#include <sys/types.h>

/* What the medium of an open regular file (for reading and writing) offers:
 *   pmem     a mapping with MAP_SYNC works: DAX on persistent memory
 *   eadr     the same, and the platform flushes CPU caches at a power cut
 *   process  tmpfs, ramfs: nothing outlives the kernel
 *   msync    everything else */
enum persist_domain domain_of(int fd);

/* The one that promises less. */
enum persist_domain domain_weaker(enum persist_domain a, enum persist_domain b);

/* "pmem" ...; NULL for a number that is none. */
const char *domain_name(int domain);

/* From ATO_DURABILITY's value; PERSIST_AUTO for NULL or "". -1 with EINVAL for other words. */
int domain_from_name(const char *name);

/* mmap() of a file of the media: with MAP_SYNC where `domain` wants it and the file can, so that
 * what was allocated before a store is durable with it. MAP_FAILED and errno on failure. `at`: an
 * address to replace, or NULL. */
void *domain_map(enum persist_domain domain, void *at, size_t n, int prot, int fd, off_t offset);

/* Do mappings in this domain go through the page cache, unless it was forced on a medium of another? */
static inline bool domain_is_cached(enum persist_domain domain)
{
    return domain == PERSIST_MSYNC || domain == PERSIST_PROCESS;
}

/*
 * Of whole pages of such a mapping, which have space: can they be stored to? That they have space is not all:
 * Linux keeps neighbouring pages of a file as one in its cache (a large folio), and the first store to it takes
 * space for all of them, where they are holes; where there is none, the store is SIGBUS. So the kernel is asked to
 * make the pages ready, which it says EFAULT to then. Kernels without that call (before 5.14) have no such
 * folios for writing, nor has persistent memory. 0; -1 with ENOSPC.
 */
int domain_make_storable(enum persist_domain domain, void *at, size_t n);

/* So far, at most, lie the neighbours of what lies before `at` in a file: to take space from those is to take it from
 * them, too. */
static inline uint64_t domain_neighbours_end(enum persist_domain domain, uint64_t at)
{
    const uint64_t most = 2 << 20; /* of neighbours, whose place is a multiple of their size */
    return domain_is_cached(domain) ? (at + most - 1) / most * most : at;
}

#endif
