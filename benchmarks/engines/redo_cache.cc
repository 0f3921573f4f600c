/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * redo-cache: the scheme of vNVML (Chou, Jung, Reddy, Gratz and Voigt): a small persistent memory takes the writes of a large,
 * slow file as a redo log, and the program reads from DRAM.
 *
 * In vNVML a file is mapped privately: pages that were written are in DRAM, copied by the kernel at the first write. A transaction
 * appends its writes to pages of a log, links the log to the list of committed ones, which makes it durable, and copies the data
 * to the private mapping. In the background the committed logs are copied on, in their order, and their pages become free.
 * A writer that finds no free page of the log waits. Recovery copies what is in the list to the file.
 *
 * Here:
 *   log      pages of 4 KiB, a pool for all threads. Each thread has a chain of them with its entries (offset, length, number of
 *            the unit, data; whole cache lines) one after the other; the last line of a page names the next page.
 *   end      a word for each thread: the end of what is committed in its chain
 *   start    a word for each thread, twice: the start of what is not yet in the file; another word says which of the two counts
 *
 * A unit takes a number that grows over all threads, copies its data into entries, fence, moves its end, fence. The background
 * thread runs when 30 % of the log is in use: it takes the committed units of all threads, copies them to the file in the order of
 * their numbers, fence, moves the starts of all threads, which one word commits, and frees the pages.
 *   Recovery does the same with all that lies between the starts and the ends.
 *   The starts move together, as units of two threads may have changed the same bytes: an older one must not be left in the log
 * when the newer one has gone.
 *
 * What differs from the paper:
 *   - Its cache of pages in the persistent memory, between log and file, is left out, as in its way of sharing a file: if the file is
 *     in persistent memory too, that would be one more copy of each byte; if not, the log holds the data until they are written
 *     back, and a page that was changed many times meanwhile is written back once.
 *   - The writes of a unit go to the log when it ends, not one by one: a unit is never stopped half way by a log that is full, so
 *     none has to be aborted. A unit that does not fit the log is refused. The DRAM copy has a write at once, not at the end of the
 *     unit, as a thread of the evaluation sees what it has written.
 *   - One list of committed logs, which all threads append to, has become a chain a thread and a number a unit; threads meet only
 *     when they need a page of the log. A unit takes its lines of the log, not whole pages.
 *   - The background thread sleeps until 30 % of the log is in use. There one thread looks every 10 microseconds for committed logs, and
 *     another one writes dirty pages of the cache back from 30 % on.
 *   - One program has one log. Two programs have two logs, each with its share of the memory.
 */
#include "engines.h"
#include "media.h"
#include "slots.h"

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <sys/mman.h>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>

namespace engine
{

namespace
{

constexpr size_t PAGE = 4096, LINE = 64, LINES = PAGE / LINE;

struct Entry {
    uint64_t offset;
    uint64_t unit;
    uint64_t bytes; /* of data, which follow */
};

size_t lines_of(size_t bytes)
{
    return (sizeof(Entry) + bytes + LINE - 1) / LINE;
}

/* A place in the log: page and line. The last line of a page only names the next page. */
struct Place {
    uint32_t page = 0, line = LINES; /* that line: nowhere, as in a chain without pages */

    bool is_nowhere() const
    {
        return line == LINES;
    }

    bool operator==(const Place &other) const
    {
        return page == other.page && line == other.line;
    }

    /* As it stands on the media: 0 is nowhere. */
    uint64_t word() const
    {
        return is_nowhere() ? 0 : (uint64_t{page} << 8 | line) + 1;
    }

