// SPDX-License-Identifier: BSD-3-Clause
//
// Unmaps: fast and spatial, alone and with others.
#include "world.h"

#include "support/child.h"

#include "ato_engine.h"

#include <algorithm>
#include <stdexcept>

#include <unistd.h>

namespace fault
{

using namespace support;

static const std::vector<int> EVERY = {ATO_DOMAIN_PROCESS, ATO_DOMAIN_PMEM, ATO_DOMAIN_DISK};
static const std::vector<int> TWO = {ATO_DOMAIN_PROCESS, ATO_DOMAIN_DISK};

static constexpr size_t BYTES = 8 * 4096 + 100, CHUNK = 512 * 4096, LONG = 249 * 4096;

static bool map_and_write(World &w)
{
    bool ok = w.map() && w.write(4096 - 100, w.news(4096 - 100, 9000, 5)) &&
              w.write(6 * 4096 + 5, w.news(6 * 4096 + 5, 100, 6)) &&
              w.write(6 * 4096 + 9, w.news(6 * 4096 + 9, 10, 7));
    w.before = w.after;
    return ok;
}

// More pages than a small lane takes.
static bool map_and_write_all(World &w)
{
    bool ok = w.map() && w.write(100, w.news(100, LONG, 5));
    w.before = w.after;
    return ok;
}

static bool map(World &w)
{
    return w.map();
}

static void killed(World &w)
{
    Bytes one = w.news(4096 + 100, 700, 2);
    if (in_child([&] { return w.map() && w.write(4096 + 100, one) ? 0 : 1; }) != 0)
        throw std::runtime_error("the past");
    w.before = w.after;
}

static bool map_twice(World &w)
{
    if (!w.map())
        return false;
    w.second = w.base;
    return map_and_write(w);
}

static void sparse(World &w)
{
    size_t n = w.after.size();
    if (truncate(w.file.c_str(), 0) < 0 || truncate(w.file.c_str(), static_cast<off_t>(n)) < 0)
        throw std::runtime_error("truncate");
    w.before = w.after = Bytes(n);
}

// A page and a run in each chunk.
static bool map_and_write_chunks(World &w)
{
    bool ok = w.map();
    for (size_t chunk = 0; ok && chunk <= w.after.size() / CHUNK; chunk++) {
        size_t at = chunk * CHUNK + 5 * 4096 + 10;
        ok = w.write(at, w.news(at, 100, 8)) &&
             w.write(at + 9 * 4096, w.news(at + 9 * 4096, 900, 9)) &&
             w.write(at + 10 * 4096, w.news(at + 10 * 4096, 900, 9));
    }
    w.before = w.after;
    return ok;
}

// The bytes behind the end go with the mapping.
static bool map_and_shrink(World &w)
{
    bool ok = map_and_write(w) && ato_ftruncate(w.base, 4096 + 100) == 0;
    w.after.resize(4096 + 100);
    w.before = w.after;
    return ok;
}

static bool map_with_a_guard(World &w)
{
    Bytes plain(w.before.begin() + 8, w.before.begin() + 18);
    bool ok = map_and_write(w) && ato_set_guard(w.base, 8, plain.data(), plain.size()) == 0 &&
              w.write(8, Bytes(plain.size(), 0xee), ATO_EAGER);
    std::fill_n(w.before.begin() + 8, plain.size(), 0xee);
    return ok;
}

static bool unmap_fast(World &w)
{
    return w.unmap(ATO_UNMAP_FAST);
}

static bool map_and_reclaim(World &w)
{
    return map_and_write(w) && ato_deploy(w.base, 4 * 4096) == 0 &&
           ato_reclaim(w.base, w.after.size()) == 0;
}

static bool unmap_spatially(World &w)
{
    return w.unmap(ATO_UNMAP_SPATIAL);
}

static bool unmap_by_threads(World &w)
{
    return w.unmap(ATO_UNMAP_SPATIAL, 2);
}

static bool is_plain(World &w)
{
    return read_file(w.file) == w.after && attribute_of(w.file).empty();
}

static bool is_paired(World &w)
{
    return !attribute_of(w.file).empty() && exists(reflection_of(w.file));
}

std::vector<Scene> scenes_of_unmaps()
{
    return {
        {"FastUnmap", UNMAPS, BYTES, EVERY, {}, map_and_write, unmap_fast, is_paired},
        {"FastUnmapThatGivesBack",
         UNMAPS,
         BYTES,
         {ATO_DOMAIN_PROCESS, ATO_DOMAIN_PMEM},
         {},
         map_and_reclaim,
         unmap_fast,
         is_paired},
        {"FastUnmapThatCutsTheLongLaneOff",
         UNMAPS,
         LONG + 4096,
         {ATO_DOMAIN_PROCESS},
         {},
         map_and_write_all,
         unmap_fast,
         is_paired},
        {"FastUnmapWithoutAccess", UNMAPS, BYTES, EVERY, killed, map, unmap_fast, is_paired},
        {"SpatialUnmap", UNMAPS, BYTES, EVERY, {}, map_and_write, unmap_spatially, is_plain},
        {"FastUnmapOfAShorterFile",
         UNMAPS,
         BYTES,
         EVERY,
         {},
         map_and_shrink,
         unmap_fast,
         is_paired},
        {"SpatialUnmapOfAShorterFile",
         UNMAPS,
         BYTES,
         TWO,
         {},
         map_and_shrink,
         unmap_spatially,
         is_plain},
        {"SpatialUnmapWithoutAccess", UNMAPS, BYTES, TWO, killed, map, unmap_spatially, is_plain},
        {"SpatialUnmapByThreads", UNMAPS, CHUNK + 20 * 4096, TWO, sparse, map_and_write_chunks,
         unmap_by_threads, is_plain, true},
        {"SpatialUnmapOfAGuarded",
         UNMAPS,
         BYTES,
         TWO,
         {},
         map_with_a_guard,
         unmap_spatially,
         is_plain},
        {"UnmapOfOneOfTwoMappings", UNMAPS, BYTES, TWO, {}, map_twice, unmap_spatially, is_paired},
    };
}

} // namespace fault
