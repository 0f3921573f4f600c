/* SPDX-License-Identifier: BSD-3-Clause */
#include "world.h"

#include "reflection/format/layout.h"

#include <algorithm>
#include <cinttypes>
#include <cstring>

namespace bench
{

World::World(std::vector<std::unique_ptr<Backend>> sides, uint64_t file_bytes)
    : sides_(std::move(sides)), file_bytes_(file_bytes), source_(SOURCE_SPAN + MAX_WRITE)
{
    for (size_t i = 0; i < source_.size(); i += 8) {
        uint64_t word = random_();
        std::memcpy(&source_[i], &word, 8);
    }
}

const char *World::source() const
{
    return source_.data() + (64 - reinterpret_cast<uintptr_t>(source_.data()) % 64) % 64;
}

uint32_t World::random_source()
{
    return static_cast<uint32_t>(random_() % (SOURCE_SPAN / 64) * 64);
}

std::vector<Write> World::random_writes(uint32_t bytes, size_t count, uint64_t first, uint64_t span)
{
    std::vector<Write> writes(count);
    for (Write &w : writes)
        w = {first + random_() % (span / bytes) * bytes, bytes, random_source()};
    return writes;
}

void World::check_content()
{
    constexpr size_t STEP = 1 << 20;
    std::vector<char> expected(STEP), found(STEP);
    for (uint64_t offset = 0; offset < file_bytes_; offset += STEP) {
        stop_if_asked();
        sides_[0]->read(expected.data(), offset, STEP);
        for (auto &side : sides_) {
            side->read(found.data(), offset, STEP);
            if (found != expected)
                fail("%s holds other bytes than %s within a MiB from offset %" PRIu64, side->name(),
                     sides_[0]->name(), offset);
        }
    }
}

void World::fill_all(const std::vector<Write> &writes)
{
    stop_if_asked();
    for (auto &side : sides_)
        side->fill(source(), writes.data(), writes.size());
}

/* Each page twice: whole, which leaves it in one home, then half of its slices at random. */
void World::fill_at_random()
{
    std::vector<Write> writes;
    for (uint64_t chunk = 0; chunk < file_bytes_; chunk += CHUNK_PAGES * PAGE_BYTES) {
        uint64_t end = std::min<uint64_t>(chunk + CHUNK_PAGES * PAGE_BYTES, file_bytes_);
        writes.clear();
        for (uint64_t page = chunk; page < end; page += PAGE_BYTES)
            writes.push_back({page, PAGE_BYTES, random_source()});
        for (uint64_t page = chunk; page < end; page += PAGE_BYTES)
            add_runs(&writes, page, random_());
        fill_all(writes);
    }
}

/* One write for each run of ones of the mask. */
void World::add_runs(std::vector<Write> *writes, uint64_t page, uint64_t mask)
{
    for (uint32_t slice = 0; slice < PAGE_SLICES; slice++) {
        uint32_t first = slice;
        while (slice < PAGE_SLICES && mask >> slice & 1)
            slice++;
        if (slice > first)
            writes->push_back({page + first * SLICE_BYTES,
                               static_cast<uint32_t>((slice - first) * SLICE_BYTES),
                               random_source()});
    }
}

} // namespace bench
