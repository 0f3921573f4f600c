/* SPDX-License-Identifier: BSD-3-Clause */
#include "media.h"

#include "../bench.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fcntl.h>
#include <libpmem.h>
#include <mutex>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace engine
{

namespace
{

constexpr size_t LINE = 64, PAGE = 4096;

/* ---- Counts: each thread has its own, which are added when it ends. ---- */

struct Counter;
std::mutex lock;
std::vector<Counter *> living;
Counts of_the_dead;

struct Counter {
    std::atomic<uint64_t> lines{0}, fences{0};

    Counter()
    {
        const std::lock_guard<std::mutex> hold(lock);
        living.push_back(this);
    }

    ~Counter()
    {
        const std::lock_guard<std::mutex> hold(lock);
        of_the_dead.lines += lines;
        of_the_dead.fences += fences;
        living.erase(std::find(living.begin(), living.end(), this));
    }

    /* Only this thread stores, so there is no need for a locked instruction. */
    static void add(std::atomic<uint64_t> &to, uint64_t n)
    {
        to.store(to.load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
    }
};

thread_local Counter counter;

/* ---- Charges ---- */

unsigned ns_line, ns_fence;

void spin(uint64_t ns)
{
    const auto end = std::chrono::steady_clock::now() + std::chrono::nanoseconds(ns);
    while (std::chrono::steady_clock::now() < end)
        __builtin_ia32_pause();
}

void pay_lines(const void *at, size_t n)
{
    const auto first = reinterpret_cast<uintptr_t>(at) / LINE;
    const uint64_t lines = (reinterpret_cast<uintptr_t>(at) + n + LINE - 1) / LINE - first;
    Counter::add(counter.lines, lines);
    if (__builtin_expect(ns_line != 0, 0))
        spin(lines * ns_line);
}

/* ---- Disk: what a thread's next fence has to sync. ---- */

struct Span {
    uintptr_t first, end;
};
thread_local std::vector<Span> dirty;

void note(const void *at, size_t n)
{
    const auto first = reinterpret_cast<uintptr_t>(at) / PAGE * PAGE,
               end = (reinterpret_cast<uintptr_t>(at) + n + PAGE - 1) / PAGE * PAGE;
    if (!dirty.empty() && first <= dirty.back().end && first >= dirty.back().first)
        dirty.back().end = std::max(dirty.back().end, end);
    else
        dirty.push_back({first, end});
}

} // namespace

void (*watcher)(Step step, const void *at, size_t bytes);

Counts counts()
{
    const std::lock_guard<std::mutex> hold(lock);
    Counts all = of_the_dead;
    for (const Counter *one : living) {
        all.lines += one->lines;
        all.fences += one->fences;
    }
    all.bytes = all.lines * LINE;
    return all;
}

void charge(unsigned line, unsigned fence)
{
    ns_line = line;
    ns_fence = fence;
}

void Medium::copy(void *dst, const void *src, size_t n) const
{
    if (__builtin_expect(watcher != nullptr, 0))
        watcher(Step::copy, dst, n);
    if (domain_ == Domain::pmem) {
        pmem_memcpy(dst, src, n, PMEM_F_MEM_NODRAIN | PMEM_F_MEM_NONTEMPORAL);
        pay_lines(dst, n);
        return;
    }
    std::memcpy(dst, src, n);
    if (domain_ == Domain::disk)
        note(dst, n);
}

void Medium::flush(const void *at, size_t n) const
{
    if (__builtin_expect(watcher != nullptr, 0))
        watcher(Step::flush, at, n);
    if (domain_ == Domain::pmem) {
        pmem_flush(at, n);
        pay_lines(at, n);
    } else if (domain_ == Domain::disk) {
        note(at, n);
    }
}

void Medium::fence() const
{
    if (__builtin_expect(watcher != nullptr, 0))
        watcher(Step::fence, nullptr, 0);
    if (domain_ == Domain::pmem) {
        pmem_drain();
        Counter::add(counter.fences, 1);
        if (__builtin_expect(ns_fence != 0, 0))
            spin(ns_fence);
        return;
    }
    std::atomic_thread_fence(std::memory_order_release);
    if (domain_ == Domain::disk) {
        for (const Span &span : dirty)
            if (msync(reinterpret_cast<void *>(span.first), span.end - span.first, MS_SYNC) != 0)
                bench::fail("msync: %s", std::strerror(errno));
        dirty.clear();
    }
}

void Medium::store(uint64_t *word, uint64_t value) const
{
    __atomic_store_n(word, value, __ATOMIC_RELEASE);
    flush(word, sizeof(*word));
}

File::File(const std::string &path, size_t bytes) : bytes_(bytes)
{
    struct stat st;
    is_new_ = stat(path.c_str(), &st) != 0;
    fd_ = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd_ < 0 || ftruncate(fd_, static_cast<off_t>(bytes)) != 0)
        bench::fail("cannot make %s: %s", path.c_str(), std::strerror(errno));
    void *base = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
    if (base == MAP_FAILED)
        bench::fail("cannot map %s: %s", path.c_str(), std::strerror(errno));
    base_ = static_cast<char *>(base);
}

File::~File()
{
    munmap(base_, bytes_);
    close(fd_);
}

} // namespace engine
