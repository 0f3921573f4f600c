// SPDX-License-Identifier: BSD-3-Clause
//
// The operations whose crashes are looked at: what was there before, and what is done.
#ifndef ATO_TEST_CRASH_CASES_H
#define ATO_TEST_CRASH_CASES_H

#include "actor.h"

namespace crash
{

// What a program does that the originals belong to, when the explorer would do something of its own. They hold what
// the actor knows.
struct Use {
    void (*look)(Actor &a);  // after a crash, at all of them
    void (*go_on)(Actor &a); // in the life after one: looks, says so, and does its next operation
};

struct Case {
    const char *name;
    unsigned domains;            // a bit for each ato_domain
    std::vector<uint64_t> sizes; // of the originals
    void (*before)(Actor &a);    // not looked at; may be NULL
    void (*run)(Actor &a);
    uint64_t orders = 0;      // of its threads, that are looked at besides, with a few crashes each
    const Use *use = nullptr; // NULL: nobody's files
};

const std::vector<Case> &all_cases();

} // namespace crash

#endif
