// SPDX-License-Identifier: BSD-3-Clause
//
// The hunt for mutants: each mutant runs in the cases that reach its place, until one of them fails
// or enough work is done. Work is counted, not timed: so a busy machine gives the same result. CPUs that have no mutant left
// join the search for another one, with other seeds. The crash that shows a mutant is replayed twice: with the mutant it must be a violation; without it,
// it must be right, if the moment exists then.
#ifndef ATO_TEST_CRASH_HUNT_H
#define ATO_TEST_CRASH_HUNT_H

#include "campaign.h"
#include "mutants.h"

namespace crash
{

struct Score {
    size_t mutants = 0, killed = 0, justified = 0;
    // Counts of mutants: killed although a comment says that they survive; violations without the
    // mutant too; comments that name no mutant.
    size_t violations = 0;
};

// Chooses all mutants with `name` in their name and, if there are any `files`, with a place in one
// of them.
struct Quarry {
    std::string name;
    std::vector<std::string> files;

    bool is_all() const
    {
        return name.empty() && files.empty();
    }
};

// Of those in files, at most a few: the seed decides which.
std::vector<Mutant> choose_mutants(const Quarry &quarry, uint64_t seed);

// Hunts the mutants that were chosen, in the combinations of a list that was explored.
Score hunt(const Effort &effort, const std::vector<Combination> &list,
           const std::vector<Mutant> &mutants, const Quarry &quarry);

} // namespace crash

#endif
