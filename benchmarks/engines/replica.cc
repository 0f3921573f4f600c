/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * replica: the atomic mmap of NOVA (Xu and Swanson, FAST 2016; the code that its first release had for it).
 *
 * In NOVA the first access to a mapped page copies the page out to a replica, where the program works. msync() copies each
 * replica that may have changed, whole, into a free block of the file system, past the caches, appends an entry for each run of
 * them to the log of the file, and moves the end of that log: one 8-byte store that makes all of the new blocks take the places
 * of the old ones. So a write of 1 KiB and its msync() store 1 + 4 KiB, which is the amplification that the Acumen paper gives
 * for NOVA (4.95 times what Acumen writes).
 *
 * Here:
 *   blocks   twice as many as the file has pages: a page is in one of them, the rest is free
 *   table    a word for each page: the block that has it, and how often it was replaced
 *   journal  two lists for each thread: entries (page, its word before, its new block); and a word: which list is valid, how long
 *
 * A unit of one page: copy the replica to a free block, fence, store the page's word, fence. A unit of more pages: copy them all
 * and write the entries into the list that is not valid, fence, store the thread's word, fence: that is the commit. Then the
 * words of the pages are stored; they are flushed before the first fence of the thread's next unit that needs the journal, and
 * that unit's commit makes this list invalid.
 *   Recovery does an entry of a valid list if the page's word is the one that the entry replaces, until no more entry is to be
 * done. A word never takes the same value twice (36 bits count), so a list that was done long ago does no harm, and lists of
 * several threads for one page follow from one another. A block is free again after the commit that replaced it: from then on
 * recovery ends with the new one.
 *
 * What differs from NOVA, all to the advantage of this engine:
 *   - No system call, no lock of the file, no garbage collection of the log: threads meet only at pages that both write, and share
 *     the list of free blocks when their own are used up.
 *   - NOVA takes each page of the synced range that was ever touched through a writable mapping for changed, as it does not see the
 *     stores. Here write() says which pages changed since the last sync().
 *   - Replicas are in DRAM; NOVA takes them from the persistent memory.
 *   - The paper promises that a page is never torn; the code commits all pages of an msync() at once, and so does this engine.
 *     Where two threads have changed one page, msync() commits both. Here a thread's sync() takes from such a page only what the
 *     thread has written, so that each thread's unit is all or nothing.
 */
#include "engines.h"
#include "media.h"
#include "slots.h"

#include <algorithm>
#include <cstring>
#include <sched.h>
#include <sys/mman.h>

