/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Common parts of the tests of whole protocols (model, threads, kill): repeatable random numbers, a folder
 * and mappings that are removed with their objects, and sentences for failures.
 *
 *   ATO_TEST_SEED     the seed, to repeat a failure; every failure prints it
 *   ATO_TEST_PERCENT  how much of the usual work to do; 100, and 20 under a sanitizer
 *
 * Without assertions: it works in forked children, too, where GoogleTest does not.
 */
#ifndef ATO_TEST_MODEL_RIG_H
#define ATO_TEST_MODEL_RIG_H

#include "ato.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <random>
#include <string>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

namespace rig
{

/* splitmix64: small, and the same everywhere. */
class Random
{
  public:
    explicit Random(uint64_t seed) : state(seed)
    {
    }
    uint64_t next()
    {
        uint64_t z = state += 0x9e3779b97f4a7c15ull;
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
        return z ^ (z >> 31);
    }
    uint64_t below(uint64_t n)
    {
        return next() % n;
    }
    /* lowest..highest, both included. */
    uint64_t within(uint64_t lowest, uint64_t highest)
    {
        return lowest + below(highest - lowest + 1);
    }
    bool chance(unsigned percent)
    {
        return below(100) < percent;
    }
    /* 1..highest, as many of each order of magnitude. */
    uint64_t log_uniform(uint64_t highest)
    {
        double at = static_cast<double>(next() >> 11) / static_cast<double>(1ull << 53);
        auto n = static_cast<uint64_t>(std::exp(at * std::log(static_cast<double>(highest) + 1)));
        return n < 1 ? 1 : n > highest ? highest : n;
    }
    /* An entry of a table, each as often as its `weight`. */
    template <class T, size_t n> const T &weighted(const T (&all)[n])
    {
        uint64_t sum = 0;
        for (const T &one : all)
            sum += one.weight;
        uint64_t dice = below(sum);
        const T *chosen = all;
        for (; dice >= chosen->weight; chosen++)
            dice -= chosen->weight;
        return *chosen;
    }
    void fill(void *to, size_t n)
    {
        auto *at = static_cast<unsigned char *>(to);
        for (; n >= 8; n -= 8, at += 8) {
            uint64_t v = next();
            std::memcpy(at, &v, 8);
        }
        uint64_t v = next();
        std::memcpy(at, &v, n);
    }

  private:
    uint64_t state;
};

/* The value in the environment; anything but a number ends the program. */
inline uint64_t whole_number(const char *name, const char *told)
{
    char *end = nullptr;
    uint64_t n = std::strtoull(told, &end, 0);
    if (end == told || *end || *told == '-') {
        std::fprintf(stderr, "%s is no whole number: '%s'\n", name, told);
        std::exit(2);
    }
    return n;
}

inline uint64_t seed()
{
    static const uint64_t chosen = [] {
        const char *told = std::getenv("ATO_TEST_SEED");
        return told ? whole_number("ATO_TEST_SEED", told)
                    : (uint64_t{std::random_device{}()} << 16 | 1);
    }();
    return chosen;
}

/* For SCOPED_TRACE(). */
inline std::string replay()
{
    return "again with ATO_TEST_SEED=" + std::to_string(seed());
}

/* `usual`, or the part of it that ATO_TEST_PERCENT asks for; never 0. */
inline unsigned rounds(unsigned usual)
{
    static const unsigned percent = [] {
        const char *told = std::getenv("ATO_TEST_PERCENT");
        if (told)
            return static_cast<unsigned>(whole_number("ATO_TEST_PERCENT", told));
        return 100u;
    }();
    unsigned n = static_cast<unsigned>(uint64_t{usual} * percent / 100);
    return n ? n : 1;
}

/* A test that enumerates steps takes each of them, or each `usual`-th: how far it goes from one to the next; and its first one, from
 * 0, which the seed chooses. With half of the usual work it goes twice as far. */
inline unsigned stride(unsigned usual = 1)
{
    return std::max(usual, usual * 100 / rounds(100));
}

inline unsigned first_step(unsigned stride)
{
    return static_cast<unsigned>(Random(seed()).below(stride));
}

enum class Medium { Memory, Disk };

/* Memory: tmpfs. Disk: the folder TMPDIR, where msync has an effect. */
class Folder
{
  public:
    explicit Folder(Medium medium = Medium::Memory)
    {
        const char *told = std::getenv("TMPDIR");
        std::string base = medium == Medium::Memory ? "/dev/shm"
                           : told && *told          ? told
                                                    : "/var/tmp";
        std::string name = base + "/ato-test-XXXXXX";
        if (!mkdtemp(name.data())) {
            std::perror(name.c_str());
            std::abort();
        }
        at = name;
    }
    ~Folder()
    {
        std::error_code ignored;
        std::filesystem::remove_all(at, ignored);
    }
    Folder(const Folder &) = delete;
    Folder &operator=(const Folder &) = delete;
    std::string operator/(const std::string &name) const
    {
        return at + "/" + name;
    }

