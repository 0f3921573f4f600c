/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The cost of an atomic write with libpmemobj. See pmemobj.h. The file is one object in a pool that is a
 * little larger: heap, lanes and undo logs.
 */
#include "pmemobj.h"

#include <cstdio>
#include <cstring>
#include <libpmemobj.h>

namespace bench
{

namespace
{

constexpr size_t ALIGN = 4096;
constexpr size_t OVERHEAD = 32u << 20;

class Pmemobj final : public Backend
{
  public:
    explicit Pmemobj(size_t file_bytes)
    {
        std::string path = folder() + "/pmemobj";
        size_t pool_bytes = file_bytes + file_bytes / 64 + OVERHEAD;
        pool_ = pmemobj_create(path.c_str(), "ato-bench", pool_bytes, 0600);
        if (!pool_)
            fail("pmemobj_create: %s", pmemobj_errormsg());
        PMEMoid root = pmemobj_root(pool_, file_bytes + ALIGN); /* zeroed, hence touched */
        if (OID_IS_NULL(root))
            fail("pmemobj_root: %s", pmemobj_errormsg());
        auto base = reinterpret_cast<uintptr_t>(pmemobj_direct(root));
        data_ = reinterpret_cast<char *>((base + ALIGN - 1) / ALIGN * ALIGN);
    }

    ~Pmemobj() override
    {
        pmemobj_close(pool_);
        std::remove((folder() + "/pmemobj").c_str());
    }

    const char *name() const override
    {
        return "libpmemobj";
    }

    const char *guarantee() const override
    {
        return "atomic and durable";
    }

    void write(const char *source, const Write *writes, size_t count) override
    {
        for (const Write *w = writes; w < writes + count; w++)
            write_at_once(source, w, 1);
    }

    void write_at_once(const char *source, const Write *writes, size_t count) override
    {
        if (pmemobj_tx_begin(pool_, nullptr, TX_PARAM_NONE) != 0)
            fail("pmemobj_tx_begin: %s", pmemobj_errormsg());
        for (const Write *w = writes; w < writes + count; w++) {
            char *dst = data_ + w->offset;
            if (pmemobj_tx_add_range_direct(dst, w->bytes) != 0)
                fail("pmemobj_tx_add_range_direct: %s", pmemobj_errormsg());
            std::memcpy(dst, source + w->source, w->bytes);
        }
        pmemobj_tx_commit(); /* flushes the ranges, retires the undo log */
        if (pmemobj_tx_end() != 0)
            fail("pmemobj_tx_end: %s", pmemobj_errormsg());
    }

    void fill(const char *source, const Write *writes, size_t count) override
    {
        for (const Write *w = writes; w < writes + count; w++)
            std::memcpy(data_ + w->offset, source + w->source, w->bytes);
    }

    void read(void *dst, uint64_t offset, size_t n) override
    {
        std::memcpy(dst, data_ + offset, n);
    }

  private:
    PMEMobjpool *pool_;
    char *data_;
};

} // namespace

std::unique_ptr<Backend> make_pmemobj(size_t file_bytes)
{
    return std::make_unique<Pmemobj>(file_bytes);
}

} // namespace bench
