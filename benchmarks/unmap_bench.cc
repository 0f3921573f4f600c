/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What does it cost to unmap a file all of whose bytes lie in its reflection, and to map it again?
 *
 *   unmap/fast           the reflection stays
 *   unmap/spatial        everything is copied home and made durable, the reflection is removed: an
 *                        ordinary file again
 *
 * `libato` unmaps with as many threads as it chooses, `libato_1` with one; `map_us` is what mapping the
 * file again takes. Against fast: `plain`, munmap() of one mapping with as many pages touched. Against
 * spatial: `memcpy`, one memcpy() of as many bytes from a mapped file to another, both touched before;
 * and `plain`, the same into a mapping that is made for it, populated, and unmapped again. Neither is
 * durable.
 */
#include "libato.h"
#include "measure.h"

#include <cinttypes>
#include <cstring>
#include <memory>
#include <string>
#include <unistd.h>
#include <vector>

namespace
{

using bench::Case;
using bench::fail;
using bench::settings;
using bench::Values;

constexpr size_t PAGE = 4096, SLICE = 64;

/* The content of page `page` after the n-th filling. */
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
    Reflected() : file_(settings.file_bytes(), true)
    {
        map();
    }

    ~Reflected()
    {
        unmap(ATO_UNMAP_SPATIAL, 0);
    }

    void map()
    {
        file_.map(bench::Domain::pmem, ATO_READ_LAZY);
    }

    void unmap(int mode, unsigned threads)
    {
        file_.unmap(mode, threads);
    }

    /* All slices into the reflection, where none may lie now. */
    void write_all()
    {
        char bytes[PAGE];
        filled_++;
        for (uint64_t page = 0; page < settings.file_bytes() / PAGE; page++) {
            fill_page(bytes, page, filled_);
            if (!ato_memcpy(file_.at(page * PAGE), bytes, PAGE))
                fail("ato_memcpy: %s", ato_errormsg());
        }
        check_reflected();
    }

    void check_reflected() const
    {
        struct ato_status st = file_.stat();
        if (st.slices_in_reflection != settings.file_bytes() / SLICE)
            fail("unmap: only %" PRIu64 " slices lie in the reflection", st.slices_in_reflection);
    }

    /* The file as read(2) returns it. */
    void check_plain() const
    {
        char expected[PAGE], found[PAGE];
        for (uint64_t page = 0; page < settings.file_bytes() / PAGE; page++) {
            fill_page(expected, page, filled_);
            if (pread(file_.descriptor(), found, PAGE, static_cast<off_t>(page * PAGE)) != PAGE ||
                std::memcmp(expected, found, PAGE) != 0)
                fail("unmap: page %" PRIu64 " did not come home", page);
        }
        if (file_.has_reflection())
            fail("unmap: the reflection is still there");
    }

  private:
    bench::AtoFile file_;
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

/* The kernel's time to unmap as many pages. */
double ns_of_munmap()
{
    bench::MappedFile file("munmap", settings.file_bytes());
    std::memset(file.at(0), 1, settings.file_bytes());
    return bench::ns_of([&] { file.unmap(); });
}

/* The memcpy(), with page tables that are made for it, and removed. */
double ns_of_fresh_copy()
{
    return bench::ns_of([] {
        bench::MappedFile view(files->to);
        view.populate();
        std::memcpy(view.at(0), files->from.at(0), settings.file_bytes());
    });
}

/* ns of the unmapping; and of the mapping afterwards. */
double ns_of_unmap(int mode, unsigned threads, std::vector<double> *map_ns)
{
    Reflected &file = files->reflected;
    file.write_all();
    double ns = bench::ns_of([&] { file.unmap(mode, threads); });
    if (mode == ATO_UNMAP_SPATIAL)
        file.check_plain();
    map_ns->push_back(bench::ns_of([&] { file.map(); }));
    if (mode == ATO_UNMAP_FAST) {
        file.check_reflected();
        file.unmap(ATO_UNMAP_SPATIAL, 0); /* so that the next filling finds no slice reflected */
        file.check_plain();
        file.map();
    }
    return ns;
}

std::vector<Values> repeat(int mode, const std::vector<std::string> &sides)
{
    if (!files)
        files = std::make_unique<Files>();
    std::vector<std::vector<double>> map_ns(sides.size());
    std::vector<Values> values = bench::interleave(
        sides.size(), settings.rounds(), [] {},
        [&](size_t i) {
            if (sides[i] == "memcpy")
                return ns_of_memcpy();
            if (sides[i] == "plain")
                return mode == ATO_UNMAP_FAST ? ns_of_munmap() : ns_of_fresh_copy();
            return ns_of_unmap(mode, sides[i] == "libato" ? 0 : 1, &map_ns[i]);
        });
    for (size_t i = 0; i < sides.size(); i++)
        if (!map_ns[i].empty())
            values[i]["map_us"] = bench::median(map_ns[i]) / 1e3;
    return values;
}

Case unmap_case(const char *kind, int mode, const std::vector<std::string> &sides,
                const bench::Goal &goal)
{
    Case c;
    c.name = std::string("unmap/") + kind;
    c.sides = sides;
    c.goals = {goal};
    c.repeat = [mode, sides] { return repeat(mode, sides); };
    c.promise = [](const std::string &side) {
        return std::string(side[0] == 'l' ? "pmem: durable, may be cut" : "promises nothing");
    };
    return c;
}

std::vector<Case> cases()
{
    return {unmap_case("fast", ATO_UNMAP_FAST, {"plain", "libato"}, {"libato", "ns", 1e6}),
            unmap_case("spatial", ATO_UNMAP_SPATIAL, {"memcpy", "plain", "libato", "libato_1"},
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
