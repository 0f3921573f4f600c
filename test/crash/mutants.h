// SPDX-License-Identifier: BSD-3-Clause
//
// Who checks the checker: faults that the explorer has to find. One or two for every place in the
// library that orders something (the linker's list of seam.h names them all, so that a new fence is
// a new mutant), and some of the code.
//
// One that cannot be found is justified where the place is, in the comment before it:
//   explorer: <name of the fault> survives: <why that is no bug>
#ifndef ATO_TEST_CRASH_MUTANTS_H
#define ATO_TEST_CRASH_MUTANTS_H

#include "media.h"
#include "standins.h"

namespace crash
{

struct Mutant {
    std::string fault; // "drop fence"
    std::string place; // lib/commit/commit.c:95; of a fault of the code: what it is
    Mutation mutation; // of the rules, or
    CodeFault code = CodeFault::None;
    // Names of the cases that are made for it begin so. A fault of the code concerns no others.
    std::string cases;
    std::string name() const
    {
        return fault + ", " + place;
    }
    std::string argument; // why it may survive; "": it may not
};

std::vector<Mutant> all_mutants();

// As people write it: without the way from the build folder.
std::string short_place(const std::string &site);

} // namespace crash

#endif
