/* SPDX-License-Identifier: BSD-3-Clause */
/* The suites: each is a source of that name in this folder. */
#ifndef ATO_BENCHMARKS_SUITES_SUITES_H
#define ATO_BENCHMARKS_SUITES_SUITES_H

#include "suite.h"

namespace suite
{

extern const Suite AMPLIFICATION, LATENCY, RANDOM, RECOVERY, SMALL_NVM, SYNC, THREADS, TRANSACTIONS,
    UNMAP;
extern const Suite YCSB, TPCC; /* where there is SQLite */

} // namespace suite

#endif
