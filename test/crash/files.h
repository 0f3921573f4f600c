// SPDX-License-Identifier: BSD-3-Clause
//
// The real files of the media, and their inodes on a Disk. They are in a folder in memory: the
// originals, which keep their inodes, and all other files, which are made again for each Disk that
// is laid out. Inodes have the numbers that a trace gives them, so that a Disk and a trace can be
// compared.
//
// Goes around the seams, and does not use the library, apart from the name of its attribute. Throws
// Violation when a system call fails.
#ifndef ATO_TEST_CRASH_FILES_H
#define ATO_TEST_CRASH_FILES_H

#include "disk.h"

#include <sys/types.h>

namespace crash
{

class Files
{
  public:
    struct Original {
        std::string name;
        int fd;
        uint64_t number; // the kernel's number
        uint64_t length; // at the start
    };

    // `sizes`: of the originals, which are called a, b, ... and have different bytes.
    Files(const std::string &folder, const std::vector<uint64_t> &sizes, uint64_t seed);
    ~Files(); // removes the files
    Files(const Files &) = delete;
    Files &operator=(const Files &) = delete;

    // Reads the files. Without a program's WAL and the shared memory that belongs to it: these stay
    // as they are in any lay-out.
    Disk look() const;
    // Lays out exactly these files.
    void lay_out(const Disk &disk);
    // Writes into a file, around the seams.
    void poke(const std::string &name, uint64_t at, const std::vector<uint64_t> &words);
    uint64_t size_of(int original) const;
    Bytes plain_content(int original) const; // as read(2) returns it

    const std::string &path() const
    {
        return folder;
    }
    const std::vector<Original> &originals() const
    {
        return files;
    }
    static int inode_of(int original) // on every Disk
    {
        return original + 1;
    }

    // The inode on a Disk; -1: none of these files.
    int inode_of_number(ino_t number) const;
    int inode_of_open(int fd) const;
    // Records a new file.
    int add(ino_t number);
    // All of them, as another process that was forked from this one knows them.
    const std::map<ino_t, int> &inodes() const
    {
        return ids;
    }
    void learn(std::map<ino_t, int> inodes, int next);
    int next_inode() const
    {
        return next_id;
    }

  private:
    const std::string folder;
    std::vector<Original> files;
    std::map<ino_t, int> ids; // inodes of a Disk, by the kernel's number
    int next_id;              // for a new inode

    void lay_out_folder(const Disk &disk, int id, int at);
    void read_folder(Disk &disk, int id, int at) const;
};

Time mtime_of(int fd);
std::string attribute_of(int fd); // user.ato; "": no attribute

} // namespace crash

#endif