    static Place of(uint64_t word)
    {
        if (word == 0)
            return {};
        return {static_cast<uint32_t>((word - 1) >> 8), static_cast<uint32_t>((word - 1) & 0xff)};
    }
};

/* The largest piece of data that fits from this line on. */
size_t room_at(uint32_t line)
{
    return (LINES - 1 - line) * LINE - sizeof(Entry);
}

/* What the log begins with. */
struct Head {
    alignas(LINE) uint64_t which; /* of the two `starts` */
    alignas(LINE) uint64_t starts[2][Slots::MAX];
    struct alignas(LINE) {
        uint64_t end;
        uint64_t first; /* the start, while that is nowhere */
    } chains[Slots::MAX];
};
constexpr uint32_t HEAD_PAGES = (sizeof(Head) + PAGE - 1) / PAGE;

struct Range {
    uint64_t offset;
    size_t bytes;
};

uint64_t log_bytes(const Options &options, const std::string &path)
{
    struct stat st;
    if (stat(path.c_str(), &st) == 0 &&
        st.st_size > 0) /* of one that was killed: it may hold units */
        return static_cast<uint64_t>(st.st_size);
    if (options.log_bytes != 0)
        return options.log_bytes / PAGE * PAGE;
    return std::clamp<uint64_t>(options.bytes / 4 / PAGE * PAGE, UINT64_C(4) << 20,
                                UINT64_C(64) << 20);
}

class RedoCache final : public Base<RedoCache>
{
  public:
    explicit RedoCache(const Options &options)
        : medium_(options.domain),
          nvm_(options.log_folder.empty() || options.domain == Domain::process ? options.domain
                                                                               : Domain::pmem),
          each_(options.unit == Unit::write),
          log_path_((options.log_folder.empty() ? options.folder : options.log_folder) + "/log"),
          file_(options.folder + "/file", options.bytes),
          log_(log_path_, log_bytes(options, log_path_)),
          log_pages_(static_cast<uint32_t>(log_.bytes() / PAGE) - HEAD_PAGES),
          head_(reinterpret_cast<Head *>(log_.at(0)))
    {
        if (log_.bytes() / PAGE < HEAD_PAGES + 2)
            bench::fail("redo-cache: a log of %zu bytes is too short", log_.bytes());
        recover();
        void *base = mmap(nullptr, options.bytes, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_NORESERVE, file_.descriptor(), 0);
        if (base == MAP_FAILED)
            bench::fail("redo-cache: cannot map privately: %s", std::strerror(errno));
        cache_ = static_cast<char *>(base);
        worker_ = std::thread([this] { work(); });
    }

    ~RedoCache() override
    {
        settle();
        {
            const std::lock_guard<std::mutex> hold(lock_);
            is_over_ = true;
        }
        called_.notify_one();
        worker_.join();
        munmap(cache_, file_.bytes());
        unlink(log_path_.c_str()); /* it holds nothing */
    }

    void write(uint64_t offset, const void *src, size_t n) override
    {
        if (n == 0)
            return;
        const unsigned slot = slots_.mine();
        if (each_) {
            const Range range{offset, n};
            commit(slot, &range, 1, static_cast<const char *>(src));
            std::memcpy(cache_ + offset, src, n); /* no fence waits for these stores */
            return;
        }
        std::memcpy(cache_ + offset, src, n);
        std::vector<Range> &ranges = lanes_[slot].ranges;
        if (!ranges.empty() && ranges.back().offset + ranges.back().bytes == offset)
            ranges.back().bytes += n;
        else
            ranges.push_back({offset, n});
    }

    void read(void *dst, uint64_t offset, size_t n) override
    {
        std::memcpy(dst, cache_ + offset, n);
    }

    void sync() override
    {
        const unsigned slot = slots_.mine();
        std::vector<Range> &ranges = lanes_[slot].ranges;
        if (ranges.empty())
            return;
        commit(slot, ranges.data(), ranges.size(), nullptr);
        ranges.clear();
    }

    /* Until all that was committed before is in the file. */
    void settle() override
    {
        std::unique_lock<std::mutex> hold(lock_);
        const uint64_t until = rounds_ + (is_at_work_ ? 2 : 1);
        is_called_ = true;
        called_.notify_one();
        freed_.wait(hold, [&] { return rounds_ >= until; });
    }

  private:
    struct alignas(LINE) Lane {
        std::vector<Range> ranges;          /* of the unit */
        std::vector<uint32_t> pages;        /* that the unit takes: the next one is the last */
        Place end;                          /* of what is written */
        std::atomic<uint64_t> committed{0}; /* the end of what is durable, as a word */
        Place start;                        /* the background's */
    };

    char *at(Place place) const
    {
        return log_.at((HEAD_PAGES + uint64_t{place.page}) * PAGE + uint64_t{place.line} * LINE);
    }

    /* ---- The writers ---- */

    /* Pages for entries of these ranges, all or none: waits until the background has freed enough. */
    void take_pages(Lane &lane, const Range *ranges, size_t count)
    {
        size_t need = 0;
        uint32_t line = std::min<uint32_t>(lane.end.line, LINES - 1);
        for (size_t i = 0; i < count; i++)
            for (size_t left = ranges[i].bytes; left > 0;) {
                if (line == LINES - 1) {
                    need++;
                    line = 0;
                }
                const size_t bytes = std::min(left, room_at(line));
                line += static_cast<uint32_t>(lines_of(bytes));
                left -= bytes;
            }
        if (need == 0)
            return;
        std::unique_lock<std::mutex> hold(lock_);
        while (free_.size() < need) {
            /* Each chain keeps the page of its end. */
            if (need + chains_ > log_pages_)
                bench::fail("redo-cache: a unit needs %zu pages of a log of %u", need, log_pages_);
            call();
            freed_.wait(hold);
        }
        if (lane.end.is_nowhere())
            chains_++;
        lane.pages.assign(free_.end() - static_cast<ptrdiff_t>(need), free_.end());
        free_.resize(free_.size() - need);
        if (log_pages_ - free_.size() > chains_ + log_pages_ * 3 / 10)
            call();
    }

