// SPDX-License-Identifier: BSD-3-Clause
//
// Where does a hazard come true without hurting the machine? In a child with file systems of its
// own: small, full, on a loop device. And how does the naive way end? Told as a number.
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

// Exit status of a child whose scene cannot be set up here.
constexpr int NO_SCENE = 50;

// In the parent: what the child's scene came to.
#define EXPECT_PLAYED(status)                                                                      \
    do {                                                                                           \
        int played_ = (status);                                                                    \
        if (played_ == hazards::NO_SCENE)                                                          \
            GTEST_SKIP() << "the scene cannot be set up here: no root, mount or loop device";      \
        EXPECT_EQ(played_, 0);                                                                     \
    } while (0)

// The naive way, in a child: its exit status, or died_of() a signal. No sanitizer steps in.
int naive(const std::function<int()> &what);
constexpr int died_of(int signal)
{
    return 256 + signal;
}

// A child in namespaces of its own (CLONE_NEW...), killed when the object goes; pid 0: there is
// none. With namespaces it is made behind the library's back: not by a process that has mappings.
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

// A shell's commands, in a folder. True when all succeed.
bool run_in(const std::string &folder, const std::string &commands);

// What this process mounts from here on, it alone and its children see; and a /dev/shm of their
// own, which takes what they leave there along.
bool alone();
bool mount_memory(const std::string &at, const std::string &options);
// ext4 in a file of its own, by a loop device. In memory (below /dev/shm) it waits for no disk.
bool mount_disk(const std::string &image, const std::string &at, unsigned mib,
                const std::string &mkfs_options, const std::string &mount_options = "");

// What a test's files lie on.
struct Medium {
    const char *name;
    const char *mkfs; // NULL: tmpfs
};
inline constexpr Medium TMPFS = {"tmpfs", nullptr}, EXT4 = {"ext4", "-b 4096"},
                        EXT4_1K = {"ext4_blocks_of_1k", "-b 1024"};
bool mount_medium(const Medium &medium, const std::string &at, unsigned mib);

// Takes all space that is left below the folder; `ballast` is the file that has it.
void fill(const std::string &ballast);
// All but so many bytes. No call waits for the disk: what is dirty stays so.
void fill_but(const std::string &ballast, off_t left);

// Plain shared mappings, as a program without the library has them.
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

// `part` put over `whole` at an offset.
Bytes over(Bytes whole, size_t at, const Bytes &part);

} // namespace hazards

#endif
