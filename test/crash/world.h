// SPDX-License-Identifier: BSD-3-Clause
//
// A small world for the library to live in: a folder of real files in memory, the two seams, and
// what stands in for the rest (standins.h). It tells what a run does to the media (a trace), can lay
// any Disk out as real files, and can let the process die without a process.
//
// One at a time in a process.
#ifndef ATO_TEST_CRASH_WORLD_H
#define ATO_TEST_CRASH_WORLD_H

#include "trace.h"

#include "ato.h"

#include <functional>
#include <stdexcept>

namespace crash
{

// What a call of the library said when it failed where it must not; or any other broken promise.
struct Violation : std::runtime_error {
    using std::runtime_error::runtime_error;
};

struct Mapping {
    int file; // number of the original
    char *base;
    uint64_t bytes;
};

enum class After { PowerCut, Kill };

class World
{
  public:
    // `sizes`: of the originals, which are called a, b, ... and hold bytes that all differ.
    World(const std::string &folder, const std::vector<uint64_t> &sizes, uint64_t seed);
    ~World();
    World(const World &) = delete;
    World &operator=(const World &) = delete;

    // Everything that is done to the media goes there, until record(nullptr).
    void record(Trace *trace);
    // From here on the files may hold these contents, says the trace.
    void allow(std::vector<uint64_t> contents, const Demand &demand);

    // The files as they lie there now.
    Disk look() const;
    // Lays these files out. The originals keep their inodes.
    void stage(const Disk &disk, After after);

    // Violation on failure.
    Mapping *map(int file, int domain, int policy, unsigned flags);
    void unmap(Mapping *m, int mode);
    // It will be dead after so many events more: whatever it does then reaches nothing.
    void cut_short(size_t events);
    // The process dies: its memory, locks and descriptors are gone, the media stay as they are.
    void die();

    // The n-th of those that are mapped now.
    Mapping *mapping(size_t n) const
    {
        return mappings.at(n);
    }
    // Into a file, past everything.
    void poke(const std::string &name, uint64_t at, const std::vector<uint64_t> &words);
    // With the seams as they are without this world.
    void quietly(const std::function<void()> &what);

    size_t originals() const
    {
        return files.size();
    }
    uint64_t size_of(int file) const
    {
        return files[static_cast<size_t>(file)].size;
    }
    int inode_of(int file) const // on every Disk of this world
    {
        return file + 1;
    }
    uint64_t number_of(int file) const // the kernel's inode number
    {
        return files[static_cast<size_t>(file)].number;
    }
    Bytes plain_content(int file) const; // as read(2) sees it
    const std::string &path() const
    {
        return folder;
    }

    // Called by threads of the run before each thing that they do; for a scheduler.
    std::function<void()> pause;

    struct Original {
        std::string name;
        int fd;
        uint64_t number, size;
    };

  private:
    std::string folder;
    std::vector<Original> files;
    std::vector<Time> times; // of the originals, as the trace knows them
    std::vector<Mapping *> mappings;
    Trace *trace = nullptr;

    friend struct Seams;
};

// Of the calling thread, in the trace: from 1.
void set_thread_number(int number);
int get_thread_number();

} // namespace crash

#endif
