// SPDX-License-Identifier: BSD-3-Clause
#include "disk.h"

#define FUSE_USE_VERSION 31
#include <fuse.h>
#include <fuse_lowlevel.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <stdexcept>

#include <fcntl.h>
#include <linux/fs.h>
#include <linux/loop.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

namespace powercut
{

static void must(bool good, const std::string &what)
{
    if (!good)
        throw std::runtime_error(what + ": " + strerror(errno));
}

// ---- the server: one file, one request at a time ------------------------------------------------

static const char NAME[] = "/disk";

static Disk &disk()
{
    return *static_cast<Disk *>(fuse_get_context()->private_data);
}

static int get_attributes(const char *path, struct stat *st, fuse_file_info *)
{
    *st = {};
    if (strcmp(path, "/") != 0 && strcmp(path, NAME) != 0)
        return -ENOENT;
    const bool folder = path[1] == '\0';
    st->st_mode = folder ? S_IFDIR | 0700 : S_IFREG | 0600;
    st->st_nlink = 1;
    st->st_size = folder ? 0 : static_cast<off_t>(FileSystem::BYTES);
    return 0;
}

static int read_bytes(const char *, char *to, size_t n, off_t at, fuse_file_info *)
{
    const uint64_t from = static_cast<uint64_t>(at), all = FileSystem::BYTES;
    n = from < all ? std::min<uint64_t>(n, all - from) : 0;
    memcpy(to, disk().bytes + from, n);
    return static_cast<int>(n);
}

// The event counts before the kernel is answered, so that the tape has all that was answered.
static int record(const Event &event)
{
    Tape &tape = *disk().tape;
    const uint64_t index = tape.count.load(std::memory_order_relaxed);
    if (index == Tape::EVENTS || event.n > Tape::BYTES - tape.used)
        return -EIO;
    char *copy = tape.bytes + tape.used;
    if (event.n)
        memcpy(copy, event.bytes, event.n);
    tape.used += event.n;
    tape.events[index] = {event.at, event.n, copy};
    tape.count.store(index + 1, std::memory_order_release);
    return static_cast<int>(event.n);
}

static int write_bytes(const char *, const char *from, size_t n, off_t at, fuse_file_info *)
{
    const uint64_t begin = static_cast<uint64_t>(at);
    if (begin > FileSystem::BYTES || n > FileSystem::BYTES - begin)
        return -ENOSPC;
    memcpy(disk().bytes + begin, from, n);
    return record({begin, n, from});
}

static int flush(const char *, int, fuse_file_info *)
{
    return record({0, 0, nullptr});
}

// No page cache lies before the file.
static void *begin(fuse_conn_info *, fuse_config *config)
{
    config->direct_io = 1;
    return fuse_get_context()->private_data;
}

// The mount is made by the caller, who sees why it fails. When the server dies the kernel ends the connection: nobody waits for it.
void Disk::serve()
{
    fuse_operations calls = {};
    calls.getattr = get_attributes;
    calls.read = read_bytes;
    calls.write = write_bytes;
    calls.fsync = flush;
    calls.init = begin;
    char name[] = "powercut";
    char *arguments[] = {name, nullptr};
    fuse_args args = FUSE_ARGS_INIT(1, arguments);
    const std::string at = dir_ / "fuse";
    must(mkdir(at.c_str(), 0700) == 0, "mkdir");
    fuse *f = fuse_new(&args, &calls, sizeof(calls), this);
    must(f && fuse_mount(f, at.c_str()) == 0, "no FUSE");
    fflush(nullptr);
    server_ = fork();
    if (server_ == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        // If it were the last one in the namespace of the later mounts, its end would unmount them, and wait for itself.
        if (unshare(CLONE_NEWNS) < 0)
            _exit(1);
        const sched_param first = {1}; // a disk does not wait for the CPU
        sched_setscheduler(0, SCHED_RR, &first);
        _exit(fuse_loop(f));
    }
    close(fuse_session_fd(fuse_get_session(f)));
    must(server_ > 0, "fork");
}

// ---- the loop device ----------------------------------------------------------------------------

// It is detached when its last user is gone, however that ends.
void Disk::attach()
{
    support::Fd control(std::string("/dev/loop-control")), file(dir_ / "fuse" + NAME);
    for (int tries = 0;; tries++) {
        const int number = ioctl(control, LOOP_CTL_GET_FREE);
        must(number >= 0, "no loop device");
        device_ = "/dev/loop" + std::to_string(number);
        loop_ = open(device_.c_str(), O_RDWR | O_CLOEXEC);
        must(loop_ >= 0, device_);
        loop_config wish = {};
        wish.fd = static_cast<uint32_t>(static_cast<int>(file));
        wish.info.lo_flags = LO_FLAGS_AUTOCLEAR;
        if (ioctl(loop_, LOOP_CONFIGURE, &wish) == 0)
            return;
        must(errno == EBUSY && tries < 100, "cannot configure " + device_);
        close(loop_); // another program was faster
        loop_ = -1;
    }
}

void *shared_memory(size_t n, int file)
{
    const int how = file < 0 ? MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE : MAP_SHARED;
    void *at = mmap(nullptr, n, PROT_READ | PROT_WRITE, how, file, 0);
    must(at != MAP_FAILED, "mmap");
    return at;
}

void Disk::make()
{
    must(mkdir(top.c_str(), 0700) == 0, "mkdir");
    memory_ = memfd_create("disk", MFD_CLOEXEC);
    must(memory_ >= 0 && ftruncate(memory_, FileSystem::BYTES) == 0, "memfd_create");
    bytes = static_cast<char *>(shared_memory(FileSystem::BYTES, memory_));
    tape = static_cast<Tape *>(shared_memory(sizeof(Tape)));
    serve();
    attach();
}

Disk::~Disk()
{
    umount2(top.c_str(), MNT_DETACH);
    if (loop_ >= 0)
        close(loop_);
    umount2((dir_ / "fuse").c_str(), MNT_DETACH);
    if (server_ > 0) {
        kill(server_, SIGKILL);
        waitpid(server_, nullptr, 0);
    }
    if (tape)
        munmap(tape, sizeof(Tape));
    if (bytes)
        munmap(bytes, FileSystem::BYTES);
    if (memory_ >= 0)
        close(memory_);
}

// ---- the file system ----------------------------------------------------------------------------

void Disk::format()
{
    if (!tape)
        make();
    must(ftruncate(memory_, 0) == 0 && ftruncate(memory_, FileSystem::BYTES) == 0, "ftruncate");
    const std::string command = std::string("PATH=$PATH:/usr/sbin:/sbin; ") + fs.mkfs + " /proc/" +
                                std::to_string(getpid()) + "/fd/" + std::to_string(memory_) +
                                " >/dev/null 2>&1";
    must(system(command.c_str()) == 0, command);
}

// The kernel keeps what it has read of the device as long as that is open.
bool Disk::mount()
{
    must(ioctl(loop_, BLKFLSBUF) == 0, "cannot drop what the kernel knows of " + device_);
    return ::mount(device_.c_str(), top.c_str(), fs.name, MS_NOATIME, fs.options) == 0;
}

void Disk::unmount()
{
    must(umount(top.c_str()) == 0, "cannot unmount " + top);
    must(ioctl(loop_, BLKFLSBUF) == 0, device_);
}

} // namespace powercut
