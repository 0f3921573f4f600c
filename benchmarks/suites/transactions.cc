/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How many transactions a second commit, by their pages and bytes? Figure 9 of the vNVML paper.
 *
 *   32 pages in turn     N bytes at the start of each of 32 pages, one after the other through the file, and a sync: the paper's
 *   K pages at random    the same of 1 to 32 pages anywhere
 *   one write, K pages   each write a unit: the last 64 bytes of a page, the pages between, the first 64 bytes of the last one
 *
 * The value is commits a second. The paper shows the time of writing an array of 2 GB once, as a ratio to libpmemobj's; so of two
 * engines here the ratio of their rates is to be compared with that. Its engines have a log and a cache in NVM of 2 GB each, and an
 * SSD behind; here each engine has its file where the suite is run, and what room it chooses.
 */
#include "pace.h"
#include "suites.h"

#include <random>

namespace suite
{

namespace
{

constexpr size_t PAGE = 4096, EDGE = 64, MOST = 1 << 18;

struct Shape {
    size_t pages, bytes; /* of a transaction; bytes in each page */
    bool in_turn, one_write;

    std::string name() const
    {
        const std::string count = std::to_string(pages);
        return one_write ? "one write, " + count + " pages"
               : in_turn ? count + " pages in turn"
                         : count + " pages at random";
    }

    size_t writes() const
    {
        return one_write ? 1 : pages;
    }

    uint32_t size() const
    {
        return static_cast<uint32_t>(one_write ? (pages - 2) * PAGE + 2 * EDGE : bytes);
    }
};

void run_cell(const Sides &sides, const Shape &shape, double seconds)
{
    Cell cell;
    cell.workload = shape.name();
    cell.size = shape.size();
    cell.unit = shape.one_write ? engine::Unit::write : engine::Unit::sync;
    say("transactions: %s, %u bytes", cell.workload.c_str(), shape.size());

    const uint64_t pages = (settings.file_mib << 20) / PAGE;
    const size_t writes = shape.writes();
    std::mt19937_64 generator(1);
    uint64_t next = 0;
    std::vector<engine::Operation> operations;
    const auto prepare =
        [&](size_t count) { /* transactions */
                            operations.resize(count * writes);
                            for (engine::Operation &o : operations) {
                                o = {0, shape.size(), 0, 0};
                                o.source = generator() % 64 * 64;
                                if (shape.one_write)
                                    o.offset =
                                        (generator() % (pages - shape.pages) + 1) * PAGE - EDGE;
                                else
                                    o.offset =
                                        (shape.in_turn ? next++ : generator()) % pages * PAGE;
                            }
        };
    const auto take = [&](size_t side) {
        engine::Engine &engine = sides[side];
        const double ns = ns_of([&] {
            for (size_t at = 0; at < operations.size(); at += writes) {
                engine.run(&operations[at], writes, sides.source(), sides.target());
                engine.sync();
            }
        });
        return static_cast<double>(operations.size() / writes) / ns * 1e9;
    };
    const auto [count, rounds] = batches(seconds, sides.count(), 1, MOST, prepare, take);
    sides.report("transactions", cell, "commits/s",
                 sides.interleave(
                     rounds, [&, n = count] { prepare(n); }, take));
}

void run()
{
    std::vector<Shape> of_syncs, of_writes;
    for (const size_t bytes : {16, 32, 64, 128, 256, 512})
        of_syncs.push_back({32, bytes, true, false});
    for (const size_t pages : {1, 2, 4, 8, 16, 32})
        for (const size_t bytes : {64, 256, 4096})
            if (settings.full || (bytes == 64 && (pages == 2 || pages == 4 || pages == 16)))
                of_syncs.push_back({pages, bytes, false, false});
    for (const size_t pages : {2, 4, 16})
        of_writes.push_back({pages, 0, false, true});

    size_t cells = of_syncs.size() + of_writes.size();
    for (const std::vector<Shape> &shapes : {of_syncs, of_writes}) {
        engine::Options options;
        options.bytes = settings.file_mib << 20;
        options.domain = settings.domain;
        options.unit = shapes[0].one_write ? engine::Unit::write : engine::Unit::sync;
        Sides sides(options);
        sides.fill();
        for (const Shape &shape : shapes)
            run_cell(sides, shape, time_of_cell(cells--));
        sides.check_content();
    }
}

} // namespace

const Suite TRANSACTIONS = {
    "transactions", "transactions of 1 to 32 pages (vNVML, figure 9; write of several pages)", run};

} // namespace suite
