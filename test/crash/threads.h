// SPDX-License-Identifier: BSD-3-Clause
//
// Several threads at once, in an order that a seed decides: one runs, and hands over at each store,
// flush and fence and at the hooks of seam.h, to the thread that the seed chooses. Locks and sleeps
// of the library hand over too.
//
// The possible contents are kept as a set of worlds. A world is the content of the files after one
// order of the operations begun so far; an operation that returned before another one began comes
// before it; an operation under way may be included or not. A read keeps only the worlds in which
// the file had, at some moment during the read, the content that it returned: so content that was
// read is there after a crash, or was never there (I4).
//
// A transaction is one operation, its commit: its reads have to be valid at the moment when its
// writes become visible. If it is refused, it is none. The threads of a mapping with an epoch see a file of their own, which
// becomes the common file by one operation.
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
        Remap, // fast unmap, and map again; no other thread may use the mapping then
        Begin, // a transaction with the flags `at`; if a step is refused, it is aborted there
        Commit,
        Abort,
        Sync // commits the mapping's epoch
    } what;
    uint64_t at = 0, n = 0;
    size_t mapping = 0; // the index of a mapping that exists when the threads begin
};

// Runs a list of steps in each thread. Before, the files have the contents that the actor knows;
// after it, the actor knows the contents found. Files that are mapped with an epoch have another
// mapping without one.
void run_threads(Actor &actor, const std::vector<std::vector<Step>> &threads);

} // namespace crash

#endif
