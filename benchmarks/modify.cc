/* SPDX-License-Identifier: BSD-3-Clause */
#include "modify.h"

#include "reflection/format/layout.h"

#include <algorithm>

namespace bench
{

enum { RECORDS = 64, READS = 0, WRITES = 1 };

Records::Records(AtoFile *file, World *world, uint64_t first_page, uint32_t bytes)
    : file_(file), world_(world)
{
    for (uint64_t i = 0; i < RECORDS; i++)
        places_.push_back({(first_page + i * 2) * PAGE_BYTES, bytes, 0});
}

/* Reads two records, then writes them. */
void Records::modify(const Write *places, bool reads, bool writes)
{
    char bytes[2][8192];
    ato_tx *tx = ato_tx_begin(0);
    for (int turn = reads ? 0 : 1; tx && turn < (writes ? 2 : 1); turn++)
        for (size_t i = 0; i < 2; i++) {
            char *at = file_->at(places[i].offset);
            if (!(turn ? ato_tx_memcpy(tx, at, world_->source(), places[i].bytes, 0)
                       : ato_tx_memcpy(tx, bytes[i], at, places[i].bytes, 0)))
                fail("ato_tx_memcpy: %s", ato_errormsg());
        }
    if (!tx || ato_tx_commit(tx) != 0)
        fail("a transaction: %s", ato_errormsg());
}

void Records::go_through(size_t side)
{
    for (size_t i = 0; i < RECORDS; i += 2)
        modify(&places_[i], side != WRITES, side != READS);
}

/* Each side goes through all records once, so that none is read from a cache. */
std::vector<Values> Records::measure(const std::function<void(size_t side)> &before)
{
    std::vector<Values> values = interleave(
        3, settings.rounds(),
        [&] { std::shuffle(places_.begin(), places_.end(), world_->random()); },
        [&](size_t side) {
            before(side);
            go_through(WRITES);
            return ns_of([&] { go_through(side); }) / (RECORDS / 2);
        });
    values[2]["of_parts"] = values[2]["ns"] / (values[READS]["ns"] + values[WRITES]["ns"]);
    return values;
}

Case modify_case(const std::string &name, const std::function<std::vector<Values>()> &repeat)
{
    Case c;
    c.name = name;
    c.sides = {"reads", "writes", "both"};
    c.goals = {{"both", "of_parts", 1.15}};
    c.repeat = repeat;
    c.promise = [](const std::string &) { return std::string("pmem: atomic and durable"); };
    return c;
}

} // namespace bench
