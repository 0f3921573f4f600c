/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What does it cost to unmap a file, and to go on with it, by the share of its slices that lie in its reflection?
 *
 *   FORMAT/none           no slice does: the file was mapped, and not touched
 *   FORMAT/slices/SHARE   1/64 to 1/2 of the slices of each page
 *   FORMAT/pages/SHARE    all slices of 1/64 to 1/2 of the pages; the other pages are not touched
 *   FORMAT/all            all slices of all pages
 *
 * The format of the reflection is dense or sparse. Sides:
 *
 *   memcpy       one memcpy() of the file to another one, both mapped and touched before: the ratio is to this
 *   plain        munmap() of a plain mapping with the same pages touched
 *   fast         ato_munmap() that keeps the reflection
 *   spatial      ato_munmap() that copies all slices home and removes the reflection: an ordinary file again; by as many
 *                threads as libato chooses
 *   new_memcpy   (FORMAT/all) the memcpy() into a mapping that is made for it, populated, and unmapped again
 *   spatial_1    (FORMAT/all) the same as spatial, by one thread
 *
 * `ns` is the time of the unmapping. Then:
 *
 *   map_us       mapping the file again
 *   read_ms      after that, the first read of the whole file, 4 KiB after 4 KiB, with policy lazy: page faults, and the
 *                deploys of what a fast unmap left in the reflection. Of `memcpy`: without page faults
 *   read_ratio   the same, relative to that of `memcpy`
 *   space_mib    storage that the reflection and its manifest take between the unmap and the map
 *
 * Only libato's sides are durable.
 */
#include "libato.h"
#include "measure.h"

#include "reflection/format/layout.h"

#include <cinttypes>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <unistd.h>
#include <vector>

namespace
{

using bench::Case;
using bench::fail;
using bench::settings;
using bench::Values;

constexpr size_t BLOCK = 1 << 20; /* what is compared at a time */

/* What is written before the unmap: every n-th slice of each page, or each slice of every n-th page; 0: nothing. */
struct Written {
    bool whole_pages;
    unsigned every;

    uint64_t step() const
    {
        return (whole_pages ? PAGE_BYTES : SLICE_BYTES) * every;
    }

    size_t bytes() const
    {
        return whole_pages ? PAGE_BYTES : SLICE_BYTES;
    }

    uint64_t slices() const
    {
        return every ? settings.file_bytes() / SLICE_BYTES / every : 0;
    }

    /* Calls what(offset, bytes) for each write. */
    template <class What> void each(What what) const
    {
        for (uint64_t at = 0; every && at < settings.file_bytes(); at += step())
            what(at, bytes());
    }
};

struct Files {
    bench::MappedFile content{"content", settings.file_bytes()}; /* what the file of libato holds */
    bench::MappedFile copy{"copy", settings.file_bytes()};
    bench::AtoFile file{settings.file_bytes(), true}; /* plain, and not mapped, between two turns */
    uint64_t writes = 0;

