/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The meter of media.h: counts each line that is flushed or stored past the caches and each fence, and makes them take longer.
 *
 * It stands between the engines and what they flush by:
 *
 *   libpmem   by functions of the same names, which the linker finds first: for the engines written here, and libpmemobj
 *   libato    by the table of its seam
 *
 * Not counted, nor charged: what the kernel does (msync() and pwrite() where the file system maps the memory itself; file sizes and
 * space), stores that are not flushed (libato's words in domain eadr), and the flush of lines that hold nothing new (msync.cc).
 */
#include "media.h"

extern "C" {
#include "reflection/media/persist.h"
}

#include "../bench.h"

#include <deque>
#include <dlfcn.h>
#include <libpmem.h>
#include <mutex>
#include <time.h>
#include <x86intrin.h>

namespace engine
{

namespace
{

constexpr uintptr_t LINE = 64;

/* Of one thread: only it stores there. */
struct Tally {
    uint64_t lines = 0, fences = 0;
};

std::mutex lock;
std::deque<Tally> tallies; /* of all threads, also of those that have ended */
thread_local Tally *mine;

Tally &tally()
{
    if (__builtin_expect(!mine, 0)) {
        const std::lock_guard<std::mutex> hold(lock);
        mine = &tallies.emplace_back();
    }
    return *mine;
}

void add(uint64_t *to, uint64_t n)
{
    __atomic_store_n(to, *to + n, __ATOMIC_RELAXED);
}

Counts counts()
{
    const std::lock_guard<std::mutex> hold(lock);
    Counts all;
    for (const Tally &one : tallies) {
        all.lines += __atomic_load_n(&one.lines, __ATOMIC_RELAXED);
        all.fences += __atomic_load_n(&one.fences, __ATOMIC_RELAXED);
    }
    all.bytes = all.lines * LINE;
    return all;
}

/* ---- Charges: in ticks of the CPU's time stamp ---- */

uint64_t ticks_line, ticks_fence;

double nanoseconds()
{
    timespec now;
    clock_gettime(CLOCK_MONOTONIC_RAW, &now);
    return static_cast<double>(now.tv_sec) * 1e9 + static_cast<double>(now.tv_nsec);
}

double measure_ticks() /* of a nanosecond */
{
    const double begin = nanoseconds();
    const uint64_t first = __rdtsc();
    double now = begin;
    while (now < begin + 2e7)
        now = nanoseconds();
    return static_cast<double>(__rdtsc() - first) / (now - begin);
}

void charge(unsigned ns_line, unsigned ns_fence)
{
    static const double per_ns = measure_ticks();
    ticks_line = static_cast<uint64_t>(ns_line * per_ns);
    ticks_fence = static_cast<uint64_t>(ns_fence * per_ns);
}

void wait(uint64_t ticks)
{
    if (!ticks)
        return;
    const uint64_t begin = __rdtsc();
    while (__rdtsc() - begin < ticks)
        ;
}

void pay_lines(uint64_t n)
{
    add(&tally().lines, n);
    wait(n * ticks_line);
}

void pay_range(const void *at, size_t n)
{
    const auto first = reinterpret_cast<uintptr_t>(at);
    if (n)
        pay_lines((first + n + LINE - 1) / LINE - first / LINE);
}

void pay_fence()
{
    add(&tally().fences, 1);
    wait(ticks_fence);
}

/* ---- libato ---- */

void scatter(const struct persist *p, char *o, char *r, const char *src, uint64_t bitmap,
             uint64_t mask, bool cold)
{
    persist_real.scatter(p, o, r, src, bitmap, mask, cold);
    if (persist_streams(p))
        pay_lines(static_cast<unsigned>(__builtin_popcountll(mask)));
}

void copy(const struct persist *p, void *dst, const void *src, size_t n)
{
    persist_real.copy(p, dst, src, n);
    if (persist_streams(p))
        pay_range(dst, n);
}

int flush_any(const struct persist *p, const void *at, size_t n)
{
    const int result = persist_real.flush_any(p, at, n);
    if (p->domain == PERSIST_PMEM)
        pay_range(at, n);
    return result;
}

void fence(const struct persist *p)
{
    persist_real.fence(p);
    if (persist_streams(p))
        pay_fence();
}

void fence_threads(const struct persist *p)
{
    persist_real.fence_threads(p);
    if (persist_streams(p))
        pay_fence();
}

struct persist_ops of_libato;

/* ---- libpmem ---- */

template <class Function> Function *next(const char *name)
{
    void *found = dlsym(RTLD_NEXT, name);
    if (!found)
        bench::fail("libpmem has no %s", name);
    return reinterpret_cast<Function *>(found);
}

struct {
    decltype(pmem_flush) *flush;
    decltype(pmem_deep_flush) *deep_flush;
    decltype(pmem_drain) *drain;
    decltype(pmem_memmove) *memmove;
    decltype(pmem_memset) *memset;
} real;

const Meter the_meter = {counts, charge};

/* Before main(), after libpmem's own. */
__attribute__((constructor)) void stand_between()
{
    real = {next<decltype(pmem_flush)>("pmem_flush"),
            next<decltype(pmem_deep_flush)>("pmem_deep_flush"),
            next<decltype(pmem_drain)>("pmem_drain"), next<decltype(pmem_memmove)>("pmem_memmove"),
            next<decltype(pmem_memset)>("pmem_memset")};
    of_libato = persist_real;
    of_libato.scatter = scatter;
    of_libato.copy = copy;
    of_libato.flush_any = flush_any;
    of_libato.fence = fence;
    of_libato.fence_threads = fence_threads;
    persist_ops = &of_libato;
    meter = &the_meter;
}

void pay_stores(const void *at, size_t n, unsigned flags)
{
    if (flags & PMEM_F_MEM_NOFLUSH)
        return;
    pay_range(at, n);
    if (!(flags & PMEM_F_MEM_NODRAIN))
        pmem_drain();
}

} // namespace

} // namespace engine

/* libpmem's functions. None of the real ones that are called here calls another one of them. */
extern "C" {

void pmem_flush(const void *at, size_t n)
{
    engine::real.flush(at, n);
    engine::pay_range(at, n);
}

void pmem_deep_flush(const void *at, size_t n)
{
    engine::real.deep_flush(at, n);
    engine::pay_range(at, n);
}

void pmem_drain()
{
    engine::real.drain();
    engine::pay_fence();
}

void pmem_persist(const void *at, size_t n)
{
    pmem_flush(at, n);
    pmem_drain();
}

void *pmem_memmove(void *dst, const void *src, size_t n, unsigned flags)
{
    engine::real.memmove(dst, src, n, flags | PMEM_F_MEM_NODRAIN);
    engine::pay_stores(dst, n, flags);
    return dst;
}

void *pmem_memcpy(void *dst, const void *src, size_t n, unsigned flags)
{
    return pmem_memmove(dst, src, n, flags);
}

void *pmem_memset(void *dst, int c, size_t n, unsigned flags)
{
    engine::real.memset(dst, c, n, flags | PMEM_F_MEM_NODRAIN);
    engine::pay_stores(dst, n, flags);
    return dst;
}

void *pmem_memcpy_persist(void *dst, const void *src, size_t n)
{
    return pmem_memmove(dst, src, n, 0);
}

void *pmem_memcpy_nodrain(void *dst, const void *src, size_t n)
{
    return pmem_memmove(dst, src, n, PMEM_F_MEM_NODRAIN);
}
}
