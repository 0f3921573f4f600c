// SPDX-License-Identifier: BSD-3-Clause
//
// Runs a hazard without harm to the machine: in a child with file systems of its own, small, full, or on a
// loop device. The naive way runs there too; its end is a number.
#ifndef ATO_TEST_HAZARDS_LAB_H
#define ATO_TEST_HAZARDS_LAB_H

#include "support/child.h"
#include "support/mapped.h"

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <ostream>
#include <string>

namespace hazards
{

using namespace support;

// Exit status of a child that cannot set up its scene here.
constexpr int NO_SCENE = 50;

// In the parent: checks the exit status of the child.
#define EXPECT_PLAYED(status)                                                                      \
    do {                                                                                           \
        int played_ = (status);                                                                    \
        if (played_ == hazards::NO_SCENE)                                                          \
            GTEST_SKIP() << "the scene cannot be set up here: no root, mount or loop device";      \
        EXPECT_EQ(played_, 0);                                                                     \
    } while (0)

// Runs the naive way in a child. Returns its exit status, or died_of() a signal. Sanitizers are off.
int naive(const std::function<int()> &what);
constexpr int died_of(int signal)
{
    return 256 + signal;
}

// A child in namespaces of its own (CLONE_NEW...), killed when the object is destroyed; pid 0: there is none.
// With namespaces it is made without the library's handlers for fork: not in a process that has mappings.
class Child
{
  public:
    Child(int namespaces, const std::function<int()> &what);
    ~Child();
    Child(const Child &) = delete;
    Child &operator=(const Child &) = delete;

    int wait(); // as in_child()
    void kill();
    pid_t pid;
};

// Runs a shell's commands in a folder. True if all succeed.
bool run_in(const std::string &folder, const std::string &commands);

// Makes the later mounts of this process private to it and its children, and gives them a /dev/shm of their
// own, which is removed with them.
bool alone();
bool mount_memory(const std::string &at, const std::string &options);
// ext4 in a file, by a loop device. In memory (below /dev/shm) it waits for no disk.
bool mount_disk(const std::string &image, const std::string &at, unsigned mib,
                const std::string &mkfs_options, const std::string &mount_options = "");

// The medium of a test's files.
struct Medium {
    const char *name;
    const char *mkfs; // NULL: tmpfs
};
inline constexpr Medium TMPFS = {"tmpfs", nullptr}, EXT4 = {"ext4", "-b 4096"},
                        EXT4_1K = {"ext4_blocks_of_1k", "-b 1024"};
bool mount_medium(const Medium &medium, const std::string &at, unsigned mib);

// Takes all space that is left below the folder; `ballast` is the file that has it.
void fill(const std::string &ballast);
// Takes all but so many bytes. No call waits for the disk: dirty pages stay dirty.
void fill_but(const std::string &ballast, off_t left);

// Plain shared mappings, as in a program without the library.
char *plain_map(const std::string &path, size_t n);

// Everything below a folder, by name: to compare. Prints names and sizes only.
struct Snapshot {
    std::map<std::string, Bytes> all;

    bool operator==(const Snapshot &other) const
    {
        return all == other.all;
    }
};
std::ostream &operator<<(std::ostream &out, const Snapshot &s);
Snapshot everything_in(const std::string &folder);

bool has(const std::string &sentence, const std::string &part);

// Returns `whole` with `part` at an offset.
Bytes over(Bytes whole, size_t at, const Bytes &part);

} // namespace hazards

#endif
