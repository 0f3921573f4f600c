/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The way of most programs today. See plain.h. The file is its own, not the floor's: otherwise one side would
 * find the lines in the caches that the other has just written.
 */
#include "plain.h"

#include <cstring>

namespace bench
{

namespace
{

class Plain final : public Backend
{
  public:
    explicit Plain(size_t file_bytes) : data_("plain", file_bytes)
    {
    }

    const char *name() const override
    {
        return "memcpy";
    }

    const char *guarantee() const override
    {
        return "promises nothing: not durable, a kill tears it";
    }

    void write(const char *source, const Write *writes, size_t count) override
    {
        for (const Write *w = writes; w < writes + count; w++)
            std::memcpy(data_.at(w->offset), source + w->source, w->bytes);
    }

    void read(void *dst, uint64_t offset, size_t n) override
    {
        std::memcpy(dst, data_.at(offset), n);
    }

  private:
    MappedFile data_;
};

} // namespace

std::unique_ptr<Backend> make_plain(size_t file_bytes)
{
    return std::make_unique<Plain>(file_bytes);
}

} // namespace bench
