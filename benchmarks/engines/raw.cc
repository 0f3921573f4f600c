/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * raw: the bytes to their place, past the caches, and a fence. What durability costs by itself; a crash tears it.
 */
#include "engines.h"
#include "media.h"

#include <cstring>

namespace engine
{

namespace
{

class Raw final : public Base<Raw>
{
  public:
    explicit Raw(const Options &options)
        : medium_(options.domain), each_(options.unit == Unit::write),
          file_(options.folder + "/file", options.bytes)
    {
    }

    void write(uint64_t offset, const void *src, size_t n) override
    {
        medium_.copy(file_.at(offset), src, n);
        if (each_)
            medium_.fence();
    }

    void read(void *dst, uint64_t offset, size_t n) override
    {
        std::memcpy(dst, file_.at(offset), n);
    }

    void sync() override
    {
        medium_.fence();
    }

  private:
    Medium medium_;
    bool each_;
    File file_;
};

} // namespace

const Kind RAW = {
    "raw",
    "the bytes to their place, past the caches, and a fence",
    [](const Options &) { return true; },
    [](const Options &) { return Promise::durable; },
    [](const Options &options) -> std::unique_ptr<Engine> {
        return std::make_unique<Raw>(options);
    },
};

} // namespace engine
