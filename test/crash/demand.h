// SPDX-License-Identifier: BSD-3-Clause
//
// What else than their contents has to hold of the files? What an operation promises about names,
// and do the media keep it: asked of a Disk alone, whoever made it.
#ifndef ATO_TEST_CRASH_DEMAND_H
#define ATO_TEST_CRASH_DEMAND_H

#include "disk.h"

namespace crash
{

struct Demand {
    bool plain = false;    // nothing of libato's is there
    bool orderly = false;  // where there is a reflection, there is its manifest
    bool settled = false;  // no manifest tells of a growth under way
    std::vector<int> kept; // these inodes have a name, whichever
};

// Which demand the media break; "": none. For `plain`, what is known to stay does not count:
// `.ato.<random>.tmp`, of a process that died while it made the folder, and what was set aside.
std::string broken_demand(const Disk &disk, const Demand &demand);

} // namespace crash

#endif
