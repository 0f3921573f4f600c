// SPDX-License-Identifier: BSD-3-Clause
//
// Several threads at once, in an order that a seed decides: one runs, and hands over at each store,
// flush and fence and at the hooks of seam.h, to whichever the seed says. Locks and sleeps of the
// library hand over too.
//
// What they may leave is kept as a set of worlds. A world is what the files hold in one order of the
// operations begun so far that respects who returned before who began; an operation that is under
// way may be in it or not. A read narrows them to those in which the file held, at some moment while
// it ran, what it returned: so what was read once is there after a crash, or was never there (I4).
#ifndef ATO_TEST_CRASH_THREADS_H
#define ATO_TEST_CRASH_THREADS_H

#include "actor.h"

namespace crash
{

struct Step {
    enum What {
        Write,
        Read,
        Deploy,
        Remap // fast unmap, and map again; nobody else uses the mapping then
    } what;
    uint64_t at, n;
    size_t mapping = 0; // which of those that there are when the threads begin
};

// Runs a list of steps in each thread. What the files hold is as the actor knows it before, and what
// was found after.
void run_threads(Actor &actor, const std::vector<std::vector<Step>> &threads);

} // namespace crash

#endif
