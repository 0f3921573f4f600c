/* SPDX-License-Identifier: BSD-3-Clause */
#include "media.h"

#include "../bench.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
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

constexpr size_t PAGE = 4096;

/* ---- Disk: what a thread's next fence has to sync: a range of each file, in which msync() finds what is dirty. ---- */

struct Span {
    uintptr_t first, end;
};

std::mutex lock;
std::vector<Span> files; /* mapped */
thread_local std::vector<Span> dirty, file_of_dirty;

void note(const void *at, size_t n)
{
    const Span pages = {reinterpret_cast<uintptr_t>(at) / PAGE * PAGE,
                        (reinterpret_cast<uintptr_t>(at) + n + PAGE - 1) / PAGE * PAGE};
    for (size_t i = 0; i < dirty.size(); i++)
        if (pages.first >= file_of_dirty[i].first && pages.end <= file_of_dirty[i].end) {
            dirty[i].first = std::min(dirty[i].first, pages.first);
            dirty[i].end = std::max(dirty[i].end, pages.end);
            return;
        }
    const std::lock_guard<std::mutex> hold(lock);
    Span of = pages;
    for (const Span &file : files)
        if (pages.first >= file.first && pages.end <= file.end)
            of = file;
    dirty.push_back(pages);
    file_of_dirty.push_back(of);
}

} // namespace

void (*watcher)(Step step, const void *at, size_t bytes);

const Meter *meter;

void Medium::copy(void *dst, const void *src, size_t n) const
{
    if (__builtin_expect(watcher != nullptr, 0))
        watcher(Step::copy, dst, n);
    if (domain_ == Domain::pmem) {
        pmem_memcpy(dst, src, n, PMEM_F_MEM_NODRAIN | PMEM_F_MEM_NONTEMPORAL);
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
        return;
    }
    std::atomic_thread_fence(std::memory_order_release);
    if (domain_ == Domain::disk) {
        for (const Span &span : dirty)
            if (msync(reinterpret_cast<void *>(span.first), span.end - span.first, MS_SYNC) != 0 &&
                errno != ENOMEM) /* unmapped by now */
                bench::fail("msync: %s", std::strerror(errno));
        dirty.clear();
        file_of_dirty.clear();
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
    const std::lock_guard<std::mutex> hold(lock);
    const auto first = reinterpret_cast<uintptr_t>(base_);
    files.push_back({first, first + (bytes + PAGE - 1) / PAGE * PAGE});
}

File::~File()
{
    {
        const std::lock_guard<std::mutex> hold(lock);
        const auto begins = [&](const Span &one) {
            return one.first == reinterpret_cast<uintptr_t>(base_);
        };
        files.erase(std::find_if(files.begin(), files.end(), begins));
    }
    munmap(base_, bytes_);
    close(fd_);
}

} // namespace engine
