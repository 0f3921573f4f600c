/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Where the log of the engine hybrid-log has something of the file: a radix tree by offset, in memory only, as in figure 3 of
 * Libnvmmio's paper. A leaf is a block of the file; a table has the leaves of 2 MiB, all of one size; above it, each level takes
 * nine bits of the offset. A skip pointer leads to the lowest node that has all of the file, so that a file of up to 1 GiB takes
 * one level.
 *
 * Nodes are found without a lock: a bucket is filled once, by one atomic operation, and never emptied. What a leaf has is read
 * and changed under its lock.
 */
#ifndef ATO_BENCHMARKS_ENGINES_HYBRID_LOG_INDEX_H
#define ATO_BENCHMARKS_ENGINES_HYBRID_LOG_INDEX_H

#include "hybrid_log_lock.h"
#include "hybrid_log_pool.h"

namespace engine::hybrid
{

/* A block of the file, and the log block that holds its delta: one range of bytes. */
struct alignas(64) Leaf {
    Lock lock;
    uint32_t first = 0, bytes = 0;  /* the delta, within the block */
    std::atomic<uint64_t> epoch{0}; /* in which it was written */
    std::atomic<Block *> block{
        nullptr}; /* without the lock: null if the file has the newest bytes */
};

struct Table {
    static constexpr size_t LEAVES = 1 << (LARGEST_SHIFT - UNIT_SHIFT);

    Table(uint64_t begin, unsigned size) : base(begin), shift(size)
    {
    }

    bool empty() const
    {
        for (const auto &word : used)
            if (word.load() != 0)
                return false;
        return true;
    }

    const uint64_t base;                /* where it begins in the file */
    std::atomic<unsigned> shift;        /* of its blocks; changes only while it is empty */
    std::atomic<uint64_t> used[8] = {}; /* a bit for each leaf that has a log block */
    Leaf leaves[LEAVES];
};

class Index
{
  public:
    explicit Index(uint64_t file_bytes);
    ~Index();

    /* The table of this offset. It is made, for blocks of this size, if there is none; find() returns null then. */
    Table &make(uint64_t offset, unsigned shift);

    Table *find(uint64_t offset) const
    {
        const void *node = skip_.load(std::memory_order_acquire);
        for (unsigned level = levels_; level > 0 && node != nullptr; level--)
            node = static_cast<const Node *>(node)->bucket[digit(offset, level)].load(
                std::memory_order_acquire);
        return static_cast<Table *>(const_cast<void *>(node));
    }

    /* Under the leaf's lock: it has a log block now, or none any more. */
    void set(Table &table, size_t leaf, Block *block)
    {
        std::atomic<uint64_t> &word = table.used[leaf / 64];
        const uint64_t bit = uint64_t(1) << leaf % 64;
        const bool is_set = (word.load(std::memory_order_relaxed) & bit) != 0;

        table.leaves[leaf].block.store(block, std::memory_order_release);
        if (block != nullptr && !is_set) {
            word.fetch_or(bit);
            mark(table);
        } else if (block == nullptr && is_set) {
            word.fetch_and(~bit);
        }
    }

    /* Calls what(table) for each table that is not empty. */
    template <class What> void each_used(const What &what)
    {
        for (size_t i = 0; i < used_.size(); i++)
            for (uint64_t bits = used_[i].load(); bits != 0; bits &= bits - 1) {
                Table *table =
                    find((i * 64 + static_cast<size_t>(__builtin_ctzll(bits))) << LARGEST_SHIFT);
                what(*table);
                if (!table->empty())
                    continue;
                /* The bit goes first, and comes back if a leaf was set meanwhile: set() stores in the other order. */
                used_[i].fetch_and(~(bits & -bits));
                if (!table->empty())
                    mark(*table);
            }
    }

  private:
    struct Node {
        std::atomic<void *> bucket[512] = {};
    };

    static size_t digit(uint64_t offset, unsigned level)
    {
        return offset >> (LARGEST_SHIFT + 9 * (level - 1)) & 511;
    }

    void mark(const Table &table)
    {
        const uint64_t number = table.base >> LARGEST_SHIFT, bit = uint64_t(1) << number % 64;
        if ((used_[number / 64].load() & bit) == 0)
            used_[number / 64].fetch_or(bit);
    }

    static void remove(void *node, unsigned level);

    unsigned levels_ = 0; /* of nodes below the skip pointer */
    std::atomic<void *> skip_{nullptr};
    std::vector<std::atomic<uint64_t>> used_; /* a bit for each table that may not be empty */
};

} // namespace engine::hybrid

#endif