    std::string at;
};

/* An open descriptor. */
class Descriptor
{
  public:
    explicit Descriptor(const std::string &path, int flags = O_RDWR)
        : fd(open(path.c_str(), flags | O_CLOEXEC, 0600))
    {
    }
    ~Descriptor()
    {
        if (fd >= 0)
            close(fd);
    }
    Descriptor(const Descriptor &) = delete;
    Descriptor &operator=(const Descriptor &) = delete;

    const int fd;
};

inline bool write_file(const std::string &path, const std::vector<unsigned char> &bytes)
{
    Descriptor to(path, O_RDWR | O_CREAT | O_TRUNC);
    size_t done = 0;
    while (to.fd >= 0 && done < bytes.size()) {
        ssize_t n = write(to.fd, bytes.data() + done, bytes.size() - done);
        if (n <= 0)
            return false;
        done += static_cast<size_t>(n);
    }
    return to.fd >= 0;
}

/* The bytes that read(2) returns. */
inline std::vector<unsigned char> read_file(const std::string &path)
{
    Descriptor from(path, O_RDONLY);
    std::vector<unsigned char> bytes;
    unsigned char some[1 << 16];
    ssize_t n;
    while ((n = read(from.fd, some, sizeof(some))) > 0)
        bytes.insert(bytes.end(), some, some + n);
    return bytes;
}

inline ato_options options(int policy, int domain, unsigned flags = 0)
{
    ato_options o{};
    o.struct_size = sizeof(o);
    o.read_policy = policy;
    o.domain = domain;
    o.flags = flags;
    return o;
}

/* A mapping that its destructor unmaps, if it was not unmapped before. `base` is nullptr if the map
 * failed. */
class Map
{
  public:
    Map() = default;
    Map(const std::string &path, size_t length, const ato_options &o, off_t offset = 0)
    {
        Descriptor file(path);
        void *at = ato_mmap_opt(length, file.fd, offset, &o);
        if (at == MAP_FAILED)
            return;
        base = static_cast<unsigned char *>(at);
        n = length;
    }
    ~Map()
    {
        unmap(ATO_UNMAP_FAST);
    }
    Map(Map &&other) noexcept : base(other.base), n(other.n)
    {
        other.base = nullptr;
    }
    Map &operator=(Map &&other) noexcept
    {
        if (this != &other) {
            unmap(ATO_UNMAP_FAST);
            base = other.base;
            n = other.n;
            other.base = nullptr;
        }
        return *this;
    }
    int unmap(int mode)
    {
        int r = base ? ato_munmap(base, n, mode) : 0;
        base = nullptr;
        return r;
    }
    struct ato_stat stat() const
    {
        struct ato_stat st = {};
        st.struct_size = sizeof(st);
        ::ato_stat(base, &st);
        return st;
    }

    unsigned char *base = nullptr;
    size_t n = 0;
};

/* The shared-memory objects of this library that the process has mapped: paths in /dev/shm. */
inline std::vector<std::string> shared_objects()
{
    std::vector<std::string> found;
    FILE *maps = std::fopen("/proc/self/maps", "re");
    char line[512];
    while (maps && std::fgets(line, sizeof(line), maps)) {
        const char *at = std::strstr(line, "/dev/shm/ato-");
        /* Test folders lie there, too; the objects are ato-<hex digits>-, and more. */
        const size_t digits = at ? std::strspn(at + 13, "0123456789abcdef") : 0;
        if (digits && at[13 + digits] == '-')
            found.emplace_back(at, std::strcspn(at, " \n"));
    }
    if (maps)
        std::fclose(maps);
    return found;
}

/* The names in a folder, without the note of a reflection folder; none if the folder does not exist. */
inline std::vector<std::string> names_in(const std::string &folder)
{
    std::vector<std::string> names;
    std::error_code ignored;
    for (const auto &entry : std::filesystem::directory_iterator(folder, ignored))
        if (entry.path().filename() != "README")
            names.push_back(entry.path().filename());
    return names;
}

/* ---- names for parameters ---- */

inline std::string policy_name(int policy)
{
    static const char *const names[] = {"Lazy", "Gather", "Eager"};
    return names[policy - ATO_READ_LAZY];
}

/* With the second format of the reflection, which a log has not: domain disk was tested in the first round. */
inline bool is_second_round()
{
    const char *format = getenv("ATO_FORMAT");
    return format && std::string(format) == "sparse";
}

inline std::string domain_name(int domain)
{
    static const char *const names[] = {"Auto", "Pmem", "Eadr", "Disk", "Process"};
    return names[domain];
}

/* The first place where two runs of bytes differ; -1: they are equal. */
inline long first_difference(const unsigned char *a, const unsigned char *b, size_t n)
{
    if (std::memcmp(a, b, n) == 0)
        return -1;
    size_t i = 0;
    while (a[i] == b[i])
        i++;
    return static_cast<long>(i);
}

} // namespace rig

#endif
