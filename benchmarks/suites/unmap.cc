/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What does it cost to unmap a file after writes, and to go on with it? None of the papers shows that; a lazy engine puts work off
 * until then.
 *
 *   none, 0 B        nothing
 *   1/N of pages     1 KiB in each of so many pages, at random
 *   all pages        1 KiB, or all 4, of each page, in random order
 *
 * Before that all of the file was read, so that it has no holes where the medium is memory. Each write is a unit. The file is half as
 * large as is asked for, without --full. The values: `unmap ms`, which ends with all background work of the engine; `map ms` of the same file again; `read
 * ms` of all of it after that, 4 KiB after 4 KiB, with the page faults; `stored MiB`, the space of the engine's files between
 * the unmap and the map. `ato` keeps its reflection, `ato-spatial` copies all slices home, and leaves an ordinary file.
 */
#include "alone.h"
#include "pace.h"
#include "suites.h"

namespace suite
{

namespace
{

constexpr uint32_t PAGE = 4096;

struct Shape {
    const char *name;
    uint32_t bytes; /* of a write */
    unsigned every; /* this one of the pages is written; 0: none */
};

std::vector<double> values_of(const Side &side, const Shape &shape, unsigned seed)
{
    const Folder folder(bench::folder());
    engine::Options options = side.options;
    options.folder = folder.path();
    std::unique_ptr<engine::Engine> engine = side.kind->map(options);
    Content content(options.bytes);
    content.ns_of_reading(*engine, side.name.c_str());
    const size_t count = shape.every ? options.bytes / PAGE / shape.every : 0;
    for (const engine::Operation &o : scattered(options.bytes, count, PAGE, shape.bytes, seed))
        content.write(o, engine.get());

    const double unmap = ns_of([&] { engine.reset(); });
    const uint64_t stored = folder.bytes();
    const double map = ns_of([&] { engine = side.kind->map(options); });
    const double read = content.ns_of_reading(*engine, side.name.c_str());
    return {unmap / 1e6, map / 1e6, read / 1e6, static_cast<double>(stored) / (1 << 20)};
}

void run()
{
    engine::Options options;
    options.bytes = (settings.file_mib << 20) / (settings.full ? 1 : 2);
    options.domain = settings.domain;
    std::vector<Side> sides = sides_of(options);
    for (size_t side = 0; side < sides.size(); side++)
        if (sides[side].name == "ato") {
            Side spatial = sides[side];
            spatial.name = "ato-spatial";
            spatial.options.plain_at_end = true;
            sides.insert(sides.begin() + static_cast<ptrdiff_t>(side) + 1, spatial);
            break;
        }

    std::vector<Shape> shapes = {{"none", 0, 0}, {"1/64 of pages", 1024, 64}};
    if (settings.full)
        shapes.push_back({"1/16 of pages", 1024, 16});
    if (settings.domain != engine::Domain::disk) { /* there more takes minutes to be written */
        if (settings.full)
            shapes.push_back({"1/4 of pages", 1024, 4});
        shapes.push_back({"all pages", 1024, 1});
        shapes.push_back({"all pages", PAGE, 1});
    }
    size_t cells = shapes.size();
    for (const Shape &shape : shapes) {
        say("unmap: %s, %u bytes", shape.name, shape.bytes);
        compare("unmap", {shape.name, shape.bytes}, sides,
                {"unmap ms", "map ms", "read ms", "stored MiB"}, time_of_cell(cells--),
                [&](const Side &side, unsigned round) { return values_of(side, shape, round); });
    }
}

} // namespace

const Suite UNMAP = {"unmap", "unmapping after writes, the next map, the first read, the space",
                     run};

} // namespace suite
