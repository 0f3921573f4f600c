/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The way of most programs today: memcpy() into a shared mapping, without durability and atomicity.
 */
#ifndef ATO_BENCHMARKS_PLAIN_H
#define ATO_BENCHMARKS_PLAIN_H

#include "bench.h"

#include <memory>

namespace bench
{

std::unique_ptr<Backend> make_plain(size_t file_bytes);

}

#endif
