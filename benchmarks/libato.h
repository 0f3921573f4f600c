/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What does an atomic write or a read cost with libato? ato_memcpy() to and from a mapping of the
 * domain and policy asked for.
 */
#ifndef ATO_BENCHMARKS_LIBATO_H
#define ATO_BENCHMARKS_LIBATO_H

#include "bench.h"

#include <ato.h>
#include <memory>

namespace bench
{

struct LibatoOptions {
    Domain domain = Domain::pmem;
    int read_policy = ATO_READ_GATHER; /* looking at the content deploys nothing */
    unsigned write_flags = 0;          /* of ato_memcpy_opt() */
    const char *name = "libato";
};

class Libato : public Backend
{
  public:
    virtual struct ato_stat stat() const = 0;

    /* Brings every slice home. */
    virtual void deploy() = 0;

    /* About half of all slices must lie in the reflection; fail() if not. */
    void check_bitmaps_at_random() const;
};

std::unique_ptr<Libato> make_libato(const LibatoOptions &options, size_t file_bytes);

} // namespace bench

#endif
