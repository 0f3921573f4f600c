/* SPDX-License-Identifier: BSD-3-Clause */
#include "shadow.h"

#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <map>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

namespace engines_test
{

std::optional<Forgotten> forgotten_by_environment()
{
    const char *told = std::getenv("ATO_ENGINES_FORGET");
    if (!told)
        return std::nullopt;
    const std::string text = told;
    const size_t colon = text.find(':');
    const std::string step = text.substr(0, colon);
    const unsigned every = colon == std::string::npos
                               ? 1
                               : static_cast<unsigned>(rig::whole_number("ATO_ENGINES_FORGET",
                                                                         text.c_str() + colon + 1));
    for (const auto &[name, what] : {std::pair{"copy", engine::Step::copy},
                                     {"flush", engine::Step::flush},
                                     {"fence", engine::Step::fence}})
        if (step == name && every)
            return Forgotten{what, every};
    std::fprintf(stderr,
                 "ATO_ENGINES_FORGET is not copy, flush or fence, nor one of these with :N: '%s'\n",
                 told);
    std::exit(2);
}

namespace shadow
{

namespace
{

namespace fs = std::filesystem;

[[noreturn]] void give_up(const std::string &what)
{
    std::perror(what.c_str());
    _exit(1);
}

void must(bool good, const std::string &what)
{
    if (!good)
        give_up(what);
}

/* Of a file, as long as its name is there. */
struct Image {
    char *durable = nullptr;
    size_t bytes = 0;

