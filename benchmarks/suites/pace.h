/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How many operations fit in the time that a suite has?
 *
 * All sides of a cell do the same operations, so the sum of their times counts. As Sides::race(), for batches that are not run by
 * one call of run(): with syncs, threads, a clock around each operation.
 */
#ifndef ATO_BENCHMARKS_SUITES_PACE_H
#define ATO_BENCHMARKS_SUITES_PACE_H

#include "../bench.h"
#include "suite.h"

#include <algorithm>

namespace suite
{

/* Of the seconds that are left when so many cells are left, this one included. Some are kept for the comparison at the end. */
inline double time_of_cell(size_t cells)
{
    return std::max(0.0, seconds_left() - settings.seconds / 20) / static_cast<double>(cells);
}

struct Batches {
    size_t count; /* of operations in one */
    unsigned rounds;
};

/*
 * Batches, of a multiple of `least` up to `most`, with which a round to warm up and the others take about so many seconds for all
 * sides; if even `least` takes longer there are fewer rounds, three at least. Tries it: prepare(n) makes a batch of n operations,
 * take(side) does it.
 */
template <class Prepare, class Take>
Batches batches(double seconds, size_t sides, size_t least, size_t most, const Prepare &prepare,
                const Take &take)
{
    const unsigned rounds = settings.full ? 11 : 5, fewest = 3;
    const double ns_of_round = seconds * 1e9 / (rounds + 1.5);
    for (size_t n = least;; n = std::min(n * 4, most)) {
        prepare(n);
        double ns = 1;
        for (size_t side = 0; side < sides; side++) {
            bench::stop_if_asked();
            ns += bench::ns_of([&] { take(side); });
        }
        if (n < most && ns * 8 < ns_of_round)
            continue;
        const double fit = ns_of_round / ns * static_cast<double>(n / least);
        return {std::clamp(static_cast<size_t>(fit) * least, least, most),
                std::clamp(static_cast<unsigned>(fit * rounds), fewest, rounds)};
    }
}

} // namespace suite

#endif
