/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A bound for the speed of a transaction: the work of any library that keeps two homes of each slice, a
 * bitmap a page and a redo list of the bitmaps. It stores the slices to the other home, then a list of all
 * words, a commit line, the words, and the end of the list; with the fences between them. It looks nothing
 * up, holds no page, counts nothing, and completes no slice that is written in part: so its content differs
 * from that of the others.
 */
#ifndef ATO_BENCHMARKS_BOUND_H
#define ATO_BENCHMARKS_BOUND_H

#include "bench.h"

#include "reflection/format/layout.h"

namespace bench
{

class Bound
{
  public:
    enum { MOST = 32 }; /* writes in a transaction */

    /* Touches all of its memory. */
    explicit Bound(size_t file_bytes);

    /* Each within a page of its own. */
    void write_at_once(const char *source, const Write *writes, size_t count);

  private:
    uint64_t *word_of(const Write &w) const;

    MappedFile o_, r_, list_;
    uint64_t sequence_ = 0;
};

} // namespace bench

#endif
