/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How fast could an atomic write be? The floor of each domain, see floor.h.
 *
 *   pmem      pmem_memcpy_persist() of the bytes, then the words of the pages and one
 *             pmem_persist() of them: 8 bytes, or 16 for two neighbouring pages
 *   process   memcpy() of the bytes, then plain stores of the words
 *
 * The words lie where libato's bitmaps lie (the meta pages of a reflection file), so that they cost
 * the same cache lines and the same entries of the TLB.
 */
#include "floor.h"

#include "reflection/format/layout.h"

#include <cstring>
#include <libpmem.h>

namespace bench
{

namespace
{

class Floor : public Backend
{
  public:
    explicit Floor(size_t file_bytes)
        : data_("floor", file_bytes),
          words_("floor-words", layout_reflection_bytes(LAYOUT_DENSE, file_bytes))
    {
    }

    const char *name() const override
    {
        return "floor";
    }

    void read(void *dst, uint64_t offset, size_t n) override
    {
        std::memcpy(dst, data_.at(offset), n);
    }

  protected:
    /* Stores a word for each page of the write, and returns the first: they are neighbours, since
     * a write of several pages is aligned to its size. Volatile: these stores are the point. */
    volatile uint64_t *store_words(const Write &w)
    {
        static thread_local uint64_t value;
        uint64_t first = w.offset / PAGE_BYTES;
        auto word =
            reinterpret_cast<volatile uint64_t *>(words_.at(layout_word(LAYOUT_DENSE, first)));
        for (size_t i = 0; i < pages(w); i++)
            word[i] = ++value;
        return word;
    }

    static size_t pages(const Write &w)
    {
        return (w.offset % PAGE_BYTES + w.bytes + PAGE_BYTES - 1) / PAGE_BYTES;
    }

    MappedFile data_, words_;
};

class FloorPmem final : public Floor
{
  public:
    using Floor::Floor;

    const char *guarantee() const override
    {
        return "durable; a crash tears it";
    }

    void write(const char *source, const Write *writes, size_t count) override
    {
        for (const Write *w = writes; w < writes + count; w++) {
            pmem_memcpy_persist(data_.at(w->offset), source + w->source, w->bytes);
            volatile uint64_t *word = store_words(*w);
            pmem_persist(const_cast<uint64_t *>(word), 8 * pages(*w));
        }
    }
};

class FloorProcess final : public Floor
{
  public:
    using Floor::Floor;

    const char *guarantee() const override
    {
        return "survives the process; a kill tears it";
    }

    void write(const char *source, const Write *writes, size_t count) override
    {
        for (const Write *w = writes; w < writes + count; w++) {
            std::memcpy(data_.at(w->offset), source + w->source, w->bytes);
            store_words(*w);
        }
    }
};

} // namespace

std::unique_ptr<Backend> make_floor(Domain domain, size_t file_bytes)
{
    if (domain == Domain::pmem)
        return std::make_unique<FloorPmem>(file_bytes);
    return std::make_unique<FloorProcess>(file_bytes);
}

} // namespace bench
