/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How long does it take to go on after a kill? Libnvmmio's and vNVML's papers promise a recovery, and show no time of it.
 *
 *   N records   a process makes N writes of 1 KiB, each in another place of a file of zeros, at random, and ends without unmapping;
 *               `1/K of file` says how much that is. It has read all of the file before, so that it has no holes
 *
 * Each write is a unit, and was acknowledged: all of them have to be there afterwards. For `ato` the share of the file is the share of
 * the slices that lie in its reflection; for an engine with a log N is the number of records that it has got, of which its background work
 * may have been through with some. The values: `map ms`, which recovers; `read ms` of all of the file after that, 4 KiB after
 * 4 KiB; and both together, since engines divide the work differently. The files are in the page cache, and half as large as is
 * asked for, without --full.
 */
#include "alone.h"
#include "pace.h"
#include "suites.h"

namespace suite
{

namespace
{

constexpr uint32_t RECORD = 1024;

std::vector<double> values_of(const Side &side, size_t count, unsigned seed)
{
    const Folder folder(bench::folder());
    engine::Options options = side.options;
    options.folder = folder.path();
    Content content(options.bytes);
    const std::vector<engine::Operation> writes =
        scattered(options.bytes, count, RECORD, RECORD, seed);
    wait_for_child(start_child([&] {
                       engine::Engine *engine = side.kind->map(options).release();
                       content.ns_of_reading(*engine, side.name.c_str());
                       for (const engine::Operation &o : writes)
                           engine->write(o.offset, source() + o.source, o.bytes);
                   }),
                   side.name.c_str());
    for (const engine::Operation &o : writes)
        content.write(o, nullptr);

    std::unique_ptr<engine::Engine> engine;
    const double map = ns_of([&] { engine = side.kind->map(options); });
    const double read = content.ns_of_reading(*engine, side.name.c_str());
    return {map / 1e6, read / 1e6, (map + read) / 1e6};
}

void run()
{
    engine::Options options;
    options.bytes = (settings.file_mib << 20) / (settings.full ? 1 : 2);
    options.domain = settings.domain;
    const std::vector<Side> sides = sides_of(options);
    std::vector<unsigned> shares = {0, 64, 8, 1}; /* 1/64 ... */
    if (settings.full)
        shares = {0, 256, 64, 16, 4, 2, 1};
    if (settings.domain == engine::Domain::disk) /* more takes minutes to be written */
        shares =
            settings.full ? std::vector<unsigned>{0, 256, 64, 16} : std::vector<unsigned>{0, 64};
    size_t cells = shares.size();
    for (const unsigned share : shares) {
        const size_t count = share ? options.bytes / RECORD / share : 0;
        std::string name = std::to_string(count) + " records";
        if (share)
            name += share == 1 ? ", all of file" : ", 1/" + std::to_string(share) + " of file";
        say("recovery: %s", name.c_str());
        compare("recovery", {name, RECORD}, sides, {"map ms", "read ms", "map and read ms"},
                time_of_cell(cells--),
                [&](const Side &side, unsigned round) { return values_of(side, count, round); });
    }
}

} // namespace

const Suite RECOVERY = {"recovery", "the map after a kill, by what was written before", run};

} // namespace suite
