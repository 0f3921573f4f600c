/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * random: reads and writes of one size at random places, each write atomic by itself, with a growing share of reads. After
 * figure 3 of the Acumen paper, which has fio do this in a file of 8 GB.
 */
#include "suites.h"

#include <cinttypes>
#include <random>

namespace suite
{

namespace
{

/* ns of an operation as MB/s */
Sides::Values rates(Sides::Values values, uint32_t size)
{
    for (auto &of_side : values)
        for (double &value : of_side)
            value = size * 1e3 / value;
    return values;
}

void run()
{
    const unsigned read_shares[] = {0, 20, 40, 60, 80, 100};
    const uint32_t sizes[] = {64, 256, 1 << 10, 2 << 10, 4 << 10, 16 << 10, 64 << 10};
    std::mt19937_64 random(3);
    size_t cells = std::size(read_shares) * std::size(sizes);

    engine::Options options;
    options.bytes = settings.file_mib << 20;
    options.domain = settings.domain;
    Sides sides(options);
    say("random: %zu engines, filling %" PRIu64 " MiB of each", sides.count(), settings.file_mib);
    sides.fill();
    const double at_the_end = settings.seconds / 20; /* for the comparison */
    for (const unsigned reads : read_shares) {
        say("random: reads/writes %u/%u", reads, 100 - reads);
        for (const uint32_t size : sizes) {
            const Cell cell = {std::to_string(reads) + "/" + std::to_string(100 - reads), size};
            Sides::Values settled;
            const auto values =
                sides.race((seconds_left() - at_the_end) / static_cast<double>(cells--),
                           [&](size_t n) {
                               std::vector<engine::Operation> operations(n);
                               for (engine::Operation &one : operations) {
                                   one.offset = random() % (options.bytes / size) * size;
                                   one.bytes = size;
                                   one.source = static_cast<uint32_t>(random() % 256 * 64);
                                   one.is_read = random() % 100 < reads;
                               }
                               return operations;
                           },
                           &settled);
            sides.report("random", cell, "ns", values);
            sides.report("random", cell, "MB/s", rates(values, size));
            sides.report("random", cell, "settled MB/s", rates(settled, size));
        }
    }
    sides.check_content();
}

} // namespace

const Suite RANDOM = {"random", "reads and writes of one size at random places (Acumen, figure 3)",
                      run};

} // namespace suite
