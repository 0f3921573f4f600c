/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What does it cost to unmap a file all of whose bytes lie in its reflection, and to map it again?
 *
 *   unmap/fast           the reflection stays
 *   unmap/spatial        everything is copied home and made durable, the reflection is removed: an
 *                        ordinary file again
 *
 * Sides: `memcpy` is one memcpy() of as many bytes, from a mapped file to another, both touched
 * before: not durable. `libato` unmaps with as many threads as it chooses, `libato_1` with one.
 * `map_us` is what mapping the file again takes.
 */
#include "measure.h"

#include <ato.h>

#include <cerrno>
#include <cinttypes>
#include <cstring>
#include <fcntl.h>
#include <memory>
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

constexpr size_t PAGE = 4096, SLICE = 64;

/* What page `page` holds after the n-th filling. */
void fill_page(char (&bytes)[PAGE], uint64_t page, uint64_t n)
{
    for (size_t i = 0; i < PAGE; i += 8) {
        uint64_t word = page * PAGE + i + (n << 48);
        std::memcpy(bytes + i, &word, 8);
    }
}

/* A file that comes to lie in its reflection, again and again. */
class Reflected
{
  public:
    Reflected()
    {
        std::string path = bench::folder() + "/reflected";
        fd_ = open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        if (fd_ < 0 || posix_fallocate(fd_, 0, static_cast<off_t>(settings.file_bytes())) != 0)
            fail("cannot make %s: %s", path.c_str(), std::strerror(errno));
        map();
    }

    ~Reflected()
    {
        unmap(ATO_UNMAP_SPATIAL, 0);
        close(fd_);
    }

    void map()
    {
        struct ato_options o = {};
        o.struct_size = sizeof(o);
        o.domain = ATO_DOMAIN_PMEM;
        void *base = ato_mmap_opt(settings.file_bytes(), fd_, 0, &o);
        if (base == MAP_FAILED)
            fail("ato_mmap_opt: %s", ato_errormsg());
        base_ = static_cast<char *>(base);
    }

    void unmap(int mode, unsigned threads)
    {
        struct ato_unmap_options o = {};
        o.struct_size = sizeof(o);
        o.mode = mode;
        o.threads = threads;
        if (ato_munmap_opt(base_, settings.file_bytes(), &o) != 0)
            fail("ato_munmap_opt: %s", ato_errormsg());
    }

    /* All slices into the reflection, where none may lie now. */
    void write_all()
    {
        char bytes[PAGE];
        filled_++;
        for (uint64_t page = 0; page < settings.file_bytes() / PAGE; page++) {
            fill_page(bytes, page, filled_);
            if (!ato_memcpy(base_ + page * PAGE, bytes, PAGE))
                fail("ato_memcpy: %s", ato_errormsg());
        }
        check_reflected();
    }

    void check_reflected() const
    {
        struct ato_stat st = {};
        st.struct_size = sizeof(st);
        if (ato_stat(base_, &st) != 0)
            fail("ato_stat: %s", ato_errormsg());
        if (st.slices_in_reflection != settings.file_bytes() / SLICE)
            fail("unmap: only %" PRIu64 " slices lie in the reflection", st.slices_in_reflection);
    }

    /* The file as any program sees it. */
    void check_plain() const
    {
        char expected[PAGE], found[PAGE];
        for (uint64_t page = 0; page < settings.file_bytes() / PAGE; page++) {
            fill_page(expected, page, filled_);
            if (pread(fd_, found, PAGE, static_cast<off_t>(page * PAGE)) != PAGE ||
                std::memcmp(expected, found, PAGE) != 0)
                fail("unmap: page %" PRIu64 " did not come home", page);
        }
    }

  private:
    int fd_;
    char *base_ = nullptr;
    uint64_t filled_ = 0;
};

struct Files {
    bench::MappedFile from{"from", settings.file_bytes()}, to{"to", settings.file_bytes()};
    Reflected reflected;

    Files()
    {
        std::memset(from.at(0), 1, settings.file_bytes());
        std::memset(to.at(0), 2, settings.file_bytes());
    }
};

std::unique_ptr<Files> files;

double ns_of_memcpy()
{
    return bench::ns_of(
        [] { std::memcpy(files->to.at(0), files->from.at(0), settings.file_bytes()); });
}

/* ns of the unmapping; adds ns of the mapping afterwards. */
double ns_of_unmap(int mode, unsigned threads, double *map_ns)
{
    Reflected &file = files->reflected;
    file.write_all();
    double ns = bench::ns_of([&] { file.unmap(mode, threads); });
    if (mode == ATO_UNMAP_SPATIAL)
        file.check_plain();
    *map_ns += bench::ns_of([&] { file.map(); });
    if (mode == ATO_UNMAP_FAST) {
        file.check_reflected();
        file.unmap(ATO_UNMAP_SPATIAL, 0); /* so that the next filling finds no slice reflected */
        file.check_plain();
        file.map();
    }
    return ns;
}

std::vector<Values> repeat(int mode, size_t sides)
{
    if (!files)
        files = std::make_unique<Files>();
    std::vector<double> map_ns(sides);
    std::vector<Values> values = bench::interleave(
        sides, settings.rounds(), [] {},
        [&](size_t side) {
            return side == 0 ? ns_of_memcpy() : ns_of_unmap(mode, side == 1 ? 0 : 1, &map_ns[side]);
        });
    for (size_t side = 1; side < sides; side++)
        values[side]["map_us"] = map_ns[side] / 1e3 / static_cast<double>(settings.rounds() + 1);
    return values;
}

Case unmap_case(const char *kind, int mode, const std::vector<std::string> &sides,
                const bench::Goal &goal)
{
    Case c;
    c.name = std::string("unmap/") + kind;
    c.sides = sides;
    c.goals = {goal};
    c.repeat = [mode, n = sides.size()] { return repeat(mode, n); };
    c.promise = [](const std::string &side) {
        return std::string(side == "memcpy" ? "none: not durable" : "pmem: durable, may be cut");
    };
    return c;
}

std::vector<Case> cases()
{
    return {unmap_case("fast", ATO_UNMAP_FAST, {"memcpy", "libato"}, {"libato", "ns", 1e6}),
            unmap_case("spatial", ATO_UNMAP_SPATIAL, {"memcpy", "libato", "libato_1"},
                       {"libato", "ratio", 1.3})};
}

} // namespace

int main(int argc, char **argv)
{
    return bench::run(argc, argv,
                      {"Unmapping a file all of whose slices lie in its reflection.",
                       {1024, 1, 1},
                       [] { return settings.file_bytes() * 21 / 5 + (64ull << 20); },
                       cases,
                       [] { files.reset(); }});
}
