/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * floor: what no engine that keeps a validity word a page can do without, and nothing else. It is not atomic: it overwrites the
 * only copy. The ratios of the evaluation are to this.
 *
 *   pmem      the bytes past the caches, a fence; then 8 bytes for each page, flushed, and a fence
 *   process   memcpy() of the bytes, then the words
 *   disk      the bytes and the words, one after the other, into a file of 4 MiB that is overwritten in a circle, and one
 *             fdatasync(): what an engine with a log has to do. The file itself is only in the page cache
 *
 * The words lie where libato's bitmaps lie (the meta pages of a reflection file), so that they cost the same cache lines and the
 * same entries of the TLB.
 */
#include "engines.h"
#include "media.h"
#include "per_thread.h"

#include "../bench.h"
#include "reflection/format/layout.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <sys/uio.h>
#include <unistd.h>

namespace engine
{

namespace
{

constexpr size_t CIRCLE = 4 << 20;

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
            if (pwrite(circle_.descriptor(), zeros.data(), CIRCLE, 0) != CIRCLE ||
                fsync(circle_.descriptor()) != 0)
                bench::fail("cannot write the circle: %s", std::strerror(errno));
        }
    }

    void write(uint64_t offset, const void *src, size_t n) override
    {
        const Pages pages = {offset / PAGE_BYTES, (offset + n - 1) / PAGE_BYTES + 1};
        if (disk())
            std::memcpy(file_.at(offset), src, n);
        else
            medium_.copy(file_.at(offset), src, n);
        if (!each_)
            note(pages);
        if (disk())
            append(src, n, each_ ? pages.end - pages.first : 0);
        else if (each_)
            medium_.fence();
        if (each_)
            finish(&pages, 1);
    }

    void read(void *dst, uint64_t offset, size_t n) override
    {
        std::memcpy(dst, file_.at(offset), n);
    }

    void sync() override
    {
        std::vector<Pages> &written = written_.mine();
        if (written.empty())
            return;
        uint64_t words = 0;
        for (const Pages &pages : written)
            words += pages.end - pages.first;
        if (disk())
            append(nullptr, 0, words);
        else
            medium_.fence();
        finish(written.data(), written.size());
        written.clear();
    }

  private:
    struct Pages {
        uint64_t first, end;
    };

    /* Neighbours become one range: their words share lines, which are flushed once. */
    void note(const Pages &pages)
    {
        std::vector<Pages> &written = written_.mine();
        if (!written.empty() && pages.first >= written.back().first &&
            pages.first <= written.back().end)
            written.back().end = std::max(written.back().end, pages.end);
        else
            written.push_back(pages);
    }

    bool disk() const
    {
        return medium_.domain() == Domain::disk;
    }

    void finish(const Pages *pages, size_t n)
    {
        if (disk()) {
            if (fdatasync(circle_.descriptor()) != 0)
                bench::fail("fdatasync: %s", std::strerror(errno));
            return;
        }
        for (size_t i = 0; i < n; i++)
            store_words(pages[i].first, pages[i].end);
        medium_.fence();
    }

    /* Volatile: these stores are the point. The words of neighbouring pages are neighbours, but for those of each 512th. */
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
            medium_.flush(at, n * 8);
        }
    }

    void append(const void *src, size_t n, size_t words)
    {
        static thread_local uint64_t some[CIRCLE / PAGE_BYTES];
        words = std::min(words, std::size(some));
        const iovec parts[] = {{const_cast<void *>(src), n}, {some, 8 * words}};
        const uint64_t bytes = n + 8 * words, end = end_.fetch_add(bytes) % CIRCLE;
        if (pwritev(circle_.descriptor(), parts, 2,
                    static_cast<off_t>(end + bytes <= CIRCLE ? end : 0)) !=
            static_cast<ssize_t>(bytes))
            bench::fail("pwritev: %s", std::strerror(errno));
    }

    Medium medium_;
    bool each_;
    File file_, words_, circle_;
    std::atomic<uint64_t> end_{0};
    PerThread<std::vector<Pages>> written_; /* since the last sync() */
};

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
