/* SPDX-License-Identifier: BSD-3-Clause */
#include "hybrid_log_pool.h"

#include <algorithm>
#include <mutex>

namespace engine::hybrid
{

namespace
{

size_t units(unsigned shift)
{
    return size_t(1) << (shift - UNIT_SHIFT);
}

} // namespace

void Pool::add(const Segment &segment)
{
    std::vector<Block> blocks(segment.units);
    for (size_t unit = 0; unit < segment.units; unit++) {
        blocks[unit].record = segment.records + unit;
        blocks[unit].data = segment.data + (unit << UNIT_SHIFT);
        blocks[unit].shift = UNIT_SHIFT;
        blocks[unit].free = true;
    }
    const std::lock_guard<Lock> hold(lock_);
    segments_.push_back(std::move(blocks));
    join();
}

Block *Pool::take(unsigned shift)
{
    const std::lock_guard<Lock> hold(lock_);
    if (Block *block = pop(shift))
        return block;
    join();
    return pop(shift);
}

void Pool::give(Block *list)
{
    if (list == nullptr)
        return;
    const std::lock_guard<Lock> hold(lock_);
    while (list != nullptr) {
        Block *next = list->next;
        push(list);
        list = next;
    }
}

void Pool::push(Block *block)
{
    block->free = true;
    block->next = lists_[block->shift];
    lists_[block->shift] = block;
}

Block *Pool::pop(unsigned shift)
{
    unsigned from = shift;
    while (from <= LARGEST_SHIFT && lists_[from] == nullptr)
        from++;
    if (from > LARGEST_SHIFT)
        return nullptr;

    Block *block = lists_[from];
    lists_[from] = block->next;
    while (from > shift) {
        from--;
        block[units(from)].shift = static_cast<uint8_t>(from);
        push(block + units(from));
    }
    block->shift = static_cast<uint8_t>(shift);
    block->free = false;
    return block;
}

/* Free neighbours become one. The lists begin with the lowest blocks. */
void Pool::join()
{
    std::fill(std::begin(lists_), std::end(lists_), nullptr);
    for (auto segment = segments_.rbegin(); segment != segments_.rend(); ++segment) {
        std::vector<Block> &blocks = *segment;
        for (unsigned shift = UNIT_SHIFT; shift < LARGEST_SHIFT; shift++)
            for (size_t unit = 0; unit + units(shift + 1) <= blocks.size();
                 unit += units(shift + 1)) {
                Block &low = blocks[unit], &high = blocks[unit + units(shift)];
                if (low.free && high.free && low.shift == shift && high.shift == shift) {
                    low.shift++;
                    high.free = false;
                }
            }
        for (size_t unit = blocks.size(); unit-- > 0;)
            if (blocks[unit].free)
                push(&blocks[unit]);
    }
}

} // namespace engine::hybrid
