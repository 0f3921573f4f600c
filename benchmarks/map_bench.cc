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
 *   tables    page tables of the process then (mmap()'s: after touching the same pages)
 */
#include "measure.h"

#include <ato.h>

#include <cerrno>
#include <cinttypes>
#include <cstring>
#include <fcntl.h>
#include <fstream>
#include <memory>
#include <random>
#include <sstream>
#include <string>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
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
    LargeFile()
    {
        std::string path = bench::folder() + "/large";
        fd_ = open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        if (fd_ < 0 || posix_fallocate(fd_, 0, static_cast<off_t>(settings.file_bytes())) != 0)
            fail("cannot make %s: %s", path.c_str(), std::strerror(errno));
        /* Something that lies in the reflection. */
        map_atomically();
        write_scattered();
        unmap_atomically(ATO_UNMAP_FAST);
    }

    ~LargeFile()
    {
        close(fd_);
    }

    void map_atomically()
    {
        struct ato_options o = {};
        o.struct_size = sizeof(o);
        o.domain = ATO_DOMAIN_PMEM;
        void *base = ato_mmap_opt(settings.file_bytes(), fd_, 0, &o);
        if (base == MAP_FAILED)
            fail("ato_mmap_opt: %s", ato_errormsg());
        base_ = static_cast<char *>(base);
    }

    void unmap_atomically(int mode)
    {
        if (ato_munmap(base_, settings.file_bytes(), mode) != 0)
            fail("ato_munmap: %s", ato_errormsg());
    }

    void map_plainly()
    {
        void *base =
            mmap(nullptr, settings.file_bytes(), PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
        if (base == MAP_FAILED)
            fail("mmap: %s", std::strerror(errno));
        base_ = static_cast<char *>(base);
    }

    void unmap_plainly()
    {
        munmap(base_, settings.file_bytes());
    }

    void write_scattered()
    {
        for (size_t i = 0; i < SCATTERED; i++)
            if (!ato_memcpy(base_ + somewhere(), line_, sizeof(line_)))
                fail("ato_memcpy: %s", ato_errormsg());
    }

    void read_scattered()
    {
        volatile char *base = base_;
        for (size_t i = 0; i < SCATTERED; i++)
            (void)base[somewhere()];
    }

    uint64_t slices_in_reflection() const
    {
        struct ato_stat st = {};
        st.struct_size = sizeof(st);
        if (ato_stat(base_, &st) != 0)
            fail("ato_stat: %s", ato_errormsg());
        return st.slices_in_reflection;
    }

  private:
    uint64_t somewhere()
    {
        return random_() % (settings.file_bytes() / PAGE) * PAGE;
    }

    int fd_;
    char *base_ = nullptr;
    char line_[64] = {};
    std::mt19937_64 random_{8};
};

std::unique_ptr<LargeFile> file;

enum Side { MMAP, LIBATO };

std::vector<Values> repeat()
{
    if (!file)
        file = std::make_unique<LargeFile>();
    double unmap_ns[2] = {};
    std::vector<Values> values = bench::interleave(
        2, settings.rounds(), [] {},
        [&](size_t side) {
            double map_ns;
            if (side == MMAP) {
                map_ns = bench::ns_of([] { file->map_plainly(); });
                unmap_ns[side] += bench::ns_of([] { file->unmap_plainly(); });
            } else {
                map_ns = bench::ns_of([] { file->map_atomically(); });
                unmap_ns[side] += bench::ns_of([] { file->unmap_atomically(ATO_UNMAP_FAST); });
            }
            return map_ns;
        });
    for (Side side : {MMAP, LIBATO})
        values[side]["unmap_us"] =
            unmap_ns[side] / 1e3 / static_cast<double>(settings.rounds() + 1);

    uint64_t before = resident();
    file->map_plainly();
    file->read_scattered();
    values[MMAP]["tables"] = mib(page_tables());
    file->unmap_plainly();

    file->map_atomically();
    if (file->slices_in_reflection() == 0)
        fail("map: nothing lies in the reflection");
    file->unmap_atomically(ATO_UNMAP_FAST);
    file->map_atomically();
    uint64_t mapped = resident();
    values[LIBATO]["process"] = mib(mapped);
    values[LIBATO]["taken"] = mib(mapped > before ? mapped - before : 0);
    file->write_scattered();
    values[LIBATO]["written"] = mib(resident());
    values[LIBATO]["tables"] = mib(page_tables());
    file->unmap_atomically(ATO_UNMAP_FAST);
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
        return std::string(side == "mmap" ? "none" : "pmem: atomic and durable writes");
    };
    return {c};
}

} // namespace

int main(int argc, char **argv)
{
    return bench::run(argc, argv,
                      {"Mapping a large file that was unmapped fast.",
                       {8192, 20, 1},
                       [] {
                           /* The scattered writes: a page each in the reflection, a repetition. */
                           return settings.file_bytes() * 2;
                       },
                       cases,
                       [] { file.reset(); }});
}
