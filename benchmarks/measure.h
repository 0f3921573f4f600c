/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How is a thing measured, and how is it shown?
 *
 * On a shared machine bare times mean little, ratios inside one process more. A case has several
 * sides, which do the same in different ways. A repetition of it is many rounds; in a round every
 * side, in random order, does the same batch. A round gives one ratio to the first side for each
 * other side, a repetition their median, the table the median of the repetitions. Google Benchmark
 * runs and exports the repetitions, a row for each side, by manual time (its CPU time is of no use
 * here). What is asked of a side is shown beside what was seen; it changes no exit status, since
 * these are no tests.
 *
 * Every program takes, beside Google Benchmark's flags (--benchmark_filter, --benchmark_out=FILE.json,
 * --benchmark_repetitions, --benchmark_format=json):
 *
 *   --file_mib=N   size of the files
 *   --ops=N        operations of a repetition, for each side
 *   --batch=N      of those, how many in a round
 *   --dir=FOLDER   where the files lie (/dev/shm)
 *   --plot=FILE    draws a picture of the result, an SVG; only programs with a script for it
 *
 * A row's name, for the filter, is CASE/SIDE/iterations:N/manual_time. Exits 0; 1 when a content or a
 * count is wrong, or nothing was run; 77 when there is no space for the files; 128 and the number of
 * the signal that asked it to end.
 */
#ifndef ATO_BENCHMARKS_MEASURE_H
#define ATO_BENCHMARKS_MEASURE_H

#include "bench.h"

#include <functional>
#include <map>
#include <string>
#include <vector>

namespace bench
{

struct Settings {
    uint64_t file_mib, ops, batch;
    std::string dir = "/dev/shm", plot = "";

    uint64_t file_bytes() const
    {
        return file_mib << 20;
    }

    uint64_t rounds() const
    {
        return ops / batch ? ops / batch : 1;
    }
};

extern Settings settings;

/* The values of one side in one repetition, by name. There is always "ns", of an operation; "ratio" and
 * "over_ns" are to the first side of the same round. */
using Values = std::map<std::string, double>;

/* Medians of the repetitions, by "CASE/SIDE": of what was run. */
using Rows = std::map<std::string, Values>;

/* A limit for a side: the named value is at most this, or at least. */
struct Goal {
    std::string side, value;
    double limit;
    bool at_least = false;
};

struct Case {
    std::string name;
    std::vector<std::string> sides;
    std::vector<Goal> goals;
    std::function<std::vector<Values>()> repeat;             /* one repetition of all sides */
    std::function<std::string(const std::string &)> promise; /* domain of a side, its guarantee */
};

struct Program {
    const char *title; /* printed above the table */
    Settings defaults;
    std::function<uint64_t()> space;          /* bytes that the files take */
    std::function<std::vector<Case>()> cases; /* asked when the settings are known */
    std::function<void()> finish = [] {};     /* after the last repetition: checks contents */
    std::function<void(const Rows &)> summary = [](const Rows &) {}; /* printed below the table */
    const char *plot_script = nullptr;                               /* of Python: JSON to SVG */
    bool forces_pmem = true;
};

/* main() of a program. With forces_pmem starts itself again with PMEM_IS_PMEM_FORCE=1, which libpmem reads when it is
 * loaded: so every flush is issued although the files lie in DRAM. */
int run(int argc, char **argv, const Program &program);

/* Rounds of `sides` sides in random order; the first round only warms up. take(side) returns ns of an
 * operation. Each side's values "ns", "ratio", "over_ns". */
std::vector<Values> interleave(size_t sides, uint64_t rounds, const std::function<void()> &prepare,
                               const std::function<double(size_t)> &take);

/* The same over values that one round gives at once. */
class Medians
{
  public:
    void add(size_t side, const std::string &value, double seen);
    std::vector<Values> medians(size_t sides) const;

  private:
    std::map<std::pair<size_t, std::string>, std::vector<double>> seen_;
};

} // namespace bench

#endif
