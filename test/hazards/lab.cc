// SPDX-License-Identifier: BSD-3-Clause
#include "lab.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <stdexcept>

#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

namespace hazards
{

int naive(const std::function<int()> &what)
{
    return in_child([&] {
        for (int deadly : {SIGBUS, SIGSEGV})
            signal(deadly, SIG_DFL);
        return what();
    });
}

// fork() has no flags, and unshare() gives a pid namespace to later children only.
Child::Child(int namespaces, const std::function<int()> &what)
{
    fflush(nullptr);
    pid = namespaces ? static_cast<pid_t>(syscall(SYS_clone, namespaces | SIGCHLD, 0, 0, 0, 0))
                     : fork();
    if (pid == 0)
        _exit(what());
    if (pid < 0)
        pid = 0;
}

int Child::wait()
{
    int status = 0;
    if (pid == 0)
        return NO_SCENE;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    pid = 0;
    return WIFSIGNALED(status) ? died_of(WTERMSIG(status)) : WEXITSTATUS(status);
}

void Child::kill()
{
    if (pid == 0)
        return;
    ::kill(pid, SIGKILL);
    wait();
}

Child::~Child()
{
    kill();
}

static bool run(const std::string &command)
{
    return system(("PATH=$PATH:/usr/sbin:/sbin; " + command + " >/dev/null 2>&1").c_str()) == 0;
}

bool run_in(const std::string &folder, const std::string &commands)
{
    return run("cd '" + folder + "' && (" + commands + ")");
}

bool alone()
{
    return unshare(CLONE_NEWNS) == 0 &&
           mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
           mount("ato-test", "/dev/shm", "tmpfs", 0, "size=64m") == 0;
}

bool mount_memory(const std::string &at, const std::string &options)
{
    std::filesystem::create_directories(at);
    return mount("ato-test", at.c_str(), "tmpfs", 0, options.c_str()) == 0;
}

bool mount_disk(const std::string &image, const std::string &at, unsigned mib,
                const std::string &mkfs_options, const std::string &mount_options)
{
    std::filesystem::create_directories(at);
    return run("truncate -s " + std::to_string(mib) + "M '" + image + "'") &&
           run("mkfs.ext4 -q -F -m 0 " + mkfs_options + " '" + image + "'") &&
           run("mount -o loop" + (mount_options.empty() ? "" : "," + mount_options) + " '" + image +
               "' '" + at + "'");
}

bool mount_medium(const Medium &medium, const std::string &at, unsigned mib)
{
    return medium.mkfs ? mount_disk("/dev/shm/image", at, mib, medium.mkfs)
                       : mount_memory(at, "size=" + std::to_string(mib) + "m");
}

void fill_but(const std::string &ballast, off_t left)
{
    Fd fd(ballast, O_RDWR | O_CREAT);
    for (off_t step = 8 << 20; step >= stat_of(ballast).st_blksize; step /= 2)
        while (fallocate(fd, 0, static_cast<off_t>(size_of(ballast)), step) == 0)
            ;
    if (left && ftruncate(fd, static_cast<off_t>(size_of(ballast)) - left) < 0)
        throw std::runtime_error("ftruncate " + ballast);
}

// Reserved blocks and given-up ones are free after a write-back: repeated until nothing is left.
void fill(const std::string &ballast)
{
    for (uint64_t before = 1, now = 0; now != before;) {
        before = now;
        fill_but(ballast, 0);
        syncfs(Fd(ballast, O_RDONLY));
        now = size_of(ballast);
    }
}

char *plain_map(const std::string &path, size_t n)
{
    Fd fd(path);
    void *at = mmap(nullptr, n, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED)
        throw std::runtime_error("mmap " + path);
    return static_cast<char *>(at);
}

std::ostream &operator<<(std::ostream &out, const Snapshot &s)
{
    for (const auto &[name, content] : s.all)
        out << name << " (" << content.size() << ") ";
    return out;
}

Snapshot everything_in(const std::string &folder)
{
    Snapshot s;
    for (const auto &entry : std::filesystem::recursive_directory_iterator(folder))
        s.all[entry.path()] =
            entry.is_regular_file() && !entry.is_symlink() ? read_file(entry.path()) : Bytes();
    return s;
}

bool has(const std::string &sentence, const std::string &part)
{
    return sentence.find(part) != std::string::npos;
}

Bytes over(Bytes whole, size_t at, const Bytes &part)
{
    std::copy(part.begin(), part.end(), whole.begin() + static_cast<long>(at));
    return whole;
}

} // namespace hazards