    Files()
    {
        std::memset(content.at(0), 0, settings.file_bytes());
        std::memset(copy.at(0), 1, settings.file_bytes());
    }
};

std::unique_ptr<Files> files;

/* The times of a turn beside that of the unmapping. */
struct After {
    double map_us = 0, read_ms = 0, space_mib = 0;
};

/* read(to, offset, bytes) for all of the file; fails if that is not its content. */
template <class Read> double ns_of_reading(Read read)
{
    static char found[BLOCK];
    double ns = 0;
    for (uint64_t block = 0; block < settings.file_bytes(); block += BLOCK) {
        bench::stop_if_asked();
        ns += bench::ns_of([&] {
            for (uint64_t at = 0; at < BLOCK; at += PAGE_BYTES)
                read(found + at, block + at, PAGE_BYTES);
        });
        if (std::memcmp(found, files->content.at(block), BLOCK) != 0)
            fail("unmap: other bytes than were written, within a MiB from offset %" PRIu64, block);
    }
    return ns;
}

/* The file as every program sees it. */
void check_plain()
{
    ns_of_reading([](char *to, uint64_t offset, size_t n) {
        if (pread(files->file.descriptor(), to, n, static_cast<off_t>(offset)) !=
            static_cast<ssize_t>(n))
            fail("unmap: cannot read the file at offset %" PRIu64, offset);
    });
    if (files->file.has_reflection())
        fail("unmap: the reflection is still there");
}

void write_all(const Written &written)
{
    written.each([](uint64_t at, size_t n) {
        char *bytes = files->content.at(at);
        std::memset(bytes, static_cast<char>(++files->writes % 251), n);
        if (!ato_memcpy(files->file.at(at), bytes, n))
            fail("ato_memcpy: %s", ato_errormsg());
    });
    uint64_t reflected = files->file.stat().slices_in_reflection;
    if (reflected != written.slices())
        fail("unmap: %" PRIu64 " slices lie in the reflection, not %" PRIu64, reflected,
             written.slices());
}

void map()
{
    files->file.map(bench::Domain::pmem, ATO_READ_LAZY);
}

double ns_of_unmap(const Written &written, int mode, unsigned threads, After *after)
{
    bench::AtoFile &file = files->file;
    map();
    write_all(written);
    double ns = bench::ns_of([&] { file.unmap(mode, threads); });
    after->space_mib = static_cast<double>(file.reflection_bytes()) / (1 << 20);
    if (mode == ATO_UNMAP_SPATIAL)
        check_plain();
    after->map_us = bench::ns_of(map) / 1e3;
    after->read_ms = ns_of_reading([&](char *to, uint64_t offset, size_t n) {
                         if (!ato_memcpy(to, file.at(offset), n))
                             fail("ato_memcpy: %s", ato_errormsg());
                     }) /
                     1e6;
    file.unmap(ATO_UNMAP_SPATIAL);
    check_plain();
    return ns;
}

double ns_of_memcpy(After *after)
{
    const bench::MappedFile &from = files->content;
    double ns =
        bench::ns_of([&] { std::memcpy(files->copy.at(0), from.at(0), settings.file_bytes()); });
    after->read_ms = ns_of_reading([&](char *to, uint64_t offset, size_t n) {
                         std::memcpy(to, from.at(offset), n);
                     }) /
                     1e6;
    return ns;
}

double ns_of_munmap(const Written &written, After *after)
{
    std::optional<bench::MappedFile> view(files->content);
    written.each([&](uint64_t at, size_t) { *view->at(at) = *files->content.at(at); });
    double ns = bench::ns_of([&] { view->unmap(); });
    after->map_us = bench::ns_of([&] { view.emplace(files->content); }) / 1e3;
    after->read_ms = ns_of_reading([&](char *to, uint64_t offset, size_t n) {
                         std::memcpy(to, view->at(offset), n);
                     }) /
                     1e6;
    return ns;
}

/* The memcpy(), with page tables that are made for it, and removed. */
double ns_of_new_memcpy()
{
    return bench::ns_of([] {
        bench::MappedFile view(files->copy);
        view.populate();
        std::memcpy(view.at(0), files->content.at(0), settings.file_bytes());
    });
}

double ns_of_side(const std::string &side, const Written &written, After *after)
{
    if (side == "memcpy")
        return ns_of_memcpy(after);
    if (side == "plain")
        return ns_of_munmap(written, after);
    if (side == "new_memcpy")
        return ns_of_new_memcpy();
    if (side == "fast")
        return ns_of_unmap(written, ATO_UNMAP_FAST, 0, after);
    return ns_of_unmap(written, ATO_UNMAP_SPATIAL, side == "spatial" ? 0 : 1, after);
}

std::vector<Values> repeat(const Written &written, const std::vector<std::string> &sides)
{
    if (!files)
        files = std::make_unique<Files>();
    std::vector<std::vector<After>> seen(sides.size()); /* [0] is that of the warm-up */
    std::vector<Values> values = bench::interleave(
        sides.size(), settings.rounds(), [] {},
        [&](size_t side) { return ns_of_side(sides[side], written, &seen[side].emplace_back()); });
    bench::Medians medians;
    for (size_t side = 0; side < sides.size(); side++)
        for (size_t round = 1; round < seen[side].size(); round++) {
            const After &after = seen[side][round];
            if (sides[side] == "new_memcpy")
                continue;
            medians.add(side, "read_ms", after.read_ms);
            medians.add(side, "read_ratio", after.read_ms / seen[0][round].read_ms);
            if (sides[side] == "memcpy")
                continue;
            medians.add(side, "map_us", after.map_us);
            if (sides[side] != "plain")
                medians.add(side, "space_mib", after.space_mib);
        }
    std::vector<Values> others = medians.medians(sides.size());
    for (size_t side = 0; side < sides.size(); side++)
        values[side].insert(others[side].begin(), others[side].end());
    return values;
}

Case unmap_case(const std::string &format, const std::string &name, const Written &written)
{
    Case c;
    c.name = format + "/" + name;
    c.sides = {"memcpy", "plain", "fast", "spatial"};
    const bool dense = format == "dense";
    if (dense && name == "all") {
        c.sides.insert(c.sides.end(), {"new_memcpy", "spatial_1"});
        c.goals = {{"fast", "ns", 1e6}, {"spatial", "ratio", 1.3}};
    }
    c.repeat = [format, written, sides = c.sides] {
        setenv("ATO_FORMAT", format.c_str(), 1); /* each mapping makes a new reflection */
        return repeat(written, sides);
    };
    c.promise = [](const std::string &side) {
        return std::string(side == "fast" || side.rfind("spatial", 0) == 0
                               ? "pmem: durable, may be cut"
                               : "promises nothing");
    };
    return c;
}

std::vector<Case> cases()
{
    std::vector<Case> all;
    for (const char *format : {"dense", "sparse"}) {
        all.push_back(unmap_case(format, "none", {true, 0}));
        for (bool whole_pages : {false, true})
            for (unsigned every : {64, 16, 4, 2})
                all.push_back(unmap_case(
                    format, (whole_pages ? "pages/1_" : "slices/1_") + std::to_string(every),
                    {whole_pages, every}));
        all.push_back(unmap_case(format, "all", {true, 1}));
    }
    return all;
}

} // namespace

int main(int argc, char **argv)
{
    bench::Program program = {
        "Unmapping a file, by what lies in its reflection; the ratio is to a memcpy() of the file.",
        {256, 1, 1},
        [] { return settings.file_bytes() * 41 / 10 + (64ull << 20); },
        cases,
        [] { files.reset(); }};
    program.plot_script = UNMAP_PLOT;
    return bench::run(argc, argv, program);
}
