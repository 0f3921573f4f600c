// SPDX-License-Identifier: BSD-3-Clause
//
// The content of the media at one moment: files, folders, bytes, sizes, the attribute user.ato,
// mtime. A Disk is a value: copies share their unchanged parts, so that a million copies are
// possible.
#ifndef ATO_TEST_CRASH_DISK_H
#define ATO_TEST_CRASH_DISK_H

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace crash
{

using Bytes = std::vector<unsigned char>;

constexpr uint64_t PAGE = 4096;
constexpr uint64_t LINE = 64;

// Mixes 64 bits; used by every hash and random stream here.
inline uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}

uint64_t hash_bytes(const void *bytes, size_t n);

// Repeatable random numbers.
class Random
{
  public:
    explicit Random(uint64_t seed) : state(mix(seed + 0x9e3779b97f4a7c15ull))
    {
    }
    uint64_t next()
    {
        state += 0x9e3779b97f4a7c15ull;
        return mix(state);
    }
    uint64_t below(uint64_t n)
    {
        return next() % n;
    }
    bool one_in(uint64_t n)
    {
        return below(n) == 0;
    }

  private:
    uint64_t state;
};

template <typename Of> void shuffle(std::vector<Of> &list, Random random)
{
    for (size_t i = list.size(); i > 1; i--)
        std::swap(list[i - 1], list[random.below(i)]);
}

struct Page {
    std::array<uint64_t, PAGE / 8> words{};

    // The hash of a page of zeros is 0, so that a hole and a page of zeros are equal.
    uint64_t hash() const;
    void changed()
    {
        known = false;
    }

  private:
    mutable uint64_t kept = 0;
    mutable bool known = false;
};

struct Time {
    int64_t sec = 0, nsec = 0;
    bool operator==(const Time &o) const
    {
        return sec == o.sec && nsec == o.nsec;
    }
};

struct Inode {
    bool folder = false;
    uint64_t size = 0;
    std::map<uint64_t, std::shared_ptr<Page>> pages; // the pages that are or were not all zeros
    std::string attribute;                           // user.ato; "": no attribute
    Time mtime;
    std::map<std::string, int> names; // of a folder

    uint64_t word(uint64_t at) const; // at: a multiple of 8
    void set_word(uint64_t at, uint64_t value);
    void resize(uint64_t bytes); // as ftruncate(2)
    void read(uint64_t at, void *to, uint64_t n) const;
    Bytes content() const;
};

class Disk
{
  public:
    static constexpr int ROOT = 0;
    Disk(); // an empty folder

    int add(Inode inode);
    const Inode &at(int id) const
    {
        return *inodes[static_cast<size_t>(id)];
    }
    Inode &edit(int id);
    size_t count() const
    {
        return inodes.size();
    }
    // -1: there is none.
    int find(int folder, const std::string &name) const;

    // A hash of everything that can be reached from the root.
    uint64_t hash() const;

  private:
    std::vector<std::shared_ptr<Inode>> inodes;
    uint64_t hash_of(int id) const;
};

} // namespace crash

#endif
