// SPDX-License-Identifier: BSD-3-Clause
//
// One scene in a process of its own, in which one call fails or none. Checks that the caller gets the error,
// that every byte is there, that the next try works, and that all resources are given back at the end.
#ifndef ATO_TEST_FAULT_LIFE_H
#define ATO_TEST_FAULT_LIFE_H

#include "world.h"

#include "support/injector.h"

namespace fault
{

struct Told {
    std::vector<support::injector::Call> calls; // of the operation
    bool failed;                                // the fault occurred
    bool succeeded;                             // of the operation
    int error;                                  // errno, if the operation failed
    std::string sentence;
    std::string wrong; // "" if all is well
};

// Called after the operation, before it is tried again: for example, gives space back. May be empty.
using Relief = std::function<void()>;

Told play(const Scene &scene, World &world, const support::injector::Fault *fault,
          const Relief &relief = {});

} // namespace fault

#endif
