/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What does it cost to make writes durable, by how many of them belong together? Figure 9 of the Libnvmmio paper.
 *
 *   N writes a unit      4 KiB each, one after the other or at random, a sync after every N-th: all N are one unit
 *   each write a unit    the same without syncs: engines that cannot keep several writes together are here only
 *
 * The value is MB/s. The paper's is of FIO over a file of 4 GB for 60 seconds, through read() and write() that are intercepted, and
 * one after the other only; here each engine is called as a library, over a small file that it goes around in. In the paper
 * the file systems beside Libnvmmio make each write, or nothing, atomic; here all engines with one name for their guarantee
 * keep the same promise.
 */
#include "pace.h"
#include "suites.h"

#include <random>

namespace suite
{

namespace
{

constexpr size_t BYTES = 4096, MOST = 1 << 20;

/* Batches of writes over a whole file. */
class Writes
{
  public:
    explicit Writes(bool random) : random_(random)
    {
    }

    void make(size_t count)
    {
        const uint64_t pages = (settings.file_mib << 20) / BYTES;
        operations_.resize(count);
        for (engine::Operation &o : operations_) {
            o = {(random_ ? generator_() : next_++) % pages * BYTES, BYTES, 0, 0};
            o.source = generator_() % 64 * 64;
        }
    }

    /* With a sync after each `interval` of them; 0: none. */
    void run(engine::Engine &engine, const Sides &sides, size_t interval) const
    {
        const size_t step = interval ? interval : operations_.size();
        for (size_t at = 0; at < operations_.size(); at += step) {
            engine.run(&operations_[at], step, sides.source(), sides.target());
            if (interval)
                engine.sync();
        }
    }

    double mb_of(double ns) const
    {
        return static_cast<double>(operations_.size() * BYTES) / ns * 1e3;
    }

  private:
    bool random_;
    uint64_t next_ = 0;
    std::mt19937_64 generator_{1};
    std::vector<engine::Operation> operations_;
};

void run_cell(const Sides &sides, engine::Unit unit, bool random, size_t interval, double seconds)
{
    Cell cell;
    cell.workload = std::string(random ? "random" : "sequential") +
                    (interval == 0   ? ", each write a unit"
                     : interval == 1 ? ", 1 write a unit"
                                     : ", " + std::to_string(interval) + " writes a unit");
    cell.size = BYTES;
    cell.unit = unit;
    say("sync: %s", cell.workload.c_str());

    Writes writes(random);
    const auto take = [&](size_t side) {
        const double ns = ns_of([&] { writes.run(sides[side], sides, interval); });
        return writes.mb_of(ns);
    };
    const auto [count, rounds] = batches(
        seconds, sides.count(), std::max<size_t>(interval, 1), MOST,
        [&](size_t n) { writes.make(n); }, take);
    sides.report("sync", cell, "MB/s",
                 sides.interleave(
                     rounds, [&, n = count] { writes.make(n); }, take));
}

void run()
{
    std::vector<size_t> intervals;
    for (const size_t interval : settings.full
                                     ? std::vector<size_t>{1, 2, 5, 10, 20, 50, 100, 200, 500, 1000}
                                     : std::vector<size_t>{1, 10, 100, 1000})
        if (interval * BYTES <= (settings.file_mib << 20) / 8) /* fits the logs, too */
            intervals.push_back(interval);
    size_t cells = 2 * intervals.size() + 2;
    for (const engine::Unit unit : {engine::Unit::sync, engine::Unit::write}) {
        engine::Options options;
        options.bytes = settings.file_mib << 20;
        options.domain = settings.domain;
        options.unit = unit;
        Sides sides(options);
        sides.fill();
        for (const bool random : {false, true})
            for (const size_t interval :
                 unit == engine::Unit::sync ? intervals : std::vector<size_t>{0})
                run_cell(sides, unit, random, interval, time_of_cell(cells--));
        sides.check_content();
    }
}

} // namespace

const Suite SYNC = {"sync",
                    "writes of 4 KiB with a sync after every 1 to 1000 (Libnvmmio, figure 9)", run};

} // namespace suite
