/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How long does a read or a write of 4 KiB take, and how long do the slowest take? Table 2 of the Libnvmmio paper.
 *
 *   reads, writes        one after the other, or at random; of one thread; each write is a unit
 *   reads after a write  at random, each page written since it was read last (the time of that write is not counted): a
 *                        reader then finds what an engine has put off
 *
 * The values are nanoseconds: the mean, and the percentiles with at least 10 samples above them, of the samples of all rounds; the
 * spread is that of the rounds. Each call is timed by the processor's counter, between fences. The least that this shows for an
 * empty call is subtracted. The counter of some processors moves in steps of 10 ns. Unlike the paper's, no system call is
 * intercepted on the way. With few processors the slowest calls are those in which the kernel ran something else: the floor's row
 * shows how much of that there is.
 */
#include "pace.h"
#include "suites.h"

#include <cmath>
#include <numeric>
#include <random>
#include <x86intrin.h>

namespace suite
{

namespace
{

constexpr size_t BYTES = 4096, MOST = 1 << 17; /* samples of a side in a round */
constexpr double LEAST_ABOVE = 10;             /* samples above a percentile */

/* ---- the clock ---- */

inline uint64_t ticks()
{
    _mm_lfence();
    const uint64_t now = __rdtsc();
    _mm_lfence();
    return now;
}

struct Clock {
    double ns_of_tick;
    uint64_t own = ~0ull; /* ticks of timing nothing */

    Clock()
    {
        const uint64_t from = ticks();
        uint64_t to = from;
        const double ns = ns_of([&] {
            for (int i = 0; i < 1000000; i++) {
                const uint64_t start = ticks();
                to = ticks();
                own = std::min(own, to - start);
            }
        });
        ns_of_tick = ns / static_cast<double>(to - from);
    }

    template <class What> double ns(const What &what) const
    {
        const uint64_t start = ticks();
        what();
        const uint64_t took = ticks() - start;
        return took > own ? static_cast<double>(took - own) * ns_of_tick : 0;
    }
};

/* ---- the samples ---- */

using Samples = std::vector<float>; /* ns */

double mean(const Samples &samples)
{
    return std::accumulate(samples.begin(), samples.end(), 0.0) /
           static_cast<double>(samples.size());
}

/* The least of the samples, which are sorted, that a share of them does not exceed. */
double quantile(const Samples &samples, double share)
{
    const double rank = std::ceil(share * static_cast<double>(samples.size()));
    return samples[std::min(samples.size(), static_cast<size_t>(rank)) - 1];
}

enum class Work { read, write, read_after_write };

struct Shape {
    Work work;
    bool random;
    const char *name;
};

/* One kind of operation on all sides. */
class Measurement
{
  public:
    Measurement(const Sides &sides, const Clock &clock, const Shape &shape, double seconds)
        : sides_(sides), clock_(clock), shape_(shape), samples_(sides.count())
    {
        const auto take = [&](size_t side) { return mean(samples_[side].emplace_back(run(side))); };
        const size_t most =
            std::min<size_t>(MOST, shape.work == Work::read_after_write ? pages_ : MOST);
        const auto [count, rounds] = batches(
            seconds, sides.count(), 1, most, [&](size_t n) { make(n); }, take);
        for (std::vector<Samples> &of_side : samples_)
            of_side.clear();
        means_ = sides.interleave(
            rounds, [&, n = count] { make(n); }, take);
        for (std::vector<Samples> &of_side : samples_)
            of_side.erase(of_side.begin()); /* of the warm-up */
    }

