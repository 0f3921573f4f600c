/* SPDX-License-Identifier: BSD-3-Clause */
/* The engines of a cell side by side, and the rows of results. See suite.h. */
#include "suite.h"

#include "../bench.h"
#include "../engines/media.h"

#include <algorithm>
#include <chrono>
#include <cinttypes>
#include <cstdarg>
#include <cstring>
#include <filesystem>
#include <random>

namespace suite
{

Settings settings;

namespace
{

constexpr size_t PAGE = 4096, SLICE = 64,
                 SOURCE_SPAN = 16384; /* random source: stays in the first-level cache */
constexpr unsigned LEAST_ROUNDS = 3;
constexpr double SHORT_BATCH = 2e6; /* ns */

std::mt19937_64 random_numbers(20261121);

std::vector<char> make_source()
{
    std::vector<char> bytes(MAX_BYTES + SOURCE_SPAN + SLICE);
    for (size_t i = 0; i + 8 <= bytes.size(); i += 8) {
        const uint64_t word = random_numbers();
        std::memcpy(&bytes[i], &word, 8);
    }
    return bytes;
}

const char *aligned(const std::vector<char> &bytes)
{
    return bytes.data() + (SLICE - reinterpret_cast<uintptr_t>(bytes.data()) % SLICE) % SLICE;
}

uint32_t random_source()
{
    return static_cast<uint32_t>(random_numbers() % (SOURCE_SPAN / SLICE) * SLICE);
}

double quantile(const std::vector<double> &sorted, double q)
{
    const double at = q * static_cast<double>(sorted.size() - 1);
    const auto low = static_cast<size_t>(at);
    const size_t high = std::min(low + 1, sorted.size() - 1);
    return sorted[low] + (sorted[high] - sorted[low]) * (at - static_cast<double>(low));
}

} // namespace

struct Sides::Side {
    const engine::Kind *kind;
    std::string folder;
    engine::Promise promise;
    std::unique_ptr<engine::Engine> engine;
};

Sides::Sides(engine::Options options, const std::function<bool(const engine::Kind &)> &filter)
    : options_(options)
{
    static unsigned number;
    const std::string top =
        bench::folder(settings.dir.c_str()) + "/sides-" + std::to_string(number++);
    const std::vector<std::string> &only = settings.only;
    for (const engine::Kind &kind : engine::ENGINES) {
        const bool is_floor = &kind == &engine::ENGINES.front();
        if (!kind.takes_part(options) || !filter(kind))
            continue;
        if (!is_floor && !only.empty() &&
            std::find(only.begin(), only.end(), kind.name) == only.end())
            continue;
        bench::stop_if_asked();
        auto side = std::make_unique<Side>();
        side->kind = &kind;
        side->folder = options.folder = top + "/" + kind.name;
        side->promise = kind.promise(options);
        std::filesystem::create_directories(side->folder);
        side->engine = kind.map(options);
        sides_.push_back(std::move(side));
    }
    if (sides_.empty())
        bench::fail("no engine takes part");
    options_.folder = top;
}

Sides::~Sides()
{
    sides_.clear();
    std::error_code ignored;
    std::filesystem::remove_all(options_.folder, ignored);
}

size_t Sides::count() const
{
    return sides_.size();
}

const engine::Kind &Sides::kind(size_t side) const
{
    return *sides_[side]->kind;
}

engine::Engine &Sides::operator[](size_t side) const
{
    return *sides_[side]->engine;
}

const char *Sides::source() const
{
    static const std::vector<char> bytes = make_source();
    return aligned(bytes);
}

char *Sides::target() const
{
    static thread_local std::vector<char> bytes(MAX_BYTES + SLICE);
    return const_cast<char *>(aligned(bytes));
}

/* Nothing is charged meanwhile. */
void Sides::fill()
{
    const auto charge = [](unsigned line, unsigned fence) {
        if (engine::meter)
            engine::meter->charge(line, fence);
    };
    charge(0, 0);
    std::vector<engine::Operation> writes;
    const auto flush = [&] {
        bench::stop_if_asked();
        for (const auto &side : sides_) {
            side->engine->run(writes.data(), writes.size(), source(), target());
            side->engine->sync();
        }
        writes.clear();
    };
    for (uint64_t offset = 0; offset < options_.bytes; offset += MAX_BYTES) {
        const uint64_t n = std::min<uint64_t>(MAX_BYTES, options_.bytes - offset);
        writes.push_back({offset, static_cast<uint32_t>(n), random_source(), 0});
        flush();
    }
    for (uint64_t page = 0; page < options_.bytes && options_.domain != engine::Domain::disk;
         page += PAGE) {
        const uint64_t first = random_numbers() % (PAGE / SLICE),
                       slices = 1 + random_numbers() % (PAGE / SLICE - first);
        writes.push_back(
            {page + first * SLICE, static_cast<uint32_t>(slices * SLICE), random_source(), 0});
        if (writes.size() == 64)
            flush();
    }
    flush();
    charge(settings.ns_line, settings.ns_fence);
}

Sides::Values Sides::interleave(unsigned rounds, const std::function<void()> &prepare,
                                const std::function<double(size_t side)> &take,
                                Values *background) const
{
    std::vector<size_t> order;
    for (size_t side = 0; side < count(); side++)
        order.push_back(side);
    Values values(count()), after(count());
    for (unsigned round = 0; round <= rounds; round++) {
        bench::stop_if_asked();
        prepare();
        std::shuffle(order.begin(), order.end(), random_numbers);
        for (const size_t side : order) {
            const double value = take(side), more = ns_of([&] { (*this)[side].settle(); });
            if (round > 0) {
                values[side].push_back(value);
                after[side].push_back(more);
            }
        }
    }
    if (background)
        *background = std::move(after);
    return values;
}

Sides::Values Sides::race(double seconds, const Maker &make, Values *settled) const
{
    /* Many short batches: the scheduler of a busy machine disturbs some of them, and medians do not show it. */
    const double short_rounds =
        std::max(seconds, 0.0) * 1e9 / (SHORT_BATCH * static_cast<double>(count()));
    const auto rounds =
        static_cast<unsigned>(std::clamp(short_rounds, 7.0, settings.full ? 61.0 : 31.0));
    const double each = std::max(seconds, 0.0) * 1e9 / (rounds + 2); /* of a round, ns */
    std::vector<engine::Operation> batch;
    const auto take = [&](size_t side) {
        return ns_of([&] { (*this)[side].run(batch.data(), batch.size(), source(), target()); });
    };
    size_t n = 8;
    double all = 0;
    for (;;) {
        batch = make(n);
        all = 0;
        for (size_t side = 0; side < count(); side++)
            all += take(side) + ns_of([&] { (*this)[side].settle(); });
        if (all > each / 4 || n >= 1 << 20)
            break;
        n *= 2;
    }
    if (all > 0)
        n = static_cast<size_t>(static_cast<double>(n) * std::clamp(each / all, 0.25, 4.0));
    n = std::clamp<size_t>(n, 4, 1 << 20);
    const unsigned fitting =
        all > each ? std::max<unsigned>(LEAST_ROUNDS, static_cast<unsigned>(rounds * each / all))
                   : rounds;
    Values background;
    Values values = interleave(
        std::min(rounds, fitting), [&] { batch = make(n); },
        [&](size_t side) { return take(side) / static_cast<double>(n); }, &background);
    if (settled) {
        *settled = values;
        for (size_t side = 0; side < count(); side++)
            for (size_t round = 0; round < values[side].size(); round++)
                (*settled)[side][round] += background[side][round] / static_cast<double>(n);
    }
    return values;
}

void Sides::check_content() const
{
    std::vector<char> expected(MAX_BYTES), found(MAX_BYTES);
    for (const auto &side : sides_)
        side->engine->settle();
    for (uint64_t offset = 0; offset < options_.bytes; offset += MAX_BYTES) {
        bench::stop_if_asked();
        const size_t n = std::min<uint64_t>(MAX_BYTES, options_.bytes - offset);
        sides_[0]->engine->read(expected.data(), offset, n);
        for (const auto &side : sides_) {
            side->engine->read(found.data(), offset, n);
            if (std::memcmp(found.data(), expected.data(), n) != 0)
                bench::fail("%s holds other bytes than %s within %zu bytes from offset %" PRIu64,
                            side->kind->name, sides_[0]->kind->name, n, offset);
        }
    }
}

void Sides::report(const char *suite, const Cell &cell, const char *metric,
                   const std::vector<std::vector<double>> &values) const
{
    for (size_t side = 0; side < count(); side++)
        put_rounds(suite, sides_[side]->kind->name,
                   engine::name_of(sides_[side]->promise, options_.domain), cell, metric,
                   values[side], values[0]);
}

void put_rounds(const char *suite, const std::string &engine, const std::string &guarantee,
                const Cell &cell, const char *metric, const std::vector<double> &values,
                const std::vector<double> &of_floor)
{
    if (values.empty())
        return;
    std::vector<double> sorted = values, ratios;
    std::sort(sorted.begin(), sorted.end());
    for (size_t round = 0; round < values.size(); round++)
        ratios.push_back(values[round] / of_floor[round]);
    put(suite, engine, guarantee, cell, metric, quantile(sorted, 0.5),
        (quantile(sorted, 0.75) - quantile(sorted, 0.25)) / 2, bench::median(ratios));
}

void put(const char *suite, const std::string &engine, const std::string &guarantee,
         const Cell &cell, const char *metric, double value, double spread, double ratio)
{
    std::printf("%-12s %-18s %-14s %8" PRIu64 " B %2u thr. %-12s %12.6g +- %-10.3g %8.3g x   %s\n",
                suite, engine.c_str(), cell.workload.c_str(), cell.size, cell.threads, metric,
                value, spread, ratio, guarantee.c_str());
    std::fflush(stdout);
    if (!settings.csv)
        return;
    std::fprintf(settings.csv, "%s,%s,\"%s\",\"%s\",%" PRIu64 ",%u,%s,%.6g,%.3g,%.5g\n", suite,
                 engine.c_str(), guarantee.c_str(), cell.workload.c_str(), cell.size, cell.threads,
                 metric, value, spread, ratio);
    if (std::fflush(settings.csv) != 0)
        bench::fail("cannot write the results");
}

void say(const char *format, ...)
{
    using Clock = std::chrono::steady_clock;
    static const Clock::time_point begin = Clock::now();
    const std::chrono::duration<double> passed = Clock::now() - begin;
    std::fprintf(stderr, "[%3.0f s] ", passed.count());
    va_list args;
    va_start(args, format);
    std::vfprintf(stderr, format, args);
    va_end(args);
    std::fputc('\n', stderr);
}

} // namespace suite
