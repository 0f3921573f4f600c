// SPDX-License-Identifier: BSD-3-Clause
#include "scenes.h"

#include "draft.h"

extern "C" {
#include "reflection/format/journal.h"
#include "reflection/format/manifest.h"
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
    uint64_t bytes = (a.world.size_of(file) + PAGE - 1) / PAGE * PAGE;
    const uint64_t chunk = a.world.sparse ? CHUNK / 2 : CHUNK;
    for (uint64_t at = 0; at < bytes; at += chunk) // behind each meta page
        a.world.poke(own, at + (at / chunk + 1) * PAGE, garbage(a, std::min(chunk, bytes - at)));
}

std::map<std::string, int> journals_in(const Disk &disk)
{
    std::map<std::string, int> found;
    for (const auto &name : disk.at(disk.find(Disk::ROOT, ".ato")).names)
        if (name.first.compare(0, 8, "journal-") == 0 &&
            disk.at(name.second).word(0) == JOURNAL_MAGIC)
            found.insert(name); // not unfinished
    return found;
}

std::string manifest_of(const Actor &a, int file)
{
    return std::to_string(a.world.number_of(file)) + ".manifest";
}

uint64_t lane_in_manifest(unsigned lane)
{
    return manifest_area(0) + MANIFEST_AREA_LANES + lane * JOURNAL_SLOT_BYTES;
}

void litter_journals(Actor &a)
{
    Disk disk = a.world.look();
    for (size_t i = 0; i < a.world.originals(); i++) {
        std::string name = manifest_of(a, static_cast<int>(i));
        int manifest = disk.find(disk.find(Disk::ROOT, ".ato"), name);
        for (unsigned lane = 0; manifest >= 0 && lane < JOURNAL_SLOT_LANES; lane++)
            if (disk.at(manifest).word(lane_in_manifest(lane)))
                a.world.poke(".ato/" + name, lane_in_manifest(lane) + 128,
                             garbage(a, JOURNAL_SLOT_BYTES - 128));
    }
    for (const auto &j : journals_in(disk))
        a.world.poke(".ato/" + j.first, JOURNAL_HEADER_BYTES + 128, garbage(a, PAGE - 128));
}

Mapping *mapped(Actor &a, unsigned flags, int policy)
{
    Mapping *m = a.map(0, policy, flags);
    litter(a, 0);
    a.scatter(m, 6);
    litter_journals(a);
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

void write_both(Actor &a)
{
    Draft t(a);
    for (size_t i = 0; i < 2; i++) {
        uint64_t seam = PAGE * (1 + a.random.below(4));
        t.write(the(a, i), seam - 1 - a.random.below(60), 1 + a.random.below(120));
    }
    t.commit();
}

} // namespace crash
