// SPDX-License-Identifier: BSD-3-Clause
#include "scenes.h"

namespace crash
{

namespace
{

constexpr uint64_t TWO_CHUNKS = CHUNK + 3 * PAGE + 1003;

// Everything happens near the place where the chunks meet; the rest of the file does not change.
uint64_t near_seam(Actor &a, uint64_t bytes)
{
    return CHUNK - PAGE - bytes / 2 + a.random.below(2 * PAGE);
}

void before_chunks(Actor &a)
{
    Mapping *m = a.map(0, ATO_READ_GATHER, ATO_NO_RTM);
    litter(a, 0);
    for (int i = 0; i < 6; i++) {
        uint64_t n = 1 + a.random.below(a.random.one_in(3) ? 2 * PAGE : 700);
        a.write(m, near_seam(a, n), n);
    }
    litter_lanes(a);
}

// Commits whose words lie in both meta pages.
void write_over_chunks(Actor &a)
{
    uint64_t left = 1 + a.random.below(90);
    a.write(the(a), CHUNK - left, left + 1 + a.random.below(90));
    a.write(the(a), CHUNK - PAGE - a.random.below(PAGE), 3 * PAGE);
    a.write(the(a), CHUNK + a.random.below(PAGE), 1 + a.random.below(2 * PAGE));
    a.write(the(a), CHUNK - 3, 3);
}

void deploy_over_chunks(Actor &a)
{
    a.deploy(the(a), CHUNK - PAGE, 2 * PAGE);
    a.write(the(a), CHUNK - 100, 300);
    a.deploy(the(a), 0, the(a)->bytes);
}

void unmap_chunks(Actor &a)
{
    a.unmap(the(a), ATO_UNMAP_FAST);
    Mapping *m = a.map(0, ATO_READ_GATHER, ATO_NO_RTM);
    a.check(m);
    a.write(m, CHUNK - 30, 100);
    a.unmap(m, ATO_UNMAP_SPATIAL);
    a.demand.plain = true;
    a.allow_this();
}

void before_chunks_two_dead(Actor &a)
{
    before_chunks(a);
    a.unmap(the(a), ATO_UNMAP_FAST);
}

void chunks_two_dead(Actor &a)
{
    die_twice(a, CHUNK + PAGE * a.random.below(3) + a.random.below(3000));
}

} // namespace

const std::vector<Case> &chunk_cases()
{
    static const std::vector<Case> cases = {
        {"two chunks, writes", PMEM, {TWO_CHUNKS}, before_chunks, write_over_chunks, 0, nullptr, 0},
        {"two chunks, deploy",
         PMEM,
         {TWO_CHUNKS},
         before_chunks,
         deploy_over_chunks,
         0,
         nullptr,
         0},
        {"two chunks, unmap", PMEM, {TWO_CHUNKS}, before_chunks, unmap_chunks, 0, nullptr, 0},
        {"two chunks, two dead", PMEM, {TWO_CHUNKS}, before_chunks_two_dead, chunks_two_dead},
    };
    return cases;
}

} // namespace crash
