// SPDX-License-Identifier: BSD-3-Clause
//
// Temporary folders that are removed with their object, and functions for whole files. Uses of libato only
// the names of its files.
#ifndef ATO_TEST_SUPPORT_TEMP_H
#define ATO_TEST_SUPPORT_TEMP_H

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <sys/stat.h>
#include <sys/types.h>

namespace support
{

using Bytes = std::vector<unsigned char>;

// A folder of its own, removed with all its content by the process that made it; so are the shared
// memory objects of the manifests in it, which killed processes leave behind.
class TempDir
{
  public:
    explicit TempDir(const std::string &below = "/dev/shm");
    ~TempDir();
    TempDir(const TempDir &) = delete;
    TempDir &operator=(const TempDir &) = delete;

    const std::string &path() const
    {
        return path_;
    }
    std::string operator/(const std::string &name) const
    {
        return path_ + "/" + name;
    }

  private:
    std::string path_;
    pid_t maker_;
};

// A folder on a file system that lives on a disk, below which a TempDir can be made:
// $ATO_TEST_DISK, the working directory (the build folder, under meson), /var/tmp. "" if all are in
// memory.
std::string disk_folder();

// n bytes that differ from slice to slice and from seed to seed.
Bytes pattern(size_t n, unsigned seed);

// Replaces the file's content. In place: the inode stays.
void write_file(const std::string &path, const Bytes &content);
void write_at(const std::string &path, uint64_t offset, const void *bytes, size_t n);
Bytes read_file(const std::string &path);
Bytes read_at(const std::string &path, uint64_t offset, size_t n);

bool exists(const std::string &path);
struct stat stat_of(const std::string &path);
uint64_t inode_of(const std::string &path);
uint64_t size_of(const std::string &path);
// Sorted; without . and .., and without the note in a reflection folder.
std::vector<std::string> names_in(const std::string &folder);

// The attribute user.ato, "" if there is none.
std::string attribute_of(const std::string &path);
void set_attribute(const std::string &path, const std::string &value);

// The paths of libato's files beside `path`.
std::string folder_of(const std::string &path);     // .../.ato
std::string reflection_of(const std::string &path); // .../.ato/<inode>
std::string manifest_of(const std::string &path);   // .../.ato/<inode>.manifest
// Shared memory objects of the pairing with this id (32 hex digits).
size_t shared_objects(const std::string &id);
void remove_shared_objects(const std::string &id);
// The id in the attribute of a file.
std::string id_of(const std::string &path);

// An open file.
class Fd
{
  public:
    explicit Fd(const std::string &path, int flags = 02 /* O_RDWR */);
    explicit Fd(int fd) : fd_(fd)
    {
    }
    ~Fd();
    Fd(const Fd &) = delete;
    Fd &operator=(const Fd &) = delete;
    operator int() const
    {
        return fd_;
    }

  private:
    int fd_;
};

} // namespace support

#endif
