/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How far is a consistent read from a memcpy() of the same bytes?
 *
 *   read/home/SIZE       every slice lies in the file itself, all bitmaps are 0: what reads meet in a
 *                        file that is read more than it is written
 *   read/gather/SIZE     bitmaps are at random: neighbouring slices lie in different files
 *
 * at random offsets, aligned to the size, into a buffer that stays in the caches. Sides:
 *
 *   memcpy   from a shared mapping: a reader may see half of a write
 *   libato   ato_memcpy(): a reader sees what the file held at one moment
 */
#include "libato.h"
#include "measure.h"
#include "plain.h"
#include "world.h"

#include <memory>
#include <string>
#include <vector>

namespace
{

using bench::Backend;
using bench::Case;
using bench::Domain;
using bench::settings;
using bench::Values;
using bench::Write;

enum Bitmaps { HOME, RANDOM };

struct Files {
    Bitmaps bitmaps;
    bench::Libato *libato;
    std::unique_ptr<bench::World> world;
};

std::unique_ptr<Files> files;

Files &files_with(Bitmaps bitmaps)
{
    if (files && files->bitmaps == bitmaps)
        return *files;
    bench::end_files(&files);
    std::vector<std::unique_ptr<Backend>> sides;
    bench::LibatoOptions options;
    options.read_policy = bitmaps == HOME ? ATO_READ_LAZY : ATO_READ_GATHER;
    auto libato = bench::make_libato(options, settings.file_bytes());
    auto made = std::make_unique<Files>(Files{bitmaps, libato.get(), nullptr});
    sides.push_back(bench::make_plain(settings.file_bytes()));
    sides.push_back(std::move(libato));
    made->world = std::make_unique<bench::World>(std::move(sides), settings.file_bytes());
    made->world->fill_at_random();
    made->libato->check_bitmaps_at_random();
    if (bitmaps == HOME)
        made->libato->deploy();
    if (bitmaps == HOME && made->libato->stat().slices_in_reflection != 0)
        bench::fail("read/home: not everything is home");
    files = std::move(made);
    return *files;
}

void read_all(Backend *side, char *buffer, const std::vector<Write> &places)
{
    for (const Write &place : places)
        side->read(buffer, place.offset, place.bytes);
}

std::vector<Values> repeat(const std::string &name, Bitmaps bitmaps, uint32_t bytes)
{
    Files &f = files_with(bitmaps);
    std::vector<char> buffer(bytes + 64);
    char *dst = buffer.data() + (64 - reinterpret_cast<uintptr_t>(buffer.data()) % 64) % 64;
    std::vector<Write> places;
    struct ato_stat before = f.libato->stat();
    std::vector<Values> values = bench::interleave(
        2, settings.rounds(), [&] { places = f.world->random_writes(bytes, settings.batch); },
        [&](size_t side) {
            return bench::ns_of([&] { read_all(f.world->side(side), dst, places); }) /
                   static_cast<double>(places.size());
        });
    struct ato_stat after = f.libato->stat();
    if (after.reads - before.reads != (settings.rounds() + 1) * settings.batch)
        bench::fail("%s: ato_stat() counts other reads than were made", name.c_str());
    if (after.bytes_to_media != before.bytes_to_media)
        bench::fail("%s: reads stored to the media", name.c_str());
    return values;
}

Case read_case(const char *kind, Bitmaps bitmaps, const char *size, uint32_t bytes, double goal)
{
    Case c;
    c.name = std::string("read/") + kind + "/" + size;
    c.sides = {"memcpy", "libato"};
    if (goal > 0)
        c.goals = {{"libato", "ratio", goal}};
    c.repeat = [name = c.name, bitmaps, bytes] { return repeat(name, bitmaps, bytes); };
    c.promise = [](const std::string &side) {
        return std::string("pmem: ") +
               (side == "libato" ? "one moment's bytes" : "promises nothing: may be torn");
    };
    return c;
}

std::vector<Case> cases()
{
    return {
        read_case("home", HOME, "64", 64, 0),       read_case("home", HOME, "1K", 1024, 1.10),
        read_case("home", HOME, "4K", 4096, 1.10),  read_case("gather", RANDOM, "64", 64, 0),
        read_case("gather", RANDOM, "1K", 1024, 0), read_case("gather", RANDOM, "4K", 4096, 1.5)};
}

} // namespace

int main(int argc, char **argv)
{
    return bench::run(argc, argv,
                      {"Random reads of a file. Guarantees differ: memcpy may see half of a write.",
                       {1024, 200000, 1000},
                       [] { return settings.file_bytes() * 16 / 5 + (64ull << 20); },
                       cases,
                       [] { bench::end_files(&files); }});
}
