// SPDX-License-Identifier: BSD-3-Clause
//
// How does a test get file systems of its own? In a child with its own mount namespace; what it
// mounts is gone with it. Needs root, and for disks loop devices.
#ifndef ATO_TEST_HAZARDS_MOUNTS_H
#define ATO_TEST_HAZARDS_MOUNTS_H

#include "support/child.h"

#include <cstdlib>
#include <functional>
#include <string>

#include <sched.h>
#include <unistd.h>

constexpr int NO_MOUNTS = 50; // exit status: not allowed here, or no loop device

// A shell's commands, in a folder. True when all succeed.
inline bool run_in(const std::string &folder, const std::string &commands)
{
    return system(("cd '" + folder + "' && (" + commands + ") >/dev/null 2>&1").c_str()) == 0;
}

// Runs `what` after these commands, both in the child.
inline int with_mounts(const std::string &folder, const std::string &commands,
                       const std::function<int()> &what)
{
    return support::in_child([&] {
        if (geteuid() != 0 || unshare(CLONE_NEWNS) < 0 ||
            !run_in(folder, "mount --make-rprivate / && " + commands))
            return NO_MOUNTS;
        return what();
    });
}

#endif
