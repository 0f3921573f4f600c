// SPDX-License-Identifier: BSD-3-Clause
//
// The operations whose crashes are explored: the state before, and the operation.
#ifndef ATO_TEST_CRASH_CASES_H
#define ATO_TEST_CRASH_CASES_H

#include "actor.h"

#include <string>

namespace crash
{

// A program that the originals belong to. It replaces the explorer's own looks and operations. They
// hold the contents that the actor knows.
struct Use {
    void (*look)(Actor &a);  // after a crash, reads all files
    void (*go_on)(Actor &a); // in the life after a crash: reads, decides the content, and does the
                             // next operation
};

struct Case {
    std::string name;
    unsigned domains;            // a bit for each ato_domain
    std::vector<uint64_t> sizes; // of the originals
    void (*before)(Actor &a);    // without crashes; may be NULL
    void (*run)(Actor &a);
    uint64_t orders = 0;      // the number of other orders of its threads, each explored with a few
                              // crashes
    const Use *use = nullptr; // NULL: not a program's files
    // Those of `domains` in which it runs with sparse reflections too, and with dense ones. In domain disk a file has a log,
    // whatever is asked for: there this is the format that a file had in another domain before.
    unsigned sparse = ~(1u << ATO_DOMAIN_DISK);
    unsigned dense = ~0u;
    bool stored =
        false; // the log is on persistent memory: records are stored and flushed, not written and synced
};

const std::vector<Case> &all_cases();

} // namespace crash

#endif
