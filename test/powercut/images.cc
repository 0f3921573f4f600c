// SPDX-License-Identifier: BSD-3-Clause
#include "images.h"

namespace powercut
{

using Versions = std::map<uint64_t, std::vector<const char *>>; // oldest first

static Versions versions(const Tape &tape, uint64_t from, uint64_t to)
{
    Versions all;
    for (; from < to; from++)
        for (uint64_t n = 0; n < tape.events[from].n; n += SECTOR)
            all[(tape.events[from].at + n) / SECTOR].push_back(tape.events[from].bytes + n);
    return all;
}

Sectors written(const Tape &tape, uint64_t from, uint64_t to)
{
    Sectors last;
    for (const auto &[sector, contents] : versions(tape, from, to))
        last[sector] = contents.back();
    return last;
}

uint64_t certain(const Tape &tape, uint64_t from, uint64_t moment)
{
    while (moment > from && tape.events[moment - 1].n)
        moment--;
    return moment;
}

// In turns: what a disk does that keeps the order, one that has lost or kept nearly all, and one without any order.
Sectors choose(const FileSystem &fs, const Tape &tape, uint64_t from, uint64_t to,
               rig::Random &random, std::string *how)
{
    enum { NONE, ALL, FIRST_WRITES, SOME_WRITES, ALL_BUT_ONE, ONLY_ONE, SOME, KINDS = SOME + 3 };
    static const char *const names[] = {"no sector",   "all sectors",         "the first writes",
                                        "some writes", "all sectors but one", "one sector",
                                        "some sectors"};
    const uint64_t kind = std::min<uint64_t>(random.below(KINDS), SOME);
    const Versions all = versions(tape, from, to);
    const uint64_t one = all.empty() ? 0 : random.below(all.size());
    const unsigned percent = static_cast<unsigned>(random.within(5, 95));
    Sectors kept;
    uint64_t index = 0;
    if (kind == FIRST_WRITES) {
        kept = written(tape, from, random.within(from, to));
    } else if (kind == SOME_WRITES) {
        for (; from < to; from++)
            if (random.chance(percent))
                for (const auto &[sector, content] : written(tape, from, from + 1))
                    kept[sector] = content;
    } else {
        size_t version = 0; // from 1; 0: the sector is lost
        for (const auto &[sector, contents] : all) {
            const bool is_one = index++ == one;
            if (sector <= fs.whole || sector > fs.whole + fs.more)
                version = kind == SOME ? random.chance(percent) * random.within(1, contents.size())
                          : kind == ALL || (kind == ALL_BUT_ONE) != is_one ? contents.size()
                                                                           : 0;
            if (version)
                kept[sector] = contents[version - 1];
        }
    }
    *how = std::string(names[kind]) + ": " + std::to_string(kept.size()) + " of " +
           std::to_string(all.size()) + " sectors";
    return kept;
}

} // namespace powercut
