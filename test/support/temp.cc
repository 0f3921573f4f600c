// SPDX-License-Identifier: BSD-3-Clause
#include "temp.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <stdexcept>

#include <dirent.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/vfs.h>
#include <sys/xattr.h>
#include <unistd.h>

namespace support
{

static void must(bool good, const std::string &what)
{
    if (!good)
        throw std::runtime_error(what + ": " + strerror(errno));
}

TempDir::TempDir(const std::string &below) : path_(below + "/ato-test-XXXXXX"), maker_(getpid())
{
    must(mkdtemp(path_.data()) != nullptr, "mkdtemp below " + below);
}

std::string disk_folder()
{
    const char *wish = getenv("ATO_TEST_DISK");
    for (const char *folder : {wish ? wish : ".", ".", "/var/tmp"}) {
        struct statfs fs;
        if (statfs(folder, &fs) == 0 && fs.f_type != TMPFS_MAGIC && fs.f_type != RAMFS_MAGIC &&
            access(folder, W_OK) == 0)
            return std::filesystem::absolute(folder).lexically_normal();
    }
    return "";
}

Bytes pattern(size_t n, unsigned seed)
{
    Bytes b(n);
    uint64_t x = seed * 0x9e3779b97f4a7c15ull + 1;
    for (size_t i = 0; i < n; i++) {
        x = x * 6364136223846793005ull + 1442695040888963407ull;
        b[i] = static_cast<unsigned char>(x >> 56);
    }
    return b;
}

Fd::Fd(const std::string &path, int flags) : fd_(open(path.c_str(), flags | O_CLOEXEC, 0644))
{
    must(fd_ >= 0, "open " + path);
}

Fd::~Fd()
{
    if (fd_ >= 0)
        close(fd_);
}

void write_at(const std::string &path, uint64_t offset, const void *bytes, size_t n)
{
    Fd fd(path, O_WRONLY | O_CREAT);
    must(pwrite(fd, bytes, n, static_cast<off_t>(offset)) == static_cast<ssize_t>(n),
         "write " + path);
}

void write_file(const std::string &path, const Bytes &content)
{
    Fd fd(path, O_WRONLY | O_CREAT);
    must(ftruncate(fd, static_cast<off_t>(content.size())) == 0, "truncate " + path);
    must(pwrite(fd, content.data(), content.size(), 0) == static_cast<ssize_t>(content.size()),
         "write " + path);
}

Bytes read_at(const std::string &path, uint64_t offset, size_t n)
{
    Fd fd(path, O_RDONLY);
    Bytes b(n);
    ssize_t got = pread(fd, b.data(), n, static_cast<off_t>(offset));
    must(got >= 0, "read " + path);
    b.resize(static_cast<size_t>(got));
    return b;
}

Bytes read_file(const std::string &path)
{
    return read_at(path, 0, size_of(path));
}

bool exists(const std::string &path)
{
    struct stat st;
    return lstat(path.c_str(), &st) == 0;
}

struct stat stat_of(const std::string &path)
{
    struct stat st;
    must(stat(path.c_str(), &st) == 0, "stat " + path);
    return st;
}

uint64_t inode_of(const std::string &path)
{
    return stat_of(path).st_ino;
}

uint64_t size_of(const std::string &path)
{
    return static_cast<uint64_t>(stat_of(path).st_size);
}

std::vector<std::string> names_in(const std::string &folder)
{
    std::vector<std::string> names;
    DIR *dir = opendir(folder.c_str());
    if (!dir)
        return names;
    while (struct dirent *entry = readdir(dir))
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0 &&
            strcmp(entry->d_name, "README") != 0)
            names.push_back(entry->d_name);
    closedir(dir);
    std::sort(names.begin(), names.end());
    return names;
}

std::string attribute_of(const std::string &path)
{
    char value[8192];
    ssize_t n = getxattr(path.c_str(), "user.ato", value, sizeof(value));
    return n < 0 ? "" : std::string(value, static_cast<size_t>(n));
}

void set_attribute(const std::string &path, const std::string &value)
{
    must(setxattr(path.c_str(), "user.ato", value.data(), value.size(), 0) == 0,
         "setxattr " + path);
}

std::string folder_of(const std::string &path)
{
    return path.substr(0, path.rfind('/')) + "/.ato";
}

std::string reflection_of(const std::string &path)
{
    return folder_of(path) + "/" + std::to_string(inode_of(path));
}

std::string manifest_of(const std::string &path)
{
    return reflection_of(path) + ".manifest";
}

static std::vector<std::string> objects_of(const std::string &id)
{
    std::vector<std::string> found;
    for (const std::string &name : names_in("/dev/shm"))
        if (name.rfind("ato-" + id, 0) == 0)
            found.push_back(name);
    return found;
}

size_t shared_objects(const std::string &id)
{
    return objects_of(id).size();
}

void remove_shared_objects(const std::string &id)
{
    for (const std::string &name : objects_of(id))
        shm_unlink(("/" + name).c_str());
}

std::string id_of(const std::string &path)
{
    std::string value = attribute_of(path);
    return value.size() > 37 ? value.substr(5, 32) : "none";
}

// The id lies at byte 32 of either copy (reflection/format/manifest.h).
static void unlink_shared_memory(const std::string &manifest)
{
    Bytes bytes = read_at(manifest, 0, 4096 + 48);
    for (size_t copy : {0, 4096}) {
        char id[33] = "";
        for (size_t i = 0; i < 16 && copy + 32 + i < bytes.size(); i++)
            snprintf(id + 2 * i, 3, "%02x", bytes[copy + 32 + i]);
        if (strlen(id) == 32)
            remove_shared_objects(id);
    }
}

// The object of ato_shared(), if it was not given back.
static void unlink_memory(const std::filesystem::path &file)
{
    struct stat st;
    char name[64];
    if (lstat(file.c_str(), &st) < 0)
        return;
    snprintf(name, sizeof(name), "/ato-%jx-%ju-%u", uintmax_t(st.st_dev), uintmax_t(st.st_ino),
             geteuid());
    shm_unlink(name);
}

TempDir::~TempDir()
{
    std::error_code ignored;
    if (getpid() != maker_)
        return;
    for (const auto &entry : std::filesystem::recursive_directory_iterator(
             path_, std::filesystem::directory_options::skip_permission_denied, ignored))
        if (entry.path().extension() == ".manifest" && entry.is_regular_file())
            unlink_shared_memory(entry.path());
        else if (entry.is_regular_file())
            unlink_memory(entry.path());
    std::filesystem::remove_all(path_, ignored);
}

} // namespace support
