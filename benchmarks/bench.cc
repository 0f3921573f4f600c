/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The surroundings of a benchmark: its folder and files, the names of medium and CPU, and the median.
 * Independent of the backend.
 */
#include "bench.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

namespace bench
{

namespace
{

std::string made_folder;

void remove_folder()
{
    std::error_code ignored;
    std::filesystem::remove_all(made_folder, ignored);
}

volatile std::sig_atomic_t asked_to_stop;

void ask_to_stop(int number)
{
    asked_to_stop = number;
}

} // namespace

void fail(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    std::vfprintf(stderr, format, args);
    va_end(args);
    std::fputc('\n', stderr);
    std::exit(1);
}

void restart_with(char **argv, const std::vector<std::string> &wanted)
{
    std::vector<std::string> others;
    size_t ready = 0;
    for (char **e = environ; *e; e++) {
        const std::string variable = *e;
        if (std::find(wanted.begin(), wanted.end(), variable) != wanted.end())
            ready++;
        else if (variable.rfind("PMEM", 0) == 0 || variable.rfind("ATO_", 0) == 0)
            others.push_back(variable.substr(0, variable.find('=')));
    }
    if (ready == wanted.size() && others.empty())
        return;
    for (const std::string &name : others)
        unsetenv(name.c_str());
    for (const std::string &one : wanted)
        setenv(one.substr(0, one.find('=')).c_str(), one.c_str() + one.find('=') + 1, 1);
    execv("/proc/self/exe", argv);
    fail("cannot start again with another environment: %s", std::strerror(errno));
}

const std::string &folder(const char *where)
{
    if (made_folder.empty()) {
        std::string path = std::string(where) + "/ato-bench-XXXXXX";
        if (!mkdtemp(path.data()))
            fail("cannot make a folder in %s: %s", where, std::strerror(errno));
        made_folder = path;
        std::atexit(remove_folder);
        for (int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE})
            if (std::signal(number, ask_to_stop) == SIG_IGN) /* nohup */
                std::signal(number, SIG_IGN);
    }
    return made_folder;
}

void stop_if_asked()
{
    if (asked_to_stop)
        std::exit(128 + asked_to_stop);
}

MappedFile::MappedFile(const char *name, size_t bytes) : bytes_(bytes)
{
    std::string path = folder() + "/" + name;
    fd_ = open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd_ < 0 || ftruncate(fd_, static_cast<off_t>(bytes)) != 0)
        fail("cannot make %s: %s", path.c_str(), std::strerror(errno));
    unlink(path.c_str()); /* the descriptor holds it */
    map();
}

MappedFile::MappedFile(const MappedFile &other) : bytes_(other.bytes_), fd_(dup(other.fd_))
{
    map();
}

MappedFile::~MappedFile()
{
    unmap();
    close(fd_);
}

void MappedFile::map()
{
    void *base = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
    if (base == MAP_FAILED)
        fail("cannot map a file of %zu bytes: %s", bytes_, std::strerror(errno));
    base_ = static_cast<char *>(base);
}

void MappedFile::populate()
{
    if (madvise(base_, bytes_, MADV_POPULATE_WRITE) == 0)
        return;
    for (size_t i = 0; i < bytes_; i += 4096) /* Linux before 5.14 */
        *static_cast<volatile char *>(base_ + i) = base_[i];
}

void MappedFile::unmap()
{
    if (base_)
        munmap(base_, bytes_);
    base_ = nullptr;
}

std::string medium_name()
{
    struct statfs fs;
    if (statfs(folder().c_str(), &fs) != 0)
        fail("statfs of %s: %s", folder().c_str(), std::strerror(errno));
    switch (static_cast<unsigned long>(fs.f_type)) {
    case TMPFS_MAGIC:
        return "tmpfs (DRAM)";
    case RAMFS_MAGIC:
        return "ramfs (DRAM)";
    case EXT4_SUPER_MAGIC:
        return "ext4";
    case XFS_SUPER_MAGIC:
        return "xfs";
    default: {
        char name[32];
        std::snprintf(name, sizeof(name), "file system %#lx", static_cast<long>(fs.f_type));
        return name;
    }
    }
}

std::string cpu_name()
{
    std::ifstream info("/proc/cpuinfo");
    for (std::string line; std::getline(info, line);)
        if (line.rfind("model name", 0) == 0)
            return line.substr(line.find(':') + 2);
    return "CPU unknown";
}

uint64_t free_bytes()
{
    struct statvfs fs;
    if (statvfs(folder().c_str(), &fs) != 0)
        fail("statvfs of %s: %s", folder().c_str(), std::strerror(errno));
    return static_cast<uint64_t>(fs.f_bavail) * fs.f_frsize;
}

double ns_of(const std::function<void()> &what)
{
    auto begin = std::chrono::steady_clock::now();
    what();
    std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - begin;
    return took.count();
}

double median(std::vector<double> values)
{
    std::sort(values.begin(), values.end());
    size_t n = values.size();
    return n == 0 ? 0 : (values[(n - 1) / 2] + values[n / 2]) / 2;
}

} // namespace bench
