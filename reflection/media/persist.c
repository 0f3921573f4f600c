/* SPDX-License-Identifier: BSD-3-Clause */
#include "reflection/media/persist.h"

#include <cpuid.h>
#include <linux/membarrier.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifdef ATO_SEAM
__thread const char *seam_site;
void (*seam_hook)(enum seam_point point, const void *about);
const struct persist_ops *persist_ops = &persist_real;
#endif

const struct persist_ops persist_real = {
    .scatter = persist_real_scatter,
    .copy = persist_real_copy,
    .store_word = persist_real_store_word,
    .store_pair = persist_real_store_pair,
    .flip_rtm = persist_real_flip_rtm,
    .flush_data = persist_real_flush_data,
    .flush_any = persist_real_flush_any,
    .fence = persist_real_fence,
    .fence_threads = persist_real_fence_threads,
};

void persist_init(struct persist *p, enum persist_domain domain)
{
    p->domain = domain;
    p->kernel = copy_best();
    unsigned eax, ebx = 0, ecx, edx;
    const bool has = domain == PERSIST_PMEM && __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx);
    p->clwb = has && (ebx & bit_CLWB);
    p->clflushopt = has && (ebx & bit_CLFLUSHOPT);
}

enum { LINE = 64 };

void persist_flush_lines(const struct persist *p, const void *addr, size_t n)
{
    const uintptr_t end = (uintptr_t)addr + n;
    for (uintptr_t at = (uintptr_t)addr & ~(uintptr_t)(LINE - 1); at < end; at += LINE)
        if (p->clwb)
            __asm__ volatile("clwb %0" : : "m"(*(const char *)at) : "memory");
        else if (p->clflushopt) /* AMD's first EPYC has this only */
            __asm__ volatile("clflushopt %0" : : "m"(*(const char *)at) : "memory");
        else
            __asm__ volatile("clflush %0" : : "m"(*(const char *)at) : "memory");
}

static bool have_barrier;

/* When the library is loaded, before other threads store data. */
static void __attribute__((constructor(101))) set_up(void)
{
    have_barrier = syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, 0, 0) == 0;
}

bool persist_barrier(void)
{
    return have_barrier && syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0) == 0;
}

/* A full barrier on every CPU that runs a thread of a registered process; a thread that does not run passed a
 * barrier when it stopped. As sfence does, it drains non-temporal stores and orders flushes. */
void persist_real_fence_threads(const struct persist *p)
{
    (void)p;
    (void)persist_barrier();
}

/* A page that the kernel failed to write back is marked clean and keeps its bytes: another msync() would do
 * nothing and succeed. Storing what the page holds makes it dirty again. */
int persist_msync(const void *addr, size_t n, bool anew)
{
    const uintptr_t begin = (uintptr_t)addr & ~(uintptr_t)4095,
                    end = ((uintptr_t)addr + n + 4095) & ~(uintptr_t)4095;
    for (uintptr_t at = begin; anew && at < end; at += 4096)
        __atomic_fetch_add((uint64_t *)at, 0, __ATOMIC_RELAXED);
    return msync((void *)begin, end - begin, MS_SYNC);
}
