/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * pwrite: pwrite() and fdatasync(), pread() for reads. What programs do that map nothing; a crash tears it.
 *
 * On persistent memory the kernel stores past the caches. Where DRAM stands in for it (a tmpfs), it does not, so the lines are
 * flushed here through a mapping of the file; the system calls stay. In domain process there is no fdatasync().
 */
#include "engines.h"
#include "media.h"
#include "per_thread.h"

#include "../bench.h"

#include <cerrno>
#include <cstring>
#include <sys/mman.h>
#include <unistd.h>

namespace engine
{

namespace
{

constexpr size_t PAGE = 4096;

class Pwrite final : public Base<Pwrite>
{
  public:
    explicit Pwrite(const Options &options)
        : medium_(options.domain), each_(options.unit == Unit::write),
          file_(options.folder + "/file", options.bytes)
    {
        void *direct =
            mmap(nullptr, PAGE, PROT_READ, MAP_SHARED_VALIDATE | MAP_SYNC, file_.descriptor(), 0);
        kernel_flushes_ = options.domain != Domain::pmem || direct != MAP_FAILED;
        if (direct != MAP_FAILED)
            munmap(direct, PAGE);
    }

    void write(uint64_t offset, const void *src, size_t n) override
    {
        if (pwrite(file_.descriptor(), src, n, static_cast<off_t>(offset)) !=
            static_cast<ssize_t>(n))
            bench::fail("pwrite: %s", std::strerror(errno));
        if (!kernel_flushes_)
            medium_.flush(file_.at(offset), n);
        if (each_)
            finish();
        else
            wrote_.mine() = true;
    }

    void read(void *dst, uint64_t offset, size_t n) override
    {
        if (pread(file_.descriptor(), dst, n, static_cast<off_t>(offset)) !=
            static_cast<ssize_t>(n))
            bench::fail("pread: %s", std::strerror(errno));
    }

    void sync() override
    {
        if (wrote_.mine())
            finish();
        wrote_.mine() = false;
    }

  private:
    void finish()
    {
        if (!kernel_flushes_)
            medium_.fence();
        if (medium_.domain() != Domain::process && fdatasync(file_.descriptor()) != 0)
            bench::fail("fdatasync: %s", std::strerror(errno));
    }

    Medium medium_;
    bool each_, kernel_flushes_;
    File file_;
    PerThread<bool> wrote_;
};

} // namespace

const Kind PWRITE = {
    "pwrite",
    "pwrite(), then fdatasync()",
    [](const Options &) { return true; },
    [](const Options &) { return Promise::durable; },
    [](const Options &options) -> std::unique_ptr<Engine> {
        return std::make_unique<Pwrite>(options);
    },
};

} // namespace engine
