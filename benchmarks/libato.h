/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What does an atomic write cost with libato? ato_memcpy() into a mapping of the domain asked for.
 */
#ifndef ATO_BENCHMARKS_LIBATO_H
#define ATO_BENCHMARKS_LIBATO_H

#include "bench.h"

#include <ato.h>
#include <memory>

namespace bench
{

class Libato : public Backend
{
  public:
    virtual struct ato_stat stat() const = 0;
};

std::unique_ptr<Libato> make_libato(Domain domain, size_t file_bytes);

} // namespace bench

#endif
