/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * msync: stores to a shared mapping, then msync() of the pages. What programs do that map files; a crash tears it.
 *
 * On persistent memory the kernel flushes all lines of these pages. Where DRAM stands in for it (a tmpfs), msync() has nothing to
 * do, so they are flushed here; the system call stays. Only the lines that were written count (media.h). In domain process nothing
 * of this is needed, and the rest is raw.
 */
#include "engines.h"
#include "media.h"
#include "per_thread.h"

#include "../bench.h"

extern "C" {
#include "reflection/media/persist.h"
}

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <sys/mman.h>

namespace engine
{

namespace
{

constexpr uint64_t PAGE = 4096;

class Msync final : public Base<Msync>
{
  public:
    explicit Msync(const Options &options)
        : medium_(options.domain), each_(options.unit == Unit::write),
          file_(options.folder + "/file", options.bytes)
    {
        persist_init(&lines_, PERSIST_PMEM);
        /* A file system that offers this maps the memory itself. */
        void *direct =
            mmap(nullptr, PAGE, PROT_READ, MAP_SHARED_VALIDATE | MAP_SYNC, file_.descriptor(), 0);
        kernel_flushes_ = options.domain != Domain::pmem || direct != MAP_FAILED;
        if (direct != MAP_FAILED)
            munmap(direct, PAGE);
    }

    void write(uint64_t offset, const void *src, size_t n) override
    {
        std::memcpy(file_.at(offset), src, n);
        Span span = {offset, offset + n};
        if (each_)
            flush(&span, 1);
        else
            dirty_.mine().push_back(span);
    }

    void read(void *dst, uint64_t offset, size_t n) override
    {
        std::memcpy(dst, file_.at(offset), n);
    }

    void sync() override
    {
        std::vector<Span> &dirty = dirty_.mine();
        if (!dirty.empty())
            flush(dirty.data(), dirty.size());
        dirty.clear();
    }

  private:
    struct Span {
        uint64_t first, end;
    };

    static uint64_t up(uint64_t offset)
    {
        return (offset + PAGE - 1) / PAGE * PAGE;
    }

    /* One call for all, which finds what is dirty between the first and the last. */
    void flush(Span *spans, size_t n)
    {
        uint64_t first = spans[0].first, end = spans[0].end;
        for (const Span *one = spans; one < spans + n; one++) {
            first = std::min(first, one->first);
            end = std::max(end, one->end);
        }
        first = first / PAGE * PAGE;
        if (!kernel_flushes_)
            flush_pages(spans, n);
        if (msync(file_.at(first), up(end) - first, MS_SYNC) != 0)
            bench::fail("msync: %s", std::strerror(errno));
    }

    /* Each page of the spans, and each line of it once. */
    void flush_pages(Span *spans, size_t n)
    {
        const auto flush_clean = [&](uint64_t from, uint64_t to) {
            persist_flush_lines(&lines_, file_.at(from), to - from);
        };
        if (n > 1)
            std::sort(spans, spans + n,
                      [](const Span &a, const Span &b) { return a.first < b.first; });
        uint64_t done = spans[0].first / PAGE * PAGE;
        for (const Span *one = spans; one < spans + n; one++) {
            if (one->first >= up(done)) {
                flush_clean(done, up(done));
                done = one->first / PAGE * PAGE;
            }
            if (one->first > done)
                flush_clean(done, one->first);
            const uint64_t from = std::max(done, one->first);
            if (one->end > from)
                medium_.flush(file_.at(from), one->end - from);
            done = std::max(from, one->end);
        }
        flush_clean(done, up(done));
        medium_.fence();
    }

    Medium medium_;
    struct persist lines_;
    bool each_, kernel_flushes_;
    File file_;
    PerThread<std::vector<Span>> dirty_;
};

} // namespace

const Kind MSYNC = {
    "msync",
    "stores to a shared mapping, then msync()",
    [](const Options &options) { return options.domain != Domain::process; },
    [](const Options &) { return Promise::durable; },
    [](const Options &options) -> std::unique_ptr<Engine> {
        return std::make_unique<Msync>(options);
    },
};

} // namespace engine
