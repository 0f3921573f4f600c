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
//
// A transaction is one operation, its commit: what it read has to be there at the very moment when what
// it wrote comes to be. Of a mapping with an epoch its threads see a file of their own, which becomes the
// file that all see by one operation.
#ifndef ATO_TEST_CRASH_THREADS_H
#define ATO_TEST_CRASH_THREADS_H

#include "actor.h"

namespace crash
{

struct Step {
    enum What {
        Write, // between Begin and its end: in the transaction
        Read,
        Deploy,
        Remap, // fast unmap, and map again; nobody else uses the mapping then
        Begin, // a transaction, whose flags `at` are; refused with EDEADLK, it is aborted where it is
        Commit,
        Abort,
        Sync // the mapping's epoch
    } what;
    uint64_t at = 0, n = 0;
    size_t mapping = 0; // which of those that there are when the threads begin
};

// Runs a list of steps in each thread. What the files hold is as the actor knows it before, and what
// was found after. Of files that are mapped with an epoch there is another mapping, without.
void run_threads(Actor &actor, const std::vector<std::vector<Step>> &threads);

} // namespace crash

#endif
