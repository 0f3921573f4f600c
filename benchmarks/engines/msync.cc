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
        const Span span = {offset, offset + n};
        if (each_)
            flush(span);
        else
            dirty_.mine().push_back(span);
    }

    void read(void *dst, uint64_t offset, size_t n) override
    {
        std::memcpy(dst, file_.at(offset), n);
    }

    void sync() override
    {
        for (const Span &span : dirty_.mine())
            flush(span);
        dirty_.mine().clear();
    }

  private:
    struct Span {
        uint64_t first, end;
    };

    void flush(const Span &span)
    {
        const uint64_t first = span.first / PAGE * PAGE, end = (span.end + PAGE - 1) / PAGE * PAGE;
        if (!kernel_flushes_) {
            medium_.flush(file_.at(span.first), span.end - span.first);
            persist_flush_lines(&lines_, file_.at(first), span.first - first);
            persist_flush_lines(&lines_, file_.at(span.end), end - span.end);
            medium_.fence();
        }
        if (msync(file_.at(first), end - first, MS_SYNC) != 0)
            bench::fail("msync: %s", std::strerror(errno));
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
