/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * hybrid-log: the scheme of Libnvmmio (Choi, Hong, Kwon, Han: Libnvmmio: Reconstructing Software IO Path with Failure-Atomic
 * Memory-Mapped Interface, USENIX ATC 2020), written after the paper. The numbers are its sections.
 *
 *   3.2  A file is blocks of 4 KiB to 2 MiB. A block that is written has a log block of its size, which holds one delta: a range
 *        of the block. A second write of the unit makes the range larger; what lies between is copied too. A radix tree finds
 *        it without a lock; each leaf has a lock for readers and writers.
 *   3.3  The file has an epoch, a leaf the epoch of its delta. The end of a unit increments the file's epoch: all deltas of
 *        earlier epochs are committed thereby. A thread wakes up each 100 us and copies the committed new bytes to the file. A
 *        write that finds a committed delta in its block copies that first.
 *   3.4  Redo puts the new bytes into the log, and a read has to look there. Undo puts the old bytes into the log, the new ones
 *        into the file, and a read looks at the file alone. At the end of a unit, redo is chosen if 40 % of the accesses since
 *        the last one were writes. If that changes anything, all committed deltas are copied first.
 *   3.6  A write and a read hold the file's lock as readers, the end of a unit holds it as the writer.
 *
 * hybrid-undo and hybrid-redo never change their policy.
 *
 * The paper says little of recovery. What is different here, so that a crash at any store leaves whole units:
 *
 *   - Undo is for a unit that has *not* ended: recovery rolls back the records of the current epoch. The paper has it look at
 *     committed records only.
 *   - The old bytes and their range are durable before the record becomes one of this epoch, and that before the first new byte
 *     is in the file. So a write costs undo two fences more than redo.
 *   - Epoch and kind of a record are one word of 8 bytes, the range another. A record that is used again is either free on the
 *     media, or undo of an earlier epoch: whichever of its words a crash keeps, it says nothing until its unit ends (redo), or
 *     is written in this order (undo). A redo record is freed on the media, and that is fenced, before its log block is taken.
 *   - A thread in the background believes in an epoch when it is durable, not before: else half of a unit might be in the file.
 *   - Recovery also frees the records of the unit that did not end. The next increment would commit them.
 *   - The kind is in each record; a policy on the media, as in the paper's figure 4, is not needed.
 *
 * And what is faster or simpler:
 *
 *   - Where each write is a unit, it ends the unit itself, and needs not do so if another thread has meanwhile.
 *   - The counters of reads and writes are not exact when threads race. They only choose a policy.
 *   - The size of blocks is chosen for 2 MiB of the file by the first write, as in the paper, and again by any write of
 *     another size that finds no delta there.
 *   - When the log is full, the thread that needs room copies committed deltas itself; if there are none, the log grows.
 *
 * A unit of Unit::sync is the whole file's: sync() commits what all threads have written, as msync() there.
 */
#include "engines.h"
#include "hybrid_log_index.h"
#include "media.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <thread>

namespace engine
{

namespace
{

using namespace hybrid;

enum class Policy { hybrid, undo, redo };

constexpr unsigned REDO_PERCENT = 40; /* of writes, from which on the policy is redo */
constexpr auto PERIOD = std::chrono::microseconds(100);

class HybridLog final : public Base<HybridLog>
{
  public:
    HybridLog(const Options &options, Policy policy);
    ~HybridLog() override;

    void write(uint64_t offset, const void *src, size_t n) override;
    void read(void *dst, uint64_t offset, size_t n) override;
    void sync() override;
    void settle() override;

  private:
    enum class Wait { no, yes };

    /* A part of a write or a read, in one block. */
    struct Part {
        Table &table;
        size_t leaf, first, bytes;
        char *home; /* where the block is in the file */

        Leaf &operator*() const
        {
            return table.leaves[leaf];
        }
    };

    /* Deltas of a table that are being copied: their leaves are locked. */
    struct Held {
        size_t leaf;
        Block *block;
    };
    static constexpr size_t MOST_HELD = 16, MOST_HELD_BYTES = 32 << 10;
    struct Batch {
        Held held[MOST_HELD];
        size_t count = 0, bytes = 0;
    };

