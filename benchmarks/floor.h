/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How fast could an atomic write be? The floor: what no library that keeps a validity bitmap can do
 * without, and nothing else. It makes the bytes durable, then one 8-byte word a page. It is not
 * atomic: it overwrites the only copy. It is no bound: libato prefetches the next addresses, and in
 * domain process it goes past the caches where memcpy() does not.
 */
#ifndef ATO_BENCHMARKS_FLOOR_H
#define ATO_BENCHMARKS_FLOOR_H

#include "bench.h"

#include <memory>

namespace bench
{

std::unique_ptr<Backend> make_floor(Domain domain, size_t file_bytes);

}

#endif
