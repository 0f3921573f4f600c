/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Transactions that read records and then write them, with libato: what do they cost, against those that only read and only write?
 *
 * Two of 64 records, each at the beginning of two pages, in random order. All records were just written, past the caches.
 */
#ifndef ATO_BENCHMARKS_MODIFY_H
#define ATO_BENCHMARKS_MODIFY_H

#include "libato.h"
#include "measure.h"
#include "world.h"

#include <functional>
#include <string>
#include <vector>

namespace bench
{

class Records
{
  public:
    Records(AtoFile *file, World *world, uint64_t first_page, uint32_t bytes);

    /* Goes through all records, two in a transaction. Sides: reads, writes, both. */
    void go_through(size_t side);

    /* `before`: is called before each side is measured. */
    std::vector<Values> measure(const std::function<void(size_t side)> &before = [](size_t) {});

  private:
    void modify(const Write *places, bool reads, bool writes);

    AtoFile *file_;
    World *world_;
    std::vector<Write> places_;
};

/* `of_parts` is the time of `both`, relative to that of the other two together. */
Case modify_case(const std::string &name, const std::function<std::vector<Values>()> &repeat);

} // namespace bench

#endif
