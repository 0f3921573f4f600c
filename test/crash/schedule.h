// SPDX-License-Identifier: BSD-3-Clause
//
// Real threads, of which one runs at a time, in an order that a seed decides.
#ifndef ATO_TEST_CRASH_SCHEDULE_H
#define ATO_TEST_CRASH_SCHEDULE_H

#include "world.h"

namespace crash
{

// Runs all threads to their ends. Rethrows the first exception in the order of the threads.
void run_scheduled(World &world, const std::vector<std::function<void()>> &bodies, uint64_t seed);

} // namespace crash

#endif
