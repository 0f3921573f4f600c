/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * amplification: what goes to persistent memory for a write at a random place, counted and not timed: bytes in the lines that are
 * flushed or stored past the caches, for each byte written; these lines, and fences, for each write. Writes only, and with as many
 * reads between them (which may cost stores, too). What is done in the background counts when it is done.
 *
 * The file is small and each page is written several times: so reads find what writes have left.
 */
#include "suites.h"

#include "../bench.h"
#include "../engines/media.h"

#include <random>

namespace suite
{

namespace
{

constexpr uint64_t BYTES = 4 << 20, OPERATIONS = 8192, LEAST = 256;

std::vector<engine::Operation> operations(std::mt19937_64 *random, uint32_t size, unsigned reads)
{
    const uint64_t all = std::max(LEAST, std::min(OPERATIONS, 8 * BYTES / size));
    std::vector<engine::Operation> made(all);
    for (engine::Operation &one : made) {
        one.offset = (*random)() % (BYTES / size) * size;
        one.bytes = size;
        one.source = static_cast<uint32_t>((*random)() % 256 * 64);
        one.is_read = (*random)() % 100 < reads;
    }
    return made;
}

/* Values of one side: metric by metric. */
std::vector<double> count(engine::Engine *engine, const Sides &sides,
                          const std::vector<engine::Operation> &operations)
{
    const auto run = [&] {
        engine->run(operations.data(), operations.size(), sides.source(), sides.target());
        engine->settle();
    };
    run(); /* to the steady state */
    const engine::Counts before = engine::meter->counts();
    run();
    const engine::Counts after = engine::meter->counts();
    double writes = 0;
    for (const engine::Operation &one : operations)
        writes += !one.is_read;
    const auto lines = static_cast<double>(after.lines - before.lines),
               bytes = static_cast<double>(after.bytes - before.bytes),
               fences = static_cast<double>(after.fences - before.fences);
    return {bytes / (writes * operations[0].bytes), lines / writes, fences / writes};
}

void run()
{
    static const char *const METRICS[] = {"media bytes/byte", "lines/write", "fences/write"};
    if (settings.domain != engine::Domain::pmem) {
        say("amplification: only in domain pmem");
        return;
    }
    std::mt19937_64 random(4);
    engine::Options options;
    options.bytes = BYTES;
    options.domain = settings.domain;
    Sides sides(options);
    say("amplification: %zu engines; what the kernel flushes is not counted", sides.count());
    sides.fill();
    for (const unsigned reads : {0, 50})
        for (const uint32_t size : {64, 256, 1 << 10, 2 << 10, 4 << 10, 16 << 10, 64 << 10}) {
            const Cell cell = {std::to_string(reads) + "/" + std::to_string(100 - reads), size};
            const std::vector<engine::Operation> same = operations(&random, size, reads);
            std::vector<std::vector<double>> values(std::size(METRICS) * sides.count());
            for (size_t side = 0; side < sides.count(); side++) {
                bench::stop_if_asked();
                const std::vector<double> seen = count(&sides[side], sides, same);
                if (seen[0] < 1 && sides.kind(side).promise(options) == engine::Promise::atomic)
                    bench::fail("%s stores to persistent memory by calls that are not counted",
                                sides.kind(side).name);
                for (size_t metric = 0; metric < seen.size(); metric++)
                    values[metric * sides.count() + side] = {seen[metric]};
            }
            for (size_t metric = 0; metric < std::size(METRICS); metric++) {
                const auto first = values.begin() + static_cast<ptrdiff_t>(metric * sides.count());
                sides.report("amplification", cell, METRICS[metric],
                             {first, first + static_cast<ptrdiff_t>(sides.count())});
            }
        }
    sides.check_content();
}

} // namespace

const Suite AMPLIFICATION = {"amplification",
                             "bytes, lines and fences to persistent memory for a write", run, true};

} // namespace suite
