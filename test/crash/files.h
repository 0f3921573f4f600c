// SPDX-License-Identifier: BSD-3-Clause
//
// Where do the media lie, and which real file is which inode of a Disk? In a folder in memory: the
// originals, which keep their inodes, and all else, which is made anew for each Disk that is laid
// out. Inodes have the numbers that a trace gives them, so that a look and a trace can be compared.
//
// Goes past the seams, and knows nothing of the library but the name of its attribute. Violation
// when the system fails.
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
        uint64_t number; // the kernel's
        uint64_t length; // at first
    };

    // `sizes`: of the originals, which are called a, b, ... and hold bytes that all differ.
    Files(const std::string &folder, const std::vector<uint64_t> &sizes, uint64_t seed);
    ~Files(); // nothing is left of them
    Files(const Files &) = delete;
    Files &operator=(const Files &) = delete;

    // As they lie there now. Not the WAL of a program's, nor the shared memory that belongs to it: they stay as
    // they are, whatever is laid out.
    Disk look() const;
    // As this says, and nothing else is there.
    void lay_out(const Disk &disk);
    // Into a file, past everything.
    void poke(const std::string &name, uint64_t at, const std::vector<uint64_t> &words);
    uint64_t size_of(int original) const;
    Bytes plain_content(int original) const; // as read(2) sees it

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

    // On a Disk; -1: no file of these.
    int inode_of_number(ino_t number) const;
    int inode_of_open(int fd) const;
    // Of a file that was made just now.
    int add(ino_t number);
    // All of them, as another process knows them that went on from here.
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
    int next_id;              // of an inode that is made

    void lay_out_folder(const Disk &disk, int id, int at);
    void read_folder(Disk &disk, int id, int at) const;
};

Time mtime_of(int fd);
std::string attribute_of(int fd); // user.ato; "": none

} // namespace crash

#endif
