/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * floor: what no engine that keeps a validity word a page can do without, and nothing else. It is not atomic: it overwrites the
 * only copy. The ratios of the evaluation are to this.
 *
 *   pmem      the bytes past the caches, a fence; then 8 bytes for each page, flushed, and a fence
 *   process   memcpy() of the bytes, then the words
 *   disk      the bytes and the words, one after the other, into a file of a MiB that is overwritten in a circle, and one
 *             fdatasync(): what an engine with a log has to do. The file itself is only in the page cache. What fills the
 *             circle in one call, which only long fills do, costs no more than the circle
 *
 * The words lie where libato's bitmaps lie (the meta pages of a reflection file), so that they cost the same cache lines and the
 * same entries of the TLB.
 */
#include "engines.h"
#include "media.h"

#include "../bench.h"
#include "reflection/format/layout.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <unistd.h>

namespace engine
{

namespace
{

constexpr size_t CIRCLE = 1 << 20;

class Floor final : public Base<Floor>
{
  public:
    explicit Floor(const Options &options)
        : medium_(options.domain), each_(options.unit == Unit::write),
          file_(options.folder + "/file", options.bytes),
          words_(options.folder + "/words", layout_reflection_bytes(LAYOUT_DENSE, options.bytes)),
          circle_(options.folder + "/circle", CIRCLE)
    {
        if (disk() && circle_.is_new()) {
            const std::vector<char> zeros(CIRCLE);
            append(zeros.data(), CIRCLE);
            synchronize();
        }
    }

    void write(uint64_t offset, const void *src, size_t n) override
    {
        if (disk()) {
            std::memcpy(file_.at(offset), src, n);
            append(src, n);
        } else {
            medium_.copy(file_.at(offset), src, n);
        }
        const uint64_t first = offset / PAGE_BYTES, end = (offset + n - 1) / PAGE_BYTES + 1;
        if (each_)
            finish(first, end);
        else
            written.push_back({first, end});
    }

    void read(void *dst, uint64_t offset, size_t n) override
    {
        std::memcpy(dst, file_.at(offset), n);
    }

    void sync() override
    {
        if (written.empty())
            return;
        if (!disk())
            medium_.fence();
        for (const Pages &pages : written)
            store_words(pages.first, pages.end);
        written.clear();
        end_unit();
    }

  private:
    struct Pages {
        uint64_t first, end;
    };
    static thread_local std::vector<Pages> written; /* since the thread's last sync() */

    bool disk() const
    {
        return medium_.domain() == Domain::disk;
    }

    void finish(uint64_t first, uint64_t end)
    {
        if (!disk())
            medium_.fence();
        store_words(first, end);
        end_unit();
    }

    void end_unit()
    {
        if (disk())
            synchronize();
        else
            medium_.fence();
    }

    /* Words of up to a meta page's worth of pages are neighbours. Volatile: these stores are the point. */
    void store_words(uint64_t first, uint64_t end)
    {
        static thread_local uint64_t value;
        while (first < end) {
            char *at = words_.at(layout_word(LAYOUT_DENSE, first));
            auto *word = reinterpret_cast<volatile uint64_t *>(at);
            size_t n = 0;
            do {
                word[n++] = ++value;
                first++;
            } while (first < end && words_.at(layout_word(LAYOUT_DENSE, first)) == at + n * 8);
            if (disk())
                append(at, n * 8);
            else
                medium_.flush(at, n * 8);
        }
    }

    void append(const void *src, size_t n)
    {
        n = std::min(n, CIRCLE);
        uint64_t at = end_.fetch_add(n) % CIRCLE;
        if (at + n > CIRCLE)
            at = 0;
        if (pwrite(circle_.descriptor(), src, n, static_cast<off_t>(at)) != static_cast<ssize_t>(n))
            bench::fail("pwrite: %s", std::strerror(errno));
    }

    void synchronize() const
    {
        if (fdatasync(circle_.descriptor()) != 0)
            bench::fail("fdatasync: %s", std::strerror(errno));
    }

    Medium medium_;
    bool each_;
    File file_, words_, circle_;
    std::atomic<uint64_t> end_{0};
};

thread_local std::vector<Floor::Pages> Floor::written;

} // namespace

const Kind FLOOR = {
    "floor",
    "the bytes and a word for each page, each made durable once: the least that an engine with a "
    "validity word a page does",
    [](const Options &) { return true; },
    [](const Options &options) {
        return options.domain == Domain::disk ? Promise::none : Promise::durable;
    },
    [](const Options &options) -> std::unique_ptr<Engine> {
        return std::make_unique<Floor>(options);
    },
};

} // namespace engine
