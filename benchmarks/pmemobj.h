/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The cost of an atomic write with libpmemobj: an undo-log transaction around a memcpy(). Its guarantee is
 * libato's in the pmem domain.
 *
 * libpmemobj flushes cache lines only on memory that it takes for persistent: the process must have been
 * started with PMEM_IS_PMEM_FORCE=1, or each transaction would call msync().
 */
#ifndef ATO_BENCHMARKS_PMEMOBJ_H
#define ATO_BENCHMARKS_PMEMOBJ_H

#include "bench.h"

#include <memory>

namespace bench
{

std::unique_ptr<Backend> make_pmemobj(size_t file_bytes);

}

#endif
