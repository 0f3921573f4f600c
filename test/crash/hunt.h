// SPDX-License-Identifier: BSD-3-Clause
//
// The hunt for mutants: each is looked for in the cases that come to its place, until one of them
// fails or enough work was done. Work is counted, not timed: a busy machine takes longer and says
// the same. The crash that shows a mutant is done twice again: with it, and has to be wrong; without
// it, and has to be right where there is such a moment.
#ifndef ATO_TEST_CRASH_HUNT_H
#define ATO_TEST_CRASH_HUNT_H

#include "campaign.h"

namespace crash
{

struct Score {
    size_t mutants = 0, killed = 0, justified = 0;
    // Killed, although a comment says why it survives; wrong without the mutant too; nobody's name.
    size_t violations = 0;
};

// Which mutants: all whose name contains `name`, and, if there are any `files`, whose place is in one of them.
struct Quarry {
    std::string name;
    std::vector<std::string> files;

    bool is_all() const
    {
        return name.empty() && files.empty();
    }
};

// In the combinations of a list that was explored.
Score hunt(const Effort &effort, const std::vector<Combination> &list, const Quarry &quarry);

} // namespace crash

#endif
