// SPDX-License-Identifier: BSD-3-Clause
//
// A disk in memory that records what a file system writes to it, and its flushes: a loop device over a file of a FUSE mount, which
// a process of its own serves. Bytes and tape lie in memory that all processes share. Only while no file system is mounted may
// others than the server change them.
#ifndef ATO_TEST_POWERCUT_DISK_H
#define ATO_TEST_POWERCUT_DISK_H

#include "support/temp.h"

#include <atomic>
#include <cstdint>
#include <string>

#include <sys/types.h>

namespace powercut
{

constexpr uint64_t SECTOR = 512;

// A write, or (n is 0) a flush: the disk has then made durable all that was written before.
struct Event {
    uint64_t at, n;
    const char *bytes;
};

struct Tape {
    static constexpr uint64_t EVENTS = 1 << 20,
                              BYTES = 2ull << 30; // more is not recorded, and fails

    std::atomic<uint64_t> count; // of events that happened
    uint64_t used;               // of the bytes
    Event events[EVENTS];
    char bytes[BYTES];
};

struct FileSystem {
    const char *name, *mkfs; // the device follows
    const char *options;     // of mount
    // A sector, and how many after it are always written with it: a superblock that the file system does not expect to be torn.
    uint64_t whole, more;
    static constexpr uint64_t BYTES = 64 << 20; // of the disk
};

// Of zeros, also for the children of this process; or of a file.
void *shared_memory(size_t n, int file = -1);

class Disk
{
    support::TempDir dir_{"/tmp"};

  public:
    explicit Disk(const FileSystem &wish) : fs(wish)
    {
    }
    ~Disk();
    Disk(const Disk &) = delete;
    Disk &operator=(const Disk &) = delete;

    // Makes the disk, if it is not there, and the file system anew. Throws std::runtime_error if the machine lacks what that needs.
    void format();
    bool mount(); // false: the kernel refuses it
    void unmount();

    const FileSystem fs;
    const std::string top = dir_ / "mounted"; // of the mounted file system
    char *bytes = nullptr;
    Tape *tape = nullptr;

  private:
    void make();
    void serve();
    void attach();

    int memory_ = -1, loop_ = -1;
    pid_t server_ = 0;
    std::string device_;
};

} // namespace powercut

#endif
