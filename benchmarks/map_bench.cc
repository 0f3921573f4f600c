/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What does it cost to map a large file, and to have it mapped?
 *
 *   map/after_fast    mapping a file that was left by a fast unmap, with slices in its reflection
 *
 * Sides: mmap(), of the same file, and ato_mmap(). An operation is a mapping; the unmapping is not
 * in its time, but is told (`unmap_us`). Memory, all in MiB, is what is resident in the process beside
 * the pages of the two files, shared memory included:
 *
 *   process   after the map, the program itself and all
 *   taken     of that, what the map added
 *   written   the same as `process` after 100000 writes of 64 bytes to pages at random
 *   bitmaps   at most so many pages of the reflection, not in `written`, hold the bitmaps then
 *   tables    page tables of the process then (mmap()'s: after touching the same pages)
 */
#include "libato.h"
#include "measure.h"

#include "reflection/format/layout.h"

#include <cerrno>
#include <cinttypes>
#include <cstring>
#include <fstream>
#include <memory>
#include <random>
#include <string>
#include <sys/mman.h>
#include <vector>

namespace
{

using bench::Case;
using bench::fail;
using bench::settings;
using bench::Values;

constexpr size_t PAGE = 4096, SCATTERED = 100000;

/* A line of a file in /proc like "Rss:    12 kB", in bytes; 0 if it is another one. */
uint64_t kib_of(const std::string &line, const char *name)
{
    size_t n = std::strlen(name);
    return line.compare(0, n, name) == 0 ? std::stoull(line.substr(n)) * 1024 : 0;
}

uint64_t page_tables()
{
    uint64_t bytes = 0;
    std::ifstream status("/proc/self/status");
    for (std::string line; std::getline(status, line);)
        bytes += kib_of(line, "VmPTE:");
    return bytes;
}

/* What is resident in this process, but pages of files in the folder. */
uint64_t resident()
{
    uint64_t bytes = 0;
    bool counts = true;
    std::ifstream smaps("/proc/self/smaps");
    for (std::string line; std::getline(smaps, line);) {
        if (std::isdigit(line[0]) || (line[0] >= 'a' && line[0] <= 'f')) /* a mapping's head */
            counts = line.find(bench::folder()) == std::string::npos;
        else if (counts)
            bytes += kib_of(line, "Rss:");
    }
    return bytes;
}

double mib(uint64_t bytes)
{
    return static_cast<double>(bytes) / (1 << 20);
}

class LargeFile
{
  public:
    LargeFile() : file_(settings.file_bytes(), true)
    {
        /* An address in the reflection. */
        map_atomically();
        write_scattered();
        unmap_atomically();
    }

    void map_atomically()
    {
        file_.map(bench::Domain::pmem, ATO_READ_LAZY);
    }

    void unmap_atomically()
    {
        file_.unmap(ATO_UNMAP_FAST);
    }

    void map_plainly()
    {
        void *base = mmap(nullptr, settings.file_bytes(), PROT_READ | PROT_WRITE, MAP_SHARED,
                          file_.descriptor(), 0);
        if (base == MAP_FAILED)
            fail("mmap: %s", std::strerror(errno));
        plain_ = static_cast<char *>(base);
    }

    void unmap_plainly()
    {
        munmap(plain_, settings.file_bytes());
    }

    void write_scattered()
    {
        for (size_t i = 0; i < SCATTERED; i++)
            if (!ato_memcpy(file_.at(somewhere()), line_, sizeof(line_)))
                fail("ato_memcpy: %s", ato_errormsg());
    }

    void read_scattered()
    {
        volatile char *base = plain_;
        for (size_t i = 0; i < SCATTERED; i++)
            (void)base[somewhere()];
    }

    uint64_t slices_in_reflection() const
    {
        return file_.stat().slices_in_reflection;
    }

  private:
    uint64_t somewhere()
    {
        return random_() % (settings.file_bytes() / PAGE) * PAGE;
    }

    bench::AtoFile file_;
    char *plain_ = nullptr;
    char line_[64] = {};
    std::mt19937_64 random_{8};
};

std::unique_ptr<LargeFile> file;

enum Side { MMAP, LIBATO };

std::vector<Values> repeat()
{
    if (!file)
        file = std::make_unique<LargeFile>();
    bench::Medians unmapping;
    std::vector<Values> values = bench::interleave(
        2, settings.rounds(), [] {},
        [&](size_t side) {
            double map_ns;
            if (side == MMAP) {
                map_ns = bench::ns_of([] { file->map_plainly(); });
                unmapping.add(side, "unmap_us", bench::ns_of([] { file->unmap_plainly(); }) / 1e3);
            } else {
                map_ns = bench::ns_of([] { file->map_atomically(); });
                unmapping.add(side, "unmap_us",
                              bench::ns_of([] { file->unmap_atomically(); }) / 1e3);
            }
            return map_ns;
        });
    std::vector<Values> others = unmapping.medians(2);
    for (Side side : {MMAP, LIBATO})
        values[side].insert(others[side].begin(), others[side].end());

    uint64_t before = resident();
    file->map_plainly();
    file->read_scattered();
    values[MMAP]["tables"] = mib(page_tables());
    file->unmap_plainly();

    file->map_atomically();
    if (file->slices_in_reflection() == 0)
        fail("map: nothing lies in the reflection");
    file->unmap_atomically();
    file->map_atomically();
    uint64_t mapped = resident();
    values[LIBATO]["process"] = mib(mapped);
    values[LIBATO]["taken"] = mib(mapped > before ? mapped - before : 0);
    file->write_scattered();
    values[LIBATO]["written"] = mib(resident());
    values[LIBATO]["bitmaps"] = mib(settings.file_bytes() / CHUNK_PAGES);
    values[LIBATO]["tables"] = mib(page_tables());
    file->unmap_atomically();
    return values;
}

std::vector<Case> cases()
{
    Case c;
    c.name = "map/after_fast";
    c.sides = {"mmap", "libato"};
    c.goals = {{"libato", "ns", 1e6}, {"libato", "process", 8}, {"libato", "written", 24}};
    c.repeat = repeat;
    c.promise = [](const std::string &side) {
        return std::string(side == "mmap" ? "promises nothing" : "pmem: atomic and durable writes");
    };
    return {c};
}

} // namespace

int main(int argc, char **argv)
{
    return bench::run(argc, argv,
                      {"Mapping a large file that was unmapped fast.",
                       {8192, 20, 1},
                       [] { return settings.file_bytes() * 21 / 10 + (64ull << 20); },
                       cases,
                       [] { file.reset(); }});
}
