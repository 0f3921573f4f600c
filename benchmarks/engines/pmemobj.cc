/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * pmemobj: an undo-log transaction of libpmemobj around a copy, which libpmemobj makes past the caches from 256 bytes on. The file is
 * one object in a pool that is a little larger: heap, lanes and undo logs.
 *
 * libpmemobj flushes lines only of memory that it takes for persistent, and calls msync() for other memory: where DRAM stands in
 * for it, the process has to be started with PMEM_IS_PMEM_FORCE=1. In domain process nothing has to be flushed (PMEM_NO_FLUSH=1).
 */
#include "engines.h"
#include "per_thread.h"

#include "../bench.h"

#include <cstring>
#include <libpmemobj.h>
#include <unistd.h>

namespace engine
{

namespace
{

constexpr size_t PAGE = 4096, OVERHEAD = 32 << 20;

class Pmemobj final : public Base<Pmemobj>
{
  public:
    explicit Pmemobj(const Options &options)
        : each_(options.unit == Unit::write), on_disk_(options.domain == Domain::disk)
    {
        const std::string path = options.folder + "/pool";
        pool_ = access(path.c_str(), F_OK) == 0
                    ? pmemobj_open(path.c_str(), "evaluate") /* recovers it */
                    : pmemobj_create(path.c_str(), "evaluate",
                                     options.bytes + options.bytes / 64 + OVERHEAD, 0600);
        if (!pool_)
            bench::fail("%s: %s", path.c_str(), pmemobj_errormsg());
        const PMEMoid root =
            pmemobj_root(pool_, options.bytes + PAGE); /* of zeros when it is new */
        if (OID_IS_NULL(root))
            bench::fail("pmemobj_root: %s", pmemobj_errormsg());
        const auto at = reinterpret_cast<uintptr_t>(pmemobj_direct(root));
        data_ = reinterpret_cast<char *>((at + PAGE - 1) / PAGE * PAGE);
    }

    ~Pmemobj() override
    {
        if (open_.mine()) {
            pmemobj_tx_abort(ECANCELED);
            (void)pmemobj_tx_end();
        }
        pmemobj_close(pool_);
    }

    void write(uint64_t offset, const void *src, size_t n) override
    {
        begin();
        char *const at = data_ + offset;
        if (pmemobj_tx_xadd_range_direct(at, n, on_disk_ ? 0 : POBJ_XADD_NO_FLUSH) != 0)
            bench::fail("pmemobj_tx_xadd_range_direct: %s", pmemobj_errormsg());
        if (on_disk_) /* the commit syncs the range */
            std::memcpy(at, src, n);
        else /* past the caches if that is faster; the commit drains */
            pmemobj_memcpy(pool_, at, src, n, PMEMOBJ_F_MEM_NODRAIN);
        if (each_)
            commit();
    }

    void read(void *dst, uint64_t offset, size_t n) override
    {
        std::memcpy(dst, data_ + offset, n);
    }

    void sync() override
    {
        if (open_.mine())
            commit();
    }

  private:
    void begin()
    {
        if (!each_) {
            if (open_.mine())
                return;
            open_.mine() = true;
        }
        if (pmemobj_tx_begin(pool_, nullptr, TX_PARAM_NONE) != 0)
            bench::fail("pmemobj_tx_begin: %s", pmemobj_errormsg());
    }

    /* Flushes the ranges, retires the undo log. */
    void commit()
    {
        pmemobj_tx_commit();
        if (pmemobj_tx_end() != 0)
            bench::fail("pmemobj_tx_end: %s", pmemobj_errormsg());
        if (!each_)
            open_.mine() = false;
    }

    PMEMobjpool *pool_;
    char *data_;
    bool each_, on_disk_;
    PerThread<bool> open_; /* has a transaction */
};

} // namespace

const Kind PMEMOBJ = {
    "pmemobj",
    "an undo-log transaction of libpmemobj",
    [](const Options &) { return true; },
    [](const Options &) { return Promise::atomic; },
    [](const Options &options) -> std::unique_ptr<Engine> {
        return std::make_unique<Pmemobj>(options);
    },
};

} // namespace engine
