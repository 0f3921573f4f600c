// SPDX-License-Identifier: BSD-3-Clause
//
// The mutants: faults that the explorer has to find, to test the explorer. One or two for every
// place in the library that orders something (the linker's list of seam.h has all of them, so that
// a new fence is a new mutant), and some in the code.
//
// A mutant that cannot be found is justified in the comment before its place:
//   explorer: <name of the fault> survives: <why that is no bug>
#ifndef ATO_TEST_CRASH_MUTANTS_H
#define ATO_TEST_CRASH_MUTANTS_H

#include "media.h"
#include "standins.h"

namespace crash
{

struct Mutant {
    std::string fault; // "drop fence"
    std::string place; // lib/commit/commit.c:95; for a fault of the code: its description
    Mutation mutation; // of the rules, or
    CodeFault code = CodeFault::None;
    // Prefixes of the names of the cases made for it. A fault of the code runs in no other cases.
    std::string cases;
    bool has_case(const std::string &name) const;
    std::string name() const
    {
        return fault + ", " + place;
    }
    std::string argument; // the reason why it may survive; "": it may not
};

std::vector<Mutant> all_mutants();

// The path without the prefix of the build folder.
std::string short_place(const std::string &site);

} // namespace crash

#endif
