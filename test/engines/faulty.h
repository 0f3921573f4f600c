/* SPDX-License-Identifier: BSD-3-Clause */
/* Engines that do not keep what they promise: each test has to find its own. */
#ifndef ATO_TEST_ENGINES_FAULTY_H
#define ATO_TEST_ENGINES_FAULTY_H

#include "benchmarks/engines/engine.h"

namespace engines_test
{

extern const engine::Kind SHORT;  /* a write that ends at the end of a page lacks its last byte */
extern const engine::Kind HALVES; /* a write is not atomic, but in two halves */
extern const engine::Kind PAGES;  /* nor are its pages */
extern const engine::Kind LATE;   /* each write is done by the next one */
extern const engine::Kind NEIGHBOURS; /* writes the bytes beside its own, too */
extern const engine::Kind UNFENCED;   /* the last fence of a unit is left out */

} // namespace engines_test

#endif