    uint32_t next_page(Lane &lane)
    {
        const uint32_t page = lane.pages.back();
        lane.pages.pop_back();
        return page;
    }

    /* Entries for the data at `from`: one, or one in each page that they reach. */
    void append(Lane &lane, uint64_t unit, Range range, const char *from)
    {
        while (range.bytes > 0) {
            if (lane.end.line == LINES - 1) {
                const Place next{next_page(lane), 0};
                const uint64_t line[LINE / sizeof(uint64_t)] = {next.page};
                nvm_.copy(at(lane.end), line, LINE);
                lane.end = next;
            }
            const size_t bytes = std::min(range.bytes, room_at(lane.end.line));
            /* The first lines are put together before, so that each line is stored as a whole, past the caches. */
            struct alignas(LINE) {
                Entry entry;
                char data[4 * LINE - sizeof(Entry)];
            } lines;
            const size_t some = std::min(bytes, sizeof(lines.data)), whole = lines_of(some) * LINE;
            lines.entry = {range.offset, unit, bytes};
            std::memcpy(lines.data, from, some);
            std::memset(lines.data + some, 0, whole - sizeof(Entry) - some);
            nvm_.copy(at(lane.end), &lines, whole);
            if (bytes > some)
                nvm_.copy(at(lane.end) + sizeof(lines), from + some, bytes - some);
            lane.end.line += static_cast<uint32_t>(lines_of(bytes));
            range.offset += bytes;
            range.bytes -= bytes;
            from += bytes;
        }
    }

    /* The ranges as the cache has them; or one range, of the data at `from`. */
    void commit(unsigned slot, const Range *ranges, size_t count, const char *from)
    {
        Lane &lane = lanes_[slot];
        take_pages(lane, ranges, count);
        if (lane.end.is_nowhere()) {
            lane.end = {next_page(lane), 0};
            nvm_.store(&head_->chains[slot].first, lane.end.word());
        }
        const uint64_t unit = units_.fetch_add(1) + 1;
        for (size_t i = 0; i < count; i++)
            append(lane, unit, ranges[i], from != nullptr ? from : cache_ + ranges[i].offset);
        /* persist-order L1 (reader: recover()): entries, the pages that they name and the chain's first place must be durable
         * before the end that makes them count. */
        nvm_.fence();
        nvm_.store(&head_->chains[slot].end, lane.end.word());
        nvm_.fence();
        lane.committed.store(lane.end.word(), std::memory_order_release);
    }

    /* ---- The background ---- */

    void call() /* under the lock */
    {
        if (!is_called_) {
            is_called_ = true;
            called_.notify_one();
        }
    }

    void work()
    {
        std::unique_lock<std::mutex> hold(lock_);
        for (;;) {
            called_.wait(hold, [this] { return is_called_ || is_over_; });
            if (!is_called_)
                return;
            is_called_ = false;
            is_at_work_ = true;
            hold.unlock();
            write_back();
            hold.lock();
            free_.insert(free_.end(), passed_.begin(), passed_.end());
            passed_.clear();
            is_at_work_ = false;
            rounds_++;
            freed_.notify_all();
        }
    }

    /* Entries of units up to `last` between two places of a chain: to entries_; pages that it leaves: to passed_. Returns where
     * it ended. */
    Place collect(Place place, Place end, uint64_t last)
    {
        while (!(place == end)) {
            if (place.line == LINES - 1) {
                uint64_t next;
                std::memcpy(&next, at(place), sizeof(next));
                passed_.push_back(place.page);
                place = {static_cast<uint32_t>(next), 0};
                continue;
            }
            const auto *entry = reinterpret_cast<const Entry *>(at(place));
            if (entry->unit > last)
                break;
            entries_.push_back(entry);
            place.line += static_cast<uint32_t>(lines_of(entry->bytes));
        }
        return place;
    }