    void report(const engine::Options &options)
    {
        const Cell cell = {shape_.name, BYTES};
        sides_.report("latency", cell, "mean ns", means_);
        std::vector<Samples> all;
        for (std::vector<Samples> &of_side : samples_) {
            Samples &samples = all.emplace_back();
            for (Samples &of_round : of_side) {
                samples.insert(samples.end(), of_round.begin(), of_round.end());
                std::sort(of_round.begin(), of_round.end());
            }
            std::sort(samples.begin(), samples.end());
        }
        for (const auto &[share, metric] :
             {std::pair(0.5, "p50 ns"), std::pair(0.99, "p99 ns"), std::pair(0.999, "p99.9 ns"),
              std::pair(0.9999, "p99.99 ns"), std::pair(0.99999, "p99.999 ns")}) {
            if (static_cast<double>(all[0].size()) * (1 - share) < LEAST_ABOVE)
                break;
            const double of_floor = quantile(all[0], share);
            for (size_t side = 0; side < sides_.count(); side++) {
                Samples of_rounds;
                for (const Samples &of_round : samples_[side])
                    of_rounds.push_back(static_cast<float>(quantile(of_round, share)));
                std::sort(of_rounds.begin(), of_rounds.end());
                const double value = quantile(all[side], share);
                put("latency", sides_.kind(side).name,
                    engine::name_of(sides_.kind(side).promise(options), options.domain), cell,
                    metric, value, (quantile(of_rounds, 0.75) - quantile(of_rounds, 0.25)) / 2,
                    value / of_floor);
            }
        }
    }

  private:
    void make(size_t count)
    {
        operations_.resize(count);
        if (shape_.work == Work::read_after_write) {
            order_.resize(pages_);
            std::iota(order_.begin(), order_.end(), 0);
            std::shuffle(order_.begin(), order_.end(), generator_);
        }
        for (size_t i = 0; i < count; i++) {
            const uint64_t page = shape_.work == Work::read_after_write ? order_[i]
                                  : shape_.random                       ? generator_() % pages_
                                                                        : next_++ % pages_;
            operations_[i] = {page * BYTES, BYTES, 0, shape_.work != Work::write};
            operations_[i].source = generator_() % 64 * 64;
        }
    }

    Samples run(size_t side) const
    {
        engine::Engine &engine = sides_[side];
        const char *source = sides_.source();
        char *target = sides_.target();
        const auto write = [&](const engine::Operation &o) {
            engine.write(o.offset, source + o.source, BYTES);
        };
        if (shape_.work == Work::read_after_write) /* in the other order */
            std::for_each(operations_.rbegin(), operations_.rend(), write);
        Samples samples;
        samples.reserve(operations_.size());
        for (const engine::Operation &o : operations_)
            samples.push_back(static_cast<float>(
                o.is_read ? clock_.ns([&] { engine.read(target, o.offset, BYTES); })
                          : clock_.ns([&] { write(o); })));
        return samples;
    }

    const Sides &sides_;
    const Clock &clock_;
    const Shape shape_;
    const uint64_t pages_ = (settings.file_mib << 20) / BYTES;
    std::mt19937_64 generator_{1};
    uint64_t next_ = 0;
    std::vector<uint64_t> order_;
    std::vector<engine::Operation> operations_;
    std::vector<std::vector<Samples>> samples_; /* [side][round] */
    std::vector<std::vector<double>> means_;
};

void run()
{
    const Shape shapes[] = {
        {Work::read, false, "sequential reads"},
        {Work::read, true, "random reads"},
        {Work::write, false, "sequential writes"},
        {Work::write, true, "random writes"},
        {Work::read_after_write, true, "random reads, each after a write"},
    };
    const Clock clock;
    engine::Options options;
    options.bytes = settings.file_mib << 20;
    options.domain = settings.domain;
    Sides sides(options);
    sides.fill();
    size_t cells = std::size(shapes);
    for (const Shape &shape : shapes) {
        say("latency: %s", shape.name);
        Measurement(sides, clock, shape, time_of_cell(cells--)).report(options);
    }
    sides.check_content();
}

} // namespace

const Suite LATENCY = {
    "latency", "reads and writes of 4 KiB, to the slowest of 100,000 (Libnvmmio, table 2)", run};

} // namespace suite
