/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A suite of the evaluation: one question, its cells, and a row of results for each engine and metric.
 *
 * A cell is one workload at one size with a number of threads. All engines that take part in it are mapped at once, each in a
 * folder of its own; in a round each of them, in random order, gets the same batch. A round gives a value for each engine and its
 * ratio to the floor's; a row has their medians and their spread (half of the distance between the quartiles). After the rounds
 * all engines must hold the same bytes.
 */
#ifndef ATO_BENCHMARKS_SUITES_SUITE_H
#define ATO_BENCHMARKS_SUITES_SUITE_H

#include "../bench.h"
#include "../engines/engine.h"

#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace suite
{

struct Settings {
    std::string dir = "/dev/shm"; /* the medium: folders of engines are made below a new one here */
    engine::Domain domain = engine::Domain::pmem;
    bool full = false;             /* longer, and more cells */
    uint64_t file_mib = 64;        /* of each engine's file */
    unsigned cpus = 2;             /* more threads than this are not asked for */
    double seconds = 60;           /* that the suite should take at most, in all */
    std::vector<std::string> only; /* engines; empty: all */
    unsigned ns_line = 0, ns_fence = 0;
    std::FILE *csv = nullptr;
};
extern Settings settings;

double seconds_left(); /* of settings.seconds, for the suite that runs */

struct Cell {
    std::string workload;
    uint64_t size = 0; /* bytes of an operation */
    unsigned threads = 1;
    engine::Unit unit = engine::Unit::write;
};

/* The engines of a cell, mapped. */
class Sides
{
  public:
    /* All of ENGINES that take part with these options (folder is set here), the floor first; with `filter`, those that it takes. */
    explicit Sides(
        engine::Options options, const std::function<bool(const engine::Kind &)> &filter =
                                     [](const engine::Kind &) { return true; });
    ~Sides(); /* unmaps, removes the files */

    size_t count() const;
    const engine::Kind &kind(size_t side) const;
    engine::Engine &operator[](size_t side) const;
    const char *source() const; /* of the bytes that are written: MAX_BYTES and some */
    char *target() const;       /* of reads: MAX_BYTES */

    /* Each page gets content in the same way on all sides, and all memory is touched. But on a disk, neighbouring slices of a
     * page lie in different homes then, where an engine has two. */
    void fill();

    using Values = std::vector<std::vector<double>>; /* by side and round */

    /* Calls prepare() once and then take(side) for each side, in random order, `rounds` times; the first round only warms up.
     * take() returns the value of a metric. What the side does in the background is waited for before the next side has its turn;
     * `background` gets the ns of that. */
    Values interleave(unsigned rounds, const std::function<void()> &prepare,
                      const std::function<double(size_t side)> &take,
                      Values *background = nullptr) const;

    /* Interleaved batches for as long as `seconds` allows: make(n) returns n operations, of which n is chosen so that there are
     * enough rounds. Returns ns of an operation, and in `settled` the same with what is done in the background. One thread; units of
     * one operation. */
    using Maker = std::function<std::vector<engine::Operation>(size_t n)>;
    Values race(double seconds, const Maker &make, Values *settled = nullptr) const;

    void check_content() const; /* fails if a side has other bytes than the first */

    /* A row for each side: values[side][round]; the ratio is to the first side (of rates and of times alike: value / value). */
    void report(const char *suite, const Cell &cell, const char *metric,
                const std::vector<std::vector<double>> &values) const;

  private:
    struct Side;
    engine::Options options_;
    std::vector<std::unique_ptr<Side>> sides_;
};

constexpr size_t MAX_BYTES = 1 << 20; /* of an operation */

/* One row of the results: suite, engine, guarantee, workload, size, threads, metric, value, spread, ratio to floor. */
void put(const char *suite, const std::string &engine, const std::string &guarantee,
         const Cell &cell, const char *metric, double value, double spread, double ratio);

/* The row of an engine: the median of its rounds, their spread, and the median of their ratios to the floor's. */
void put_rounds(const char *suite, const std::string &engine, const std::string &guarantee,
                const Cell &cell, const char *metric, const std::vector<double> &values,
                const std::vector<double> &of_floor);

using bench::ns_of;

/* A line of progress to stderr, with the seconds since the start. */
void say(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* A suite is a source of its own in this folder, with a line in suites.h and in SUITES (main.cc). */
struct Suite {
    const char *name, *what;
    void (*run)();
    bool counts = false; /* needs engine::meter */
};

} // namespace suite

#endif