namespace engine
{

namespace
{

constexpr size_t PAGE = 4096, LINE = 64;

/* ---- The word of a page: 28 bits of its block (xor its page: 0 is the block of the same number), 36 bits that count. ---- */

constexpr unsigned BLOCK_BITS = 28;
constexpr uint64_t BLOCK_MASK = (UINT64_C(1) << BLOCK_BITS) - 1;

uint32_t block_of(uint64_t word, uint32_t page)
{
    return static_cast<uint32_t>(word & BLOCK_MASK) ^ page;
}

uint64_t next_word(uint64_t word, uint32_t page, uint32_t block)
{
    return (((word >> BLOCK_BITS) + 1) << BLOCK_BITS) | (block ^ page);
}

struct Entry {
    uint64_t before; /* the word that this replaces */
    uint32_t page, block;
};
static_assert(sizeof(Entry) == 16, "four entries a line");

struct Range {
    uint64_t offset;
    size_t bytes;
};

struct Piece { /* what a write brings */
    uint64_t offset;
    const char *src;
    size_t bytes;
};

constexpr size_t REFILL = 16, KEEP = 64; /* free blocks that a thread takes at once; may keep */

class Replica final : public Base<Replica>
{
  public:
    explicit Replica(const Options &options)
        : medium_(options.domain), each_(options.unit == Unit::write), pages_(options.bytes / PAGE),
          list_bytes_((pages_ * sizeof(Entry) + LINE - 1) / LINE * LINE),
          blocks_(options.folder + "/blocks", (2 * pages_ + Slots::MAX * (KEEP + REFILL)) * PAGE),
          table_(options.folder + "/table", pages_ * sizeof(uint64_t)),
          journal_(options.folder + "/journal", Slots::MAX * LINE + 2 * Slots::MAX * list_bytes_),
          state_(new State[pages_]())
    {
        if (blocks_.bytes() / PAGE > BLOCK_MASK)
            bench::fail("replica: a file of %llu bytes is too long",
                        static_cast<unsigned long long>(options.bytes));
        recover();
        void *base = mmap(nullptr, options.bytes, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (base == MAP_FAILED)
            bench::fail("replica: no memory for the replicas");
        replica_ = static_cast<char *>(base);
    }

    ~Replica() override
    {
        munmap(replica_, pages_ * PAGE);
    }

    void write(uint64_t offset, const void *src, size_t n) override
    {
        if (n == 0)
            return;
        const unsigned slot = slots_.mine();
        Lane &lane = lanes_[slot];
        const auto first = static_cast<uint32_t>(offset / PAGE),
                   last = static_cast<uint32_t>((offset + n - 1) / PAGE);
        const Piece piece{offset, static_cast<const char *>(src), n};
        if (each_) {
            lane.pages.clear();
            for (uint32_t page = first; page <= last; page++) {
                lock(page);
                touch(page);
                lane.pages.push_back(page);
            }
            commit(lane, 0, &piece);
            for (const uint32_t page : lane.pages)
                unlock(page);
            return;
        }
        const uint64_t me = UINT64_C(1) << slot;
        lane.ranges.push_back({offset, n});
        for (uint32_t page = first; page <= last; page++) {
            lock(page);
            touch(page);
            put(page, piece);
            if ((state_[page].writers & me) == 0) {
                state_[page].writers |= me;
                lane.pages.push_back(page);
            }
            unlock(page);
        }
    }

    void read(void *dst, uint64_t offset, size_t n) override
    {
        if (n == 0)
            return;
        for (uint64_t page = offset / PAGE; page <= (offset + n - 1) / PAGE; page++)
            if (__builtin_expect(!state_[page].is_out.load(std::memory_order_acquire), 0)) {
                lock(static_cast<uint32_t>(page));
                touch(static_cast<uint32_t>(page));
                unlock(static_cast<uint32_t>(page));
            }
        std::memcpy(dst, replica_ + offset, n);
    }

    void sync() override
    {
        const unsigned slot = slots_.mine();
        Lane &lane = lanes_[slot];
        if (each_ || lane.pages.empty())
            return;
        const uint64_t me = UINT64_C(1) << slot;
        std::sort(lane.pages.begin(), lane.pages.end()); /* the order in which all threads lock */
        for (const uint32_t page : lane.pages)
            lock(page);
        commit(lane, me, nullptr);
        for (const uint32_t page : lane.pages) {
            state_[page].writers &= ~me;
            unlock(page);
        }
        lane.pages.clear();
        lane.ranges.clear();
    }

  private:
    struct State {
        std::atomic<bool> is_locked, is_out; /* is_out: the replica has the page */
        uint64_t writers; /* threads whose unit has changed the page: a bit for each slot; locked */
    };

    struct alignas(LINE) Lane {
        std::vector<uint32_t> pages; /* of the unit */
        std::vector<Range> ranges;   /* of the unit */
        std::vector<uint32_t> free;  /* blocks */
        std::vector<Entry> entries;  /* of the last unit that needed the journal */
        unsigned list = 0;           /* the list that these are in */
        char composed[PAGE];
    };

    void lock(uint32_t page)
    {
        std::atomic<bool> &is_locked = state_[page].is_locked;
        for (unsigned tries = 1; is_locked.exchange(true, std::memory_order_acquire); tries++)
            while (is_locked.load(std::memory_order_relaxed)) {
                __builtin_ia32_pause();
                if (tries++ % 64 == 0)
                    sched_yield(); /* the holder may wait for this processor */
            }
    }

    void unlock(uint32_t page)
    {
        state_[page].is_locked.store(false, std::memory_order_release);
    }

    uint64_t *word(uint32_t page) const
    {
        return reinterpret_cast<uint64_t *>(table_.at(0)) + page;
    }

    char *block(uint32_t number) const
    {
        return blocks_.at(uint64_t{number} * PAGE);
    }

    uint64_t *lane_word(unsigned slot) const
    {
        return reinterpret_cast<uint64_t *>(journal_.at(slot * LINE));
    }

    char *list(unsigned slot, unsigned which) const
    {
        return journal_.at(Slots::MAX * LINE + (2 * slot + which) * list_bytes_);
    }

    /* Copies the page out at its first access; locked. */
    void touch(uint32_t page)
    {
        if (state_[page].is_out.load(std::memory_order_relaxed))
            return;
        std::memcpy(replica_ + uint64_t{page} * PAGE, block(block_of(*word(page), page)), PAGE);
        state_[page].is_out.store(true, std::memory_order_release);
    }

    /* Into the replica: what the piece has for this page, which is locked. */
    void put(uint32_t page, const Piece &piece)
    {
        const uint64_t start = uint64_t{page} * PAGE, begin = std::max(piece.offset, start),
                       end = std::min(piece.offset + piece.bytes, start + PAGE);
        std::memcpy(replica_ + begin, piece.src + (begin - piece.offset), end - begin);
    }

    /* What the page becomes: the replica, if only the thread `me` has changed it since its last commit. */
    const char *source(Lane &lane, uint32_t page, uint64_t me)
    {
        const uint64_t start = uint64_t{page} * PAGE;
        if ((state_[page].writers & ~me) == 0)
            return replica_ + start;
        std::memcpy(lane.composed, block(block_of(*word(page), page)), PAGE);
        for (const Range &range : lane.ranges) {
            const uint64_t begin = std::max(range.offset, start),
                           end = std::min(range.offset + range.bytes, start + PAGE);
            if (begin < end)
                std::memcpy(lane.composed + (begin - start), replica_ + begin, end - begin);
        }
        return lane.composed;
    }

    /* All pages of the lane, which are locked, become what source() says, at once and durably; after the piece, if there is one,
     * has been put into their replicas: page by page, so that each is copied on from the first-level cache. */
    void commit(Lane &lane, uint64_t me, const Piece *piece)
    {
        const auto copy = [&](uint32_t page, uint32_t to) {
            if (piece != nullptr)
                put(page, *piece);
            medium_.copy(block(to), source(lane, page, me), PAGE);
        };
        const size_t count = lane.pages.size();
        if (lane.free.size() < count)
            refill(lane, count);
        /* persist-order R1 (reader: recover()): the blocks, the entries and the words of the last list must be durable before the
         * word that makes the blocks take their places and ends the last list. */
        if (count == 1) {
            const uint32_t page = lane.pages[0], to = lane.free.back();
            const uint64_t before = *word(page);
            copy(page, to);
            medium_.fence(); /* R1 */
            medium_.store(word(page), next_word(before, page, to));
            medium_.fence();
            lane.free.back() = block_of(before, page);
            return;
        }
        const auto slot = static_cast<unsigned>(&lane - lanes_);
        for (const Entry &entry : lane.entries)
            medium_.flush(word(entry.page), sizeof(uint64_t));
        lane.entries.clear();
        for (size_t i = 0; i < count; i++) {
            const uint32_t page = lane.pages[i], to = lane.free[lane.free.size() - 1 - i];
            copy(page, to);
            lane.entries.push_back({*word(page), page, to});
        }
        lane.list ^= 1;
        medium_.copy(list(slot, lane.list), lane.entries.data(), count * sizeof(Entry));
        medium_.fence(); /* R1 */
        medium_.store(lane_word(slot), count << 1 | lane.list);
        medium_.fence();
        for (size_t i = 0; i < count; i++) {
            const Entry &entry = lane.entries[i];
            __atomic_store_n(word(entry.page), next_word(entry.before, entry.page, entry.block),
                             __ATOMIC_RELEASE);
            lane.free[lane.free.size() - 1 - i] = block_of(entry.before, entry.page);
        }
        if (lane.free.size() > KEEP)
            give_back(lane);
    }

    void refill(Lane &lane, size_t count)
    {
        /* There are enough: blocks beyond one a page are KEEP + REFILL for each thread and one for each page that is locked. */
        const size_t want = std::max(count, REFILL) - lane.free.size();
        const std::lock_guard<std::mutex> hold(free_lock_);
        const size_t take = std::min(want, free_.size());
        lane.free.insert(lane.free.end(), free_.end() - static_cast<ptrdiff_t>(take), free_.end());
        free_.resize(free_.size() - take);
        if (lane.free.size() < count)
            bench::fail("replica: no free block is left");
    }

    void give_back(Lane &lane)
    {
        const std::lock_guard<std::mutex> hold(free_lock_);
        free_.insert(free_.end(), lane.free.begin() + KEEP, lane.free.end());
        lane.free.resize(KEEP);
    }

    /* Does what is in the journal, and finds the free blocks. */
    void recover()
    {
        /* persist-order R2: what is seen here may be in the caches only, if the last one that had the file was killed. It must be
         * durable before anything is done for it: of a unit whose commit a power cut took back, nothing may stay. The lists stay
         * valid; at the end no entry of them fits any more. */
        medium_.flush(table_.at(0), table_.bytes());
        medium_.flush(journal_.at(0), Slots::MAX * LINE);
        medium_.fence();
        std::vector<Entry> entries;
        for (unsigned slot = 0; slot < Slots::MAX; slot++) {
            const uint64_t valid = *lane_word(slot);
            const auto *first = reinterpret_cast<const Entry *>(list(slot, valid & 1));
            entries.insert(entries.end(), first, first + (valid >> 1));
            lanes_[slot].list = valid & 1;
        }
        for (bool is_done = false; !is_done;) {
            is_done = true;
            for (const Entry &entry : entries)
                if (*word(entry.page) == entry.before) {
                    medium_.store(word(entry.page),
                                  next_word(entry.before, entry.page, entry.block));
                    is_done = false;
                }
        }
        medium_.fence();

        std::vector<bool> is_used(blocks_.bytes() / PAGE);
        for (uint32_t page = 0; page < pages_; page++)
            is_used[block_of(*word(page), page)] = true;
        for (auto number = static_cast<uint32_t>(is_used.size()); number-- > 0;)
            if (!is_used[number])
                free_.push_back(number);
    }

    Medium medium_;
    bool each_;
    uint64_t pages_;
    size_t list_bytes_;
    File blocks_, table_, journal_;
    std::unique_ptr<State[]> state_;
    char *replica_ = nullptr;
    Slots slots_;
    Lane lanes_[Slots::MAX];
    std::mutex free_lock_;
    std::vector<uint32_t> free_;
};

} // namespace

const Kind REPLICA = {
    "replica",
    "NOVA's atomic mmap: private pages, which a sync copies whole into free blocks and a journal "
    "puts in place",
    [](const Options &) { return true; },
    [](const Options &) { return Promise::atomic; },
    [](const Options &options) -> std::unique_ptr<Engine> {
        return std::make_unique<Replica>(options);
    },
};

} // namespace engine