    /* A file that gets longer has zeros there. */
    void reach(size_t n)
    {
        if (n <= bytes)
            return;
        void *to = durable ? mremap(durable, bytes, n, MREMAP_MAYMOVE)
                           : mmap(nullptr, n, PROT_READ | PROT_WRITE,
                                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        must(to != MAP_FAILED, "memory for an image");
        durable = static_cast<char *>(to);
        bytes = n;
    }
};

struct Region { /* of the address space: a shared mapping of a file of the folder */
    uintptr_t first, end;
    std::string file;
    uint64_t offset;
};

struct Pending {
    std::string file;
    uint64_t offset;
    std::vector<char> bytes;
};

std::string root;
std::optional<Forgotten> forgotten;
uint64_t met; /* steps of the kind that is forgotten */
std::map<std::string, Image> images;
std::vector<Region> regions;
thread_local std::vector<Pending> pending; /* until the fence */
thread_local struct {
    const char *at = nullptr;
    size_t bytes = 0;
} copying;

void read_regions()
{
    regions.clear();
    std::FILE *maps = std::fopen("/proc/self/maps", "re");
    must(maps, "/proc/self/maps");
    char line[4096 + 128];
    while (std::fgets(line, sizeof(line), maps)) {
        Region r;
        char access[5];
        int name = 0;
        if (std::sscanf(line, "%lx-%lx %4s %lx %*s %*s %n", &r.first, &r.end, access, &r.offset,
                        &name) < 4 ||
            access[3] != 's')
            continue;
        r.file = line + name;
        r.file.erase(r.file.find_last_not_of('\n') + 1);
        if (r.file.rfind(root + "/", 0) == 0 && fs::exists(r.file))
            regions.push_back(r);
    }
    std::fclose(maps);
}

const Region *find(const void *address)
{
    const auto at = reinterpret_cast<uintptr_t>(address);
    for (int again = 0; again < 2; again++) {
        for (const Region &r : regions)
            if (r.first <= at && at < r.end)
                return &r;
        if (!again)
            read_regions();
    }
    return nullptr;
}

/* Notes the bytes as they are now; nothing if they are not in a file. */
void take(const char *at, size_t n)
{
    while (n) {
        const Region *r = find(at);
        if (!r)
            return;
        const size_t part = std::min(n, r->end - reinterpret_cast<uintptr_t>(at));
        pending.push_back(
            {r->file, r->offset + (reinterpret_cast<uintptr_t>(at) - r->first), {at, at + part}});
        at += part;
        n -= part;
    }
}

/* Calls what(offset, bytes) for each part of a file that is no hole. */
template <class What> void each_extent(int fd, const What &what)
{
    std::vector<char> bytes;
    for (off_t end = 0;;) {
        const off_t begin = lseek(fd, end, SEEK_DATA);
        if (begin < 0)
            return;
        end = lseek(fd, begin, SEEK_HOLE);
        bytes.resize(static_cast<size_t>(end - begin));
        must(pread(fd, bytes.data(), bytes.size(), begin) == static_cast<ssize_t>(bytes.size()),
             "read a file");
        what(static_cast<size_t>(begin), bytes);
    }
}

size_t length(int fd)
{
    struct stat st;
    must(fstat(fd, &st) == 0, "fstat");
    return static_cast<size_t>(st.st_size);
}

} // namespace

void begin(const std::string &folder, const std::optional<Forgotten> &what)
{
    root = folder;
    forgotten = what;
    for (const auto &entry : fs::recursive_directory_iterator(root)) {
        if (!entry.is_regular_file())
            continue;
        const int fd = open(entry.path().c_str(), O_RDONLY | O_CLOEXEC);
        must(fd >= 0, entry.path());
        Image &image = images[entry.path()];
        image.reach(length(fd));
        each_extent(fd, [&](size_t offset, const std::vector<char> &bytes) {
            std::memcpy(image.durable + offset, bytes.data(), bytes.size());
        });
        close(fd);
    }
}

void see(engine::Step step, const void *at, size_t n)
{
    if (copying.at)
        take(copying.at, copying.bytes);
    copying = {};
    if (forgotten && forgotten->step == step && ++met % forgotten->every == 0)
        return;
    switch (step) {
    case engine::Step::copy:
        copying = {static_cast<const char *>(at), n};
        break;
    case engine::Step::flush: {
        const auto address = reinterpret_cast<uintptr_t>(at), line = address / 64 * 64;
        take(reinterpret_cast<const char *>(line), (address + n + 63) / 64 * 64 - line);
        break;
    }
    case engine::Step::fence:
        for (const Pending &one : pending) {
            Image &image = images[one.file];
            image.reach(one.offset + one.bytes.size());
            std::memcpy(image.durable + one.offset, one.bytes.data(), one.bytes.size());
        }
        pending.clear();
        break;
    }
}

void cut(const std::string &to, rig::Random &random)
{
    /* All lost, all kept, or each with this chance; by words, or by whole lines. */
    static const unsigned chances[] = {0, 5, 50, 50, 95, 100};
    const unsigned chance = chances[random.below(6)];
    const size_t together = random.chance(70) ? 8 : 64;

    fs::create_directories(to);
    for (const auto &entry : fs::recursive_directory_iterator(root)) {
        const std::string there = to + entry.path().string().substr(root.size());
        if (entry.is_directory())
            fs::create_directories(there);
        if (!entry.is_regular_file())
            continue;
        const int from = open(entry.path().c_str(), O_RDONLY | O_CLOEXEC);
        const int fd = open(there.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        must(from >= 0 && fd >= 0, there);
        Image &image = images[entry.path()];
        image.reach(length(from));
        must(ftruncate(fd, static_cast<off_t>(length(from))) == 0, there);
        each_extent(from, [&](size_t offset, std::vector<char> &bytes) {
            for (size_t i = 0; i < bytes.size(); i += together) {
                const size_t n = std::min(together, bytes.size() - i);
                if (std::memcmp(&bytes[i], image.durable + offset + i, n) != 0 &&
                    !random.chance(chance))
                    std::memcpy(&bytes[i], image.durable + offset + i, n);
            }
            must(pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(offset)) ==
                     static_cast<ssize_t>(bytes.size()),
                 there);
        });
        close(from);
        close(fd);
    }
}

} // namespace shadow

} // namespace engines_test