    /* entries_ to the file. */
    void apply()
    {
        const auto is_older = [](const Entry *a, const Entry *b) { return a->unit < b->unit; };
        if (!std::is_sorted(entries_.begin(), entries_.end(), is_older))
            std::stable_sort(entries_.begin(), entries_.end(), is_older);
        if (medium_.domain() == Domain::disk) {
            uint64_t first = file_.bytes(), end = 0;
            for (const Entry *entry : entries_) {
                std::memcpy(file_.at(entry->offset), entry + 1, entry->bytes);
                first = std::min(first, entry->offset);
                end = std::max(end, entry->offset + entry->bytes);
            }
            if (first < end)
                medium_.flush(file_.at(first),
                              end - first); /* one msync(): only these pages are dirty */
        } else {
            for (const Entry *entry : entries_)
                medium_.copy(file_.at(entry->offset), entry + 1, entry->bytes);
        }
        entries_.clear();
        if (medium_.domain() != nvm_.domain())
            medium_.fence(); /* else that of L2 does */
    }

    /* The lanes' starts become those of the log, all at once. */
    void move_starts()
    {
        uint64_t starts[Slots::MAX];
        for (unsigned slot = 0; slot < Slots::MAX; slot++)
            starts[slot] = lanes_[slot].start.word();
        const uint64_t which = (head_->which & 1) ^ 1;
        nvm_.copy(head_->starts[which], starts, sizeof(starts));
        /* persist-order L2 (reader: recover()): the starts, and in the file all that lies before them, must be durable before the
         * word that chooses these starts. */
        nvm_.fence();
        nvm_.store(&head_->which, which);
        nvm_.fence();
    }

    void write_back()
    {
        /* A unit that comes to a place of a unit seen here has begun after that was committed. If this loop does not see its chain's
         * older neighbour, it was not committed when `last` was read, so all that follow it have larger numbers. */
        const uint64_t last = units_.load();
        for (Lane &lane : lanes_) {
            const Place end = Place::of(lane.committed.load(std::memory_order_acquire));
            if (end.is_nowhere())
                continue;
            if (lane.start.is_nowhere())
                lane.start = Place::of(head_->chains[&lane - lanes_].first);
            lane.start = collect(lane.start, end, last);
        }
        if (entries_.empty())
            return;
        apply();
        move_starts();
    }

    /* ---- Recovery ---- */

    void recover()
    {
        /* persist-order L3: what is seen here may be in the caches only, if the last one that had the log was killed. It must be
         * durable before the file changes: of a unit whose commit a power cut took back, nothing may stay. */
        nvm_.flush(head_, sizeof(*head_));
        nvm_.fence();
        std::vector<bool> is_kept(log_pages_);
        for (unsigned slot = 0; slot < Slots::MAX; slot++) {
            Lane &lane = lanes_[slot];
            lane.end = Place::of(head_->chains[slot].end);
            if (lane.end.is_nowhere())
                continue;
            const uint64_t start = head_->starts[head_->which & 1][slot];
            lane.start = Place::of(start != 0 ? start : head_->chains[slot].first);
            lane.start = collect(lane.start, lane.end, UINT64_MAX);
            lane.committed = lane.end.word();
            is_kept[lane.end.page] = true;
            chains_++;
        }
        passed_.clear();
        apply();
        move_starts();
        for (uint32_t page = log_pages_; page-- > 0;)
            if (!is_kept[page])
                free_.push_back(page);
    }

    Medium medium_, nvm_; /* of the file, of the log */
    bool each_;
    std::string log_path_;
    File file_, log_;
    uint32_t log_pages_;
    Head *head_;
    char *cache_ = nullptr; /* the private mapping */
    Slots slots_;
    Lane lanes_[Slots::MAX];
    alignas(LINE) std::atomic<uint64_t> units_{0}; /* numbers given */

    alignas(LINE) std::mutex lock_; /* of the following */
    std::condition_variable called_, freed_;
    std::vector<uint32_t> free_;
    uint32_t chains_ = 0; /* that have a page */
    uint64_t rounds_ = 0;
    bool is_called_ = false, is_at_work_ = false, is_over_ = false;

    std::vector<const Entry *> entries_; /* the background's, and of recovery */
    std::vector<uint32_t> passed_;
    std::thread worker_;
};

} // namespace

const Kind REDO_CACHE = {
    "redo-cache",
    "vNVML's scheme: a redo log, a copy in DRAM to read from, the file written in the background",
    [](const Options &) { return true; },
    [](const Options &) { return Promise::atomic; },
    [](const Options &options) -> std::unique_ptr<Engine> {
        return std::make_unique<RedoCache>(options);
    },
};

} // namespace engine
