// SPDX-License-Identifier: BSD-3-Clause
#include "choices.h"

#include <algorithm>
#include <set>

namespace crash
{

Choices::Choices(const std::vector<Unit> &u, uint64_t s) : units(u), seed(s), total(1)
{
    std::map<uint64_t, size_t> known;
    for (const Unit &unit : units) {
        total = total && total * unit.choices <= EXHAUSTIVE ? total * unit.choices : 0;
        auto found = known.try_emplace(unit.group, known.size()).first;
        group_of.push_back(found->second);
    }
    groups.resize(known.size());
    pairs = groups.size() <= 40 ? groups.size() * (groups.size() - 1) / 2 : 0;
}

std::vector<uint32_t> Choices::random(uint64_t number) const
{
    Random r(seed ^ mix(number));
    std::vector<uint32_t> choice(units.size());
    uint64_t how = r.below(5);
    std::vector<uint64_t> by_group(groups.size());
    for (uint64_t &g : by_group)
        g = r.next();
    for (size_t i = 0; i < units.size(); i++) {
        uint32_t any = static_cast<uint32_t>(r.below(units[i].choices));
        uint32_t all = units[i].choices - 1;
        uint64_t group = by_group[group_of[i]];
        if (how == 0) // anything
            choice[i] = any;
        else if (how == 1) // a few are lost
            choice[i] = r.one_in(8) ? any : all;
        else if (how == 2) // a few are kept
            choice[i] = r.one_in(8) ? any : 0;
        else if (how == 3) // whole groups
            choice[i] = group & 1 ? all : 0;
        else // whole groups, a few of which in part
            choice[i] = group % 8 < 2 ? any : group & 1 << 10 ? all : 0;
    }
    return choice;
}

std::vector<uint32_t> Choices::pick(uint64_t number) const
{
    std::vector<uint32_t> choice(units.size());
    if (total) {
        for (size_t i = 0; i < units.size(); i++) {
            choice[i] = static_cast<uint32_t>(number % units[i].choices);
            number /= units[i].choices;
        }
        return choice;
    }
    uint64_t n = groups.size(), asked = number;
    bool keep = true;
    std::set<size_t> chosen;
    if (number < 2) {
        keep = number == 0; // 0: nothing is kept; 1: everything
    } else if ((number -= 2) < 2 * n) {
        chosen.insert(number / 2);
        keep = number % 2 == 0;
    } else if ((number -= 2 * n) < pairs) {
        size_t a = 0;
        while (number >= n - 1 - a)
            number -= n - 1 - a++;
        chosen = {a, a + 1 + number};
    } else {
        return random(asked);
    }
    for (size_t i = 0; i < units.size(); i++)
        if ((chosen.count(group_of[i]) != 0) == keep)
            choice[i] = units[i].choices - 1;
    return choice;
}

std::vector<uint64_t> Choices::numbers(uint64_t limit) const
{
    std::vector<uint64_t> list;
    uint64_t last = total ? total : 2 + 2 * groups.size() + pairs;
    if (last <= limit) {
        for (uint64_t i = 0; i < last; i++)
            list.push_back(i);
        for (uint64_t i = last; !total && i < limit; i++)
            list.push_back(i);
        return list;
    }
    // A part of them: both extremes, and a choice of the rest that depends on the seed alone; if
    // there are more than EXHAUSTIVE, half of it are regular ones.
    std::set<uint64_t> taken = {0, total ? total - 1 : 1};
    Random r(seed);
    while (taken.size() < limit) {
        bool regular = total || taken.size() % 2;
        taken.insert(regular ? r.below(last) : last + r.below(1ull << 32));
    }
    list.assign(taken.begin(), taken.end());
    return list;
}

} // namespace crash
