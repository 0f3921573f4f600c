// SPDX-License-Identifier: BSD-3-Clause
//
// One scene in a process of its own, in which one call fails or none: did the caller get the error,
// is every byte there, does the next try work, and is everything given back in the end?
#ifndef ATO_TEST_FAULT_LIFE_H
#define ATO_TEST_FAULT_LIFE_H

#include "world.h"

#include "support/injector.h"

namespace fault
{

struct Told {
    std::vector<support::injector::Call> calls; // those of the operation
    bool failed;                                // the fault came to pass
    bool succeeded;                             // the operation
    int error;                                  // errno, if it did not
    std::string sentence;
    std::string wrong; // "" if all is well
};

// What happens on the machine when the operation is over, before it is tried again: space is given
// back. May be empty.
using Relief = std::function<void()>;

Told play(const Scene &scene, World &world, const support::injector::Fault *fault,
          const Relief &relief = {});

} // namespace fault

#endif
