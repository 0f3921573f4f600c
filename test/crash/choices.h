// SPDX-License-Identifier: BSD-3-Clause
//
// Chooses the crashes to explore at a moment. A crash has a number. Up to EXHAUSTIVE crashes there
// are all combinations; beyond that: all lost, all kept, each group alone and its inverse, pairs of
// groups, and then random ones without end. A number means the same crash whenever seed and moment
// are the same, independent of the number of crashes explored.
#ifndef ATO_TEST_CRASH_CHOICES_H
#define ATO_TEST_CRASH_CHOICES_H

#include "media.h"

namespace crash
{

class Choices
{
  public:
    static constexpr uint64_t EXHAUSTIVE = 4096;

    Choices(const std::vector<Unit> &units, uint64_t seed);

    // The number of crashes; 0: more than EXHAUSTIVE.
    uint64_t all() const
    {
        return total;
    }
    std::vector<uint32_t> pick(uint64_t number) const;
    // At most `limit` numbers, all different, the extremes first.
    std::vector<uint64_t> numbers(uint64_t limit) const;

  private:
    const std::vector<Unit> &units;
    uint64_t seed, total;
    std::vector<uint64_t> groups; // distinct, sorted
    std::vector<size_t> group_of; // by unit
    uint64_t pairs;

    std::vector<uint32_t> random(uint64_t number) const;
};

} // namespace crash

#endif
