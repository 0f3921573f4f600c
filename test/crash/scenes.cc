// SPDX-License-Identifier: BSD-3-Clause
#include "scenes.h"

extern "C" {
#include "reflection/format/lane.h"
#include "reflection/format/log.h"
#include "reflection/format/manifest.h"
#include "reflection/pairing/birth.h"
}

#include <algorithm>

namespace crash
{

static std::vector<uint64_t> garbage(Actor &a, uint64_t bytes)
{
    std::vector<uint64_t> words(bytes / 8);
    for (uint64_t &w : words)
        w = a.random.next();
    return words;
}

void litter(Actor &a, int file)
{
    std::string own = ".ato/" + std::to_string(a.world.number_of(file));
    if (a.domain == ATO_DOMAIN_DISK) {
        a.world.poke(own, LOG_RING_AT, garbage(a, birth_ring_bytes));
        return;
    }
    uint64_t bytes = (a.world.size_of(file) + PAGE - 1) / PAGE * PAGE;
    const uint64_t chunk = a.world.sparse ? CHUNK / 2 : CHUNK;
    for (uint64_t at = 0; at < bytes; at += chunk) // behind each meta page
        a.world.poke(own, at + (at / chunk + 1) * PAGE, garbage(a, std::min(chunk, bytes - at)));
}

std::string manifest_of(const Actor &a, int file)
{
    return std::to_string(a.world.number_of(file)) + ".manifest";
}

uint64_t lane_in_manifest(unsigned lane)
{
    return manifest_area(0) + lane * LANE_SMALL_BYTES;
}

void litter_lanes(Actor &a)
{
    Disk disk = a.world.look();
    const uint64_t long_lane = manifest_area(MANIFEST_SLOTS);
    for (size_t i = 0; i < a.world.originals(); i++) {
        std::string name = manifest_of(a, static_cast<int>(i));
        int manifest = disk.find(disk.find(Disk::ROOT, ".ato"), name);
        if (manifest < 0)
            continue;
        auto fill = [&](uint64_t lane, uint64_t bytes) {
            if (disk.at(manifest).word(lane))
                a.world.poke(".ato/" + name, lane + LANE_HEAD_BYTES,
                             garbage(a, bytes - LANE_HEAD_BYTES));
        };
        for (unsigned lane = 0; lane < LANE_SMALL; lane++)
            fill(lane_in_manifest(lane), LANE_SMALL_BYTES);
        fill(long_lane, 2 * PAGE);
    }
}

Mapping *mapped(Actor &a, unsigned flags, int policy)
{
    Mapping *m = a.map(0, policy, flags);
    litter(a, 0);
    a.scatter(m, 6);
    litter_lanes(a);
    return m;
}

Mapping *the(Actor &a, size_t n)
{
    return a.world.mapping(n);
}

uint64_t a_page(Actor &a)
{
    return a.random.below(5) * PAGE;
}

void before_plain(Actor &a)
{
    mapped(a, ATO_NO_RTM);
}

void before_two(Actor &a)
{
    mapped(a, ATO_NO_RTM);
    Mapping *m = a.map(1, ATO_READ_GATHER, ATO_NO_RTM);
    litter(a, 1);
    a.scatter(m, 6);
}

void before_long(Actor &a)
{
    before_plain(a);
    write_long(a);
    litter_lanes(a);
}

void write_long(Actor &a)
{
    a.write_sparsely(the(a), 5 * PAGE, 270 * PAGE);
}

} // namespace crash
