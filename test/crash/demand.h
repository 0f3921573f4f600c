// SPDX-License-Identifier: BSD-3-Clause
//
// Conditions on the media besides the contents of the files: an operation promises something about
// names. They are checked on a Disk alone.
#ifndef ATO_TEST_CRASH_DEMAND_H
#define ATO_TEST_CRASH_DEMAND_H

#include "disk.h"

namespace crash
{

struct Demand {
    bool plain = false; // at most a manifest in state `deployed` is left, or a reflection, or both
    bool bare = false;  // not even that
    bool settled = false;  // no manifest records a growth under way
    std::vector<int> kept; // these inodes have a name
};

// Returns the condition that the media violate; "": none. For `plain`, known leftovers do not
// count: `.ato.<random>.tmp`, of a process that died while it made the folder, and files that were
// set aside.
std::string broken_demand(const Disk &disk, const Demand &demand);

} // namespace crash

#endif
