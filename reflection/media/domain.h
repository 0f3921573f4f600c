/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The durability domain of a file: what its medium offers, and how files are mapped in it.
 */
#ifndef ATO_REFLECTION_MEDIA_DOMAIN_H
#define ATO_REFLECTION_MEDIA_DOMAIN_H

#include "reflection/media/persist.h"

#include <sys/types.h>

/* Returns what the medium of an open regular file (for reading and writing) offers:
 *   pmem     a mapping with MAP_SYNC works: DAX on persistent memory
 *   eadr     as pmem, and the platform flushes CPU caches at a power cut
 *   process  tmpfs, ramfs: nothing outlives the kernel
 *   disk     everything else */
enum persist_domain domain_of(int fd);

/* Returns 1 if the platform flushes CPU caches at a power cut: all regions of persistent memory are in the domain "cpu_cache"; 0 if not;
 * -1 if that cannot be found out. */
int domain_has_auto_flush(void);

/* Returns 1 if the file is on tmpfs or ramfs, where reading a hole may be SIGBUS; 0 if not; -1 if that cannot be found out. */
int domain_is_memory(int fd);

/* Returns the name of the file system of an open file or folder, if libato is not safe there: other machines may use the file, and have
 * neither its locks nor its shared memory; or mappings and write() do not see each other's bytes at once. NULL: it is none of these. */
const char *domain_refused(int fd);

/* Returns the domain that promises less; of pmem and eadr, pmem. */
enum persist_domain domain_weaker(enum persist_domain a, enum persist_domain b);

/* Returns 0; -1 with EXDEV if the file at `path`, in domain `is`, cannot be mapped as wished. */
int domain_check(enum persist_domain is, int wished, const char *path);

/* "pmem" ...; NULL for an unknown number. */
const char *domain_name(int domain);

/* Returns the domain that the value of ATO_DURABILITY names; PERSIST_AUTO for NULL or "". -1 with EINVAL for
 * other words. */
int domain_from_name(const char *name);

/* mmap() of a file of the media: with MAP_SYNC where `domain` wants it and the file supports it, so that
 * space allocated before a store is durable with that store. A forked child does not inherit the mapping. Returns MAP_FAILED
 * with errno on failure. `at`: the address to map at, replacing what is there, or NULL. fd -1: memory of the process. */
void *domain_map(enum persist_domain domain, void *at, size_t n, int prot, int fd, off_t offset);

/* The same with more `flags` of mmap(). `at`: as mmap() has it. */
void *domain_map_with(enum persist_domain domain, int flags, void *at, size_t n, int prot, int fd,
                      off_t offset);

/* Returns true if mappings in this domain go through the page cache (unless the domain was forced on a medium
 * of another kind). */
static inline bool domain_is_cached(enum persist_domain domain)
{
    return domain == PERSIST_DISK || domain == PERSIST_PROCESS;
}

/*
 * Makes whole pages of a mapping, which have space, ready to be stored to. Returns 0; -1 with ENOSPC.
 *
 * Allocated space is not enough: Linux may keep neighbouring pages of a file as one in the page cache (a
 * large folio). The first store to it takes space for all of its pages that are holes, and raises SIGBUS if
 * there is none. So the kernel is asked to populate the pages; it then fails with EFAULT instead. Kernels
 * without that call (before 5.14) have no such folios for writing, nor has persistent memory.
 */
int domain_make_storable(enum persist_domain domain, void *at, size_t n);

#endif