    unsigned shift_of(size_t n) const;
    Table &enter_to_write(uint64_t offset, size_t n);
    Part part(Table &table, uint64_t offset, size_t n) const;
    void write_redo(const Part &part, const char *src, uint64_t epoch, Block *&freed);
    void write_undo(const Part &part, const char *src, uint64_t epoch, Block *&freed);
    Block *take(unsigned shift, Block *&freed);
    void read_delta(char *to, const Part &part);
    void end_unit();
    bool checkpoint(Wait wait);
    void finish(Table &table, Batch &batch);
    void work();

    const Medium medium_;
    const bool each_; /* each write is a unit */
    const Policy policy_;
    File file_;
    Log log_;
    Pool pool_;
    Index index_;
    unsigned largest_shift_;
    std::mutex growing_;

    /* The file's metadata: the epoch and the policy change under the lock, as the writer. */
    alignas(64) Lock lock_;
    std::atomic<bool> redo_;
    std::atomic<uint64_t> epoch_; /* durable */
    std::atomic<uint64_t> reads_{0}, writes_{0};

    alignas(64) std::atomic<bool> idle_{false}; /* the thread waits until a unit ends */
    bool stop_ = false;
    std::mutex idle_lock_;
    std::condition_variable awake_;
    std::thread thread_;
};

void count(std::atomic<uint64_t> &counter)
{
    counter.store(counter.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
}

void set(uint64_t &word, uint64_t value)
{
    __atomic_store_n(&word, value, __ATOMIC_RELAXED);
}

/* By default there is room for all of the file. */
HybridLog::HybridLog(const Options &options, Policy policy)
    : medium_(options.domain), each_(options.unit == Unit::write), policy_(policy),
      file_(options.folder + "/file", options.bytes),
      log_(medium_, (options.log_folder.empty() ? options.folder : options.log_folder) + "/log",
           options.log_bytes != 0 ? options.log_bytes
                                  : options.bytes + (options.bytes >> 5) + (8 << 20),
           file_),
      index_(options.bytes), redo_(policy == Policy::redo), epoch_(*log_.epoch())
{
    for (const auto &segment : log_.segments())
        pool_.add(*segment);
    largest_shift_ = LARGEST_SHIFT;
    while (largest_shift_ > UNIT_SHIFT &&
           log_.segments()[0]->units < size_t(8) << (largest_shift_ - UNIT_SHIFT))
        largest_shift_--;
    thread_ = std::thread([this] { work(); });
}

/* What no unit has ended stays in the log, and recovery takes it back. */
HybridLog::~HybridLog()
{
    {
        const std::lock_guard<std::mutex> hold(idle_lock_);
        stop_ = true;
    }
    awake_.notify_one();
    thread_.join();
    checkpoint(Wait::yes);
}

unsigned HybridLog::shift_of(size_t n) const
{
    unsigned shift = UNIT_SHIFT;
    while (shift < largest_shift_ && size_t(1) << shift < n)
        shift++;
    return shift;
}

/* Takes the file's lock as a reader. */
Table &HybridLog::enter_to_write(uint64_t offset, size_t n)
{
    const unsigned shift = shift_of(n);
    Table &table = index_.make(offset, shift);

    lock_.lock_shared();
    while (table.shift.load(std::memory_order_relaxed) != shift && table.empty()) {
        lock_.unlock_shared();
        lock_.lock();
        if (table.empty())
            table.shift.store(shift, std::memory_order_relaxed);
        lock_.unlock();
        lock_.lock_shared();
    }
    return table;
}

HybridLog::Part HybridLog::part(Table &table, uint64_t offset, size_t n) const
{
    const unsigned shift = table.shift.load(std::memory_order_relaxed);
    const size_t leaf = (offset - table.base) >> shift, first = offset & ((size_t(1) << shift) - 1);
    return {table, leaf, first, std::min(n, (size_t(1) << shift) - first),
            file_.at(offset - first)};
}

void HybridLog::write(uint64_t offset, const void *src, size_t n)
{
    if (n == 0)
        return;
    const auto *from = static_cast<const char *>(src);
    Table *table = &enter_to_write(offset, n);
    const uint64_t epoch = epoch_.load(std::memory_order_relaxed);
    const bool redo = redo_.load(std::memory_order_relaxed);
    Block *freed = nullptr;

    count(writes_);
    for (;;) {
        const Part now = part(*table, offset, n);
        if (redo)
            write_redo(now, from, epoch, freed);
        else
            write_undo(now, from, epoch, freed);
        offset += now.bytes, from += now.bytes, n -= now.bytes;
        if (n == 0)
            break;
        if (offset >> LARGEST_SHIFT != table->base >> LARGEST_SHIFT)
            table = &index_.make(offset, shift_of(n));
    }
    medium_.fence(); /* all of it is durable before any thread may end the unit */
    pool_.give(freed);
    if (each_ && lock_.upgrade()) {
        end_unit();
        lock_.unlock();
        return;
    }
    lock_.unlock_shared();
    if (each_) {
        lock_.lock();
        if (epoch_.load(std::memory_order_relaxed) == epoch)
            end_unit();
        lock_.unlock();
    }
}

/* The new bytes go into the log. */
void HybridLog::write_redo(const Part &part, const char *src, uint64_t epoch, Block *&freed)
{
    Leaf &leaf = *part;
    const uint32_t first = static_cast<uint32_t>(part.first),
                   end = static_cast<uint32_t>(part.first + part.bytes);
    const std::lock_guard<Lock> hold(leaf.lock);
    Block *block = leaf.block.load(std::memory_order_relaxed);

    if (block != nullptr && leaf.epoch.load(std::memory_order_relaxed) == epoch) {
        /* Of this unit: one delta is made of both. */
        const uint32_t old_first = leaf.first, old_end = old_first + leaf.bytes;
        if (old_end < first)
            medium_.copy(block->data + old_end, part.home + old_end, first - old_end);
        if (end < old_first)
            medium_.copy(block->data + end, part.home + end, old_first - end);
        medium_.copy(block->data + first, src, part.bytes);
        if (old_first <= first && end <= old_end)
            return;
        leaf.first = std::min(first, old_first);
        leaf.bytes = std::max(end, old_end) - leaf.first;
        set(block->record->range, range(leaf.first, leaf.bytes));
        medium_.flush(&block->record->range, sizeof(uint64_t));
        return;
    }

    if (block != nullptr) {
        /* Committed: to the file. The record must not be there any more when a later one of this block is committed; this
         * write's fence comes before that. */
        medium_.copy(part.home + leaf.first, block->data + leaf.first, leaf.bytes);
        medium_.fence();
        medium_.store(&block->record->state, state(0, FREE));
        index_.set(part.table, part.leaf, nullptr);
        block->next = freed;
        freed = block;
    }
    block = take(part.table.shift.load(std::memory_order_relaxed), freed);
    medium_.copy(block->data + first, src, part.bytes);
    set(block->record->block, static_cast<uint64_t>(part.home - file_.at(0)));
    set(block->record->range, range(first, part.bytes));
    set(block->record->state, state(epoch, REDO));
    medium_.flush(block->record, sizeof(*block->record));
    leaf.first = first;
    leaf.bytes = static_cast<uint32_t>(part.bytes);
    leaf.epoch.store(epoch, std::memory_order_relaxed);
    index_.set(part.table, part.leaf, block);
}

/* The old bytes go into the log, the new ones into the file. */
void HybridLog::write_undo(const Part &part, const char *src, uint64_t epoch, Block *&freed)
{
    Leaf &leaf = *part;
    const uint32_t first = static_cast<uint32_t>(part.first),
                   end = static_cast<uint32_t>(part.first + part.bytes);
    const std::lock_guard<Lock> hold(leaf.lock);
    Block *block = leaf.block.load(std::memory_order_relaxed);

    if (block != nullptr && leaf.epoch.load(std::memory_order_relaxed) == epoch) {
        /* The log has what was there before the unit; what is around it has not been written. */
        const uint32_t old_first = leaf.first, old_end = old_first + leaf.bytes;
        if (first < old_first)
            medium_.copy(block->data + first, part.home + first, old_first - first);
        if (old_end < end)
            medium_.copy(block->data + old_end, part.home + old_end, end - old_end);
        if (first < old_first || old_end < end) {
            leaf.first = std::min(first, old_first);
            leaf.bytes = std::max(end, old_end) - leaf.first;
            medium_.fence(); /* the old bytes are durable before the range has them */
            medium_.store(&block->record->range, range(leaf.first, leaf.bytes));
            medium_.fence(); /* and that, before the file changes */
        }
    } else {
        /* A record of an earlier epoch says nothing on the media: its log block is used again. */
        if (block == nullptr)
            block = take(part.table.shift.load(std::memory_order_relaxed), freed);
        medium_.copy(block->data + first, part.home + first, part.bytes);
        set(block->record->block, static_cast<uint64_t>(part.home - file_.at(0)));
        set(block->record->range, range(first, part.bytes));
        medium_.flush(block->record, sizeof(*block->record));
        medium_.fence(); /* all of it is durable before it counts */
        medium_.store(&block->record->state, state(epoch, UNDO));
        medium_.fence(); /* and that, before the file changes */
        leaf.first = first;
        leaf.bytes = static_cast<uint32_t>(part.bytes);
        leaf.epoch.store(epoch, std::memory_order_relaxed);
        index_.set(part.table, part.leaf, block);
    }
    medium_.copy(part.home + first, src, part.bytes);
}

/* A free log block. The caller holds the lock of a leaf that has none, and the file's as a reader. */
Block *HybridLog::take(unsigned shift, Block *&freed)
{
    for (;;) {
        if (Block *block = pool_.take(shift))
            return block;
        if (freed != nullptr) {
            medium_.fence();
            pool_.give(freed);
            freed = nullptr;
            continue;
        }
        if (checkpoint(Wait::no)) {
            sched_yield();
            continue;
        }
        const std::lock_guard<std::mutex> hold(growing_);
        if (Block *block = pool_.take(shift)) /* of another thread's new segment, perhaps */
            return block;
        pool_.add(log_.grow());
    }
}

void HybridLog::read(void *dst, uint64_t offset, size_t n)
{
    auto *to = static_cast<char *>(dst);

    lock_.lock_shared();
    count(reads_);
    if (!redo_.load(std::memory_order_relaxed)) {
        std::memcpy(to, file_.at(offset), n);
        lock_.unlock_shared();
        return;
    }
    while (n > 0) {
        Table *table = index_.find(offset);
        if (table == nullptr) {
            const size_t bytes =
                std::min<size_t>(n, (((offset >> LARGEST_SHIFT) + 1) << LARGEST_SHIFT) - offset);
            std::memcpy(to, file_.at(offset), bytes);
            to += bytes, offset += bytes, n -= bytes;
            continue;
        }
        const Part now = part(*table, offset, n);
        if ((*now).block.load(std::memory_order_acquire) == nullptr)
            std::memcpy(to, now.home + now.first, now.bytes);
        else
            read_delta(to, now);
        to += now.bytes, offset += now.bytes, n -= now.bytes;
    }
    lock_.unlock_shared();
}

/* From the file, and over it what the log has. */
void HybridLog::read_delta(char *to, const Part &part)
{
    Leaf &leaf = *part;

    leaf.lock.lock_shared();
    const Block *block = leaf.block.load(std::memory_order_relaxed);
    const size_t first = std::max<size_t>(part.first, leaf.first),
                 end = std::min<size_t>(part.first + part.bytes, leaf.first + leaf.bytes);
    const bool is_newer = block != nullptr && first < end;
    if (!is_newer || end - first < part.bytes)
        std::memcpy(to, part.home + part.first, part.bytes);
    if (is_newer)
        std::memcpy(to + (first - part.first), block->data + first, end - first);
    leaf.lock.unlock_shared();
}

void HybridLog::sync()
{
    if (each_)
        return;
    lock_.lock();
    end_unit();
    lock_.unlock();
}

/* The caller holds the file's lock as the writer, and what has been written is durable. */
void HybridLog::end_unit()
{
    const uint64_t reads = reads_.load(std::memory_order_relaxed),
                   writes = writes_.load(std::memory_order_relaxed);

    if (writes != 0) {
        const uint64_t next = epoch_.load(std::memory_order_relaxed) + 1;
        medium_.store(log_.epoch(), next);
        medium_.fence(); /* before any thread believes in it */
        epoch_.store(next);
        if (idle_.load()) {
            const std::lock_guard<std::mutex> hold(idle_lock_);
            idle_.store(false);
            awake_.notify_one();
        }
    }
    if (policy_ == Policy::hybrid && reads + writes != 0) {
        const bool redo = writes * 100 >= (reads + writes) * REDO_PERCENT;
        if (redo != redo_.load(std::memory_order_relaxed)) {
            checkpoint(Wait::yes);
            redo_.store(redo, std::memory_order_relaxed);
        }
    }
    reads_.store(0, std::memory_order_relaxed);
    writes_.store(0, std::memory_order_relaxed);
}

/*
 * Copies committed deltas to the file; with Wait::yes all of them, otherwise those whose leaves are not locked. Returns true if
 * there were any. A thread that waits takes the leaves in ascending order; one that holds a leaf already must not wait.
 */
bool HybridLog::checkpoint(Wait wait)
{
    const uint64_t current = epoch_.load();
    bool were_any = false;

    index_.each_used([&](Table &table) {
        Batch batch;
        for (size_t i = 0; i < Table::LEAVES; i++) {
            const uint64_t bits = table.used[i / 64].load(std::memory_order_relaxed) >> i % 64;
            if (bits == 0) {
                i |= 63;
                continue;
            }
            i += static_cast<size_t>(__builtin_ctzll(bits));
            Leaf &leaf = table.leaves[i];
            if (leaf.block.load(std::memory_order_relaxed) == nullptr ||
                leaf.epoch.load(std::memory_order_relaxed) >= current)
                continue;
            were_any = true;
            if (wait == Wait::yes)
                leaf.lock.lock();
            else if (!leaf.lock.try_lock())
                continue;
            Block *block = leaf.block.load(std::memory_order_relaxed);
            if (block == nullptr || leaf.epoch.load(std::memory_order_relaxed) >= current) {
                leaf.lock.unlock();
                continue;
            }
            if (redo_.load(std::memory_order_relaxed)) {
                const uint64_t begin =
                    table.base + (i << table.shift.load(std::memory_order_relaxed));
                medium_.copy(file_.at(begin + leaf.first), block->data + leaf.first, leaf.bytes);
                batch.bytes += leaf.bytes;
            }
            batch.held[batch.count++] = {i, block};
            if (batch.count == MOST_HELD || batch.bytes >= MOST_HELD_BYTES)
                finish(table, batch);
        }
        finish(table, batch);
    });
    return were_any;
}

/* Frees what has been copied. The policy cannot have changed: who changes it waits for the leaves. */
void HybridLog::finish(Table &table, Batch &batch)
{
    Block *freed = nullptr;

    if (batch.bytes != 0) {
        medium_.fence(); /* the bytes are in the file before the records go */
        for (size_t i = 0; i < batch.count; i++)
            medium_.store(&batch.held[i].block->record->state, state(0, FREE));
        medium_.fence(); /* and these have gone before the log blocks are used again */
    }
    for (size_t i = 0; i < batch.count; i++) {
        const auto [leaf, block] = batch.held[i];
        index_.set(table, leaf, nullptr);
        table.leaves[leaf].lock.unlock();
        block->next = freed;
        freed = block;
    }
    pool_.give(freed);
    batch = {};
}

/* The thread in the background. When it has found nothing for a while, it waits for the end of a unit. */
void HybridLog::work()
{
    constexpr unsigned MOST_IN_VAIN = 10;
    unsigned in_vain = 0;

    std::unique_lock<std::mutex> hold(idle_lock_);
    while (!stop_) {
        if (in_vain < MOST_IN_VAIN) {
            awake_.wait_for(hold, PERIOD);
            hold.unlock();
            in_vain = checkpoint(Wait::no) ? 0 : in_vain + 1;
            hold.lock();
            continue;
        }
        idle_.store(
            true); /* before it looks once more: end_unit() stores the epoch before it looks here */
        if (!checkpoint(Wait::no))
            awake_.wait(hold, [this] { return stop_ || !idle_.load(); });
        idle_.store(false);
        in_vain = 0;
    }
}

void HybridLog::settle()
{
    checkpoint(Wait::yes);
}

template <Policy policy> std::unique_ptr<Engine> map(const Options &options)
{
    return std::make_unique<HybridLog>(options, policy);
}

/* The paper is about memory alone. */
bool takes_part(const Options &options)
{
    return options.domain != Domain::disk;
}

Promise promise(const Options &options)
{
    return options.unit == Unit::sync ? Promise::shared : Promise::atomic;
}

} // namespace

const Kind HYBRID_LOG = {
    "hybrid-log",
    "Libnvmmio's scheme: a delta for each block in an undo or a redo log, committed by an epoch of "
    "the file, copied in the "
    "background",
    takes_part,
    promise,
    map<Policy::hybrid>,
};

const Kind HYBRID_UNDO = {
    "hybrid-undo",     "hybrid-log that always keeps old bytes in the log (undo)",
    takes_part,        promise,
    map<Policy::undo>,
};

const Kind HYBRID_REDO = {
    "hybrid-redo",     "hybrid-log that always keeps new bytes in the log (redo)",
    takes_part,        promise,
    map<Policy::redo>,
};

} // namespace engine
