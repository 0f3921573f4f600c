// SPDX-License-Identifier: BSD-3-Clause
#include "injector.h"

#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstring>
#include <map>
#include <mutex>
#include <set>

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

extern "C" const char __executable_start;

namespace support
{
namespace injector
{

static std::mutex lock;
static std::atomic<bool> armed;
static const Fault *wish;
static Heard heard;
static std::map<uintptr_t, unsigned> turns;

static std::set<uintptr_t> blocks; // not as pointers: LeakSanitizer would find each block by them
static std::map<uintptr_t, uintptr_t> ranges; // begin, end
static std::set<std::string> objects;

void begin(const Fault *fault)
{
    std::lock_guard<std::mutex> hold(lock);
    wish = fault;
    heard = Heard();
    turns.clear();
    armed = true;
}

Heard end()
{
    std::lock_guard<std::mutex> hold(lock);
    armed = false;
    return heard;
}

uintptr_t in_program(uintptr_t place)
{
    return place - reinterpret_cast<uintptr_t>(&__executable_start);
}

// The error with which this call has to fail; 0: none.
static int look(const char *name, void *place, const int *errors)
{
    if (!armed)
        return 0;
    int saved = errno;
    std::lock_guard<std::mutex> hold(lock);
    uintptr_t at = reinterpret_cast<uintptr_t>(place);
    Call call{name, at, turns[at]++, errors};
    heard.calls.push_back(call);
    errno = saved;
    if (!wish)
        return 0;
    bool fails = call == wish->call;
    if (wish->reach == KIND)
        fails = fails || (heard.failed && strcmp(name, wish->call.name) == 0);
    heard.failed = heard.failed || fails;
    return fails ? wish->error : 0;
}

// ---- resources to give back ---------------------------------------------------------------------

static void *took_block(void *block)
{
    std::lock_guard<std::mutex> hold(lock);
    if (block)
        blocks.insert(~reinterpret_cast<uintptr_t>(block));
    return block;
}

static void gave_block(const void *block)
{
    std::lock_guard<std::mutex> hold(lock);
    blocks.erase(~reinterpret_cast<uintptr_t>(block));
}

static void cut_range(uintptr_t begin, uintptr_t end)
{
    auto at = ranges.upper_bound(begin);
    if (at != ranges.begin())
        --at;
    while (at != ranges.end() && at->first < end) {
        uintptr_t from = at->first, to = at->second;
        if (to <= begin) {
            ++at;
            continue;
        }
        at = ranges.erase(at);
        if (from < begin)
            ranges[from] = begin;
        if (to > end)
            ranges[end] = to;
    }
}

static uintptr_t whole_pages(size_t n)
{
    return (n + 4095) & ~static_cast<uintptr_t>(4095);
}

static void *took_range(void *begin, size_t n)
{
    std::lock_guard<std::mutex> hold(lock);
    uintptr_t from = reinterpret_cast<uintptr_t>(begin);
    if (begin != MAP_FAILED) {
        cut_range(from, from + whole_pages(n));
        ranges[from] = from + whole_pages(n);
    }
    return begin;
}

static void gave_range(const void *begin, size_t n)
{
    std::lock_guard<std::mutex> hold(lock);
    uintptr_t from = reinterpret_cast<uintptr_t>(begin);
    cut_range(from, from + whole_pages(n));
}

Holdings holdings()
{
    std::lock_guard<std::mutex> hold(lock);
    Holdings h;
    h.blocks = blocks.size();
    for (const auto &range : ranges)
        h.address += range.second - range.first;
    return h;
}

std::vector<std::string> shared_memory_left()
{
    std::lock_guard<std::mutex> hold(lock);
    std::vector<std::string> left;
    for (const std::string &name : objects)
        if (access(("/dev/shm" + name).c_str(), F_OK) == 0)
            left.push_back(name);
    return left;
}

// ---- the calls ----------------------------------------------------------------------------------

#define HERE __builtin_return_address(0)

// The errors that are tried follow; the first one is the most likely.
#define ERRORS(...) static const int errors[] = {__VA_ARGS__, 0};

// A call that returns -1, or `bad`, and sets errno.
#define WRAP(type, bad, name, params, args, ...)                                                   \
    extern "C" type __real_##name params;                                                          \
    extern "C" type __wrap_##name params                                                           \
    {                                                                                              \
        ERRORS(__VA_ARGS__)                                                                        \
        if (int error = look(#name, HERE, errors)) {                                               \
            errno = error;                                                                         \
            return bad;                                                                            \
        }                                                                                          \
        return __real_##name args;                                                                 \
    }

// One that returns its error.
#define WRAP_NUMBER(name, params, args, ...)                                                       \
    extern "C" int __real_##name params;                                                           \
    extern "C" int __wrap_##name params                                                            \
    {                                                                                              \
        ERRORS(__VA_ARGS__)                                                                        \
        if (int error = look(#name, HERE, errors))                                                 \
            return error;                                                                          \
        return __real_##name args;                                                                 \
    }

// ---- memory

extern "C" void *__real_malloc(size_t n);
extern "C" void *__real_calloc(size_t n, size_t size);
extern "C" void *__real_realloc(void *block, size_t n);
extern "C" void __real_free(void *block);

static const int no_memory[] = {ENOMEM, 0};

extern "C" void *__wrap_malloc(size_t n)
{
    if (look("malloc", HERE, no_memory)) {
        errno = ENOMEM;
        return nullptr;
    }
    return took_block(__real_malloc(n));
}

extern "C" void *__wrap_calloc(size_t n, size_t size)
{
    if (look("calloc", HERE, no_memory)) {
        errno = ENOMEM;
        return nullptr;
    }
    return took_block(__real_calloc(n, size));
}

extern "C" void *__real_aligned_alloc(size_t alignment, size_t n);
extern "C" void *__wrap_aligned_alloc(size_t alignment, size_t n)
{
    if (look("aligned_alloc", HERE, no_memory)) {
        errno = ENOMEM;
        return nullptr;
    }
    return took_block(__real_aligned_alloc(alignment, n));
}

extern "C" void *__wrap_realloc(void *block, size_t n)
{
    if (look("realloc", HERE, no_memory)) {
        errno = ENOMEM;
        return nullptr;
    }
    gave_block(block);
    return took_block(__real_realloc(block, n));
}

extern "C" void __wrap_free(void *block)
{
    gave_block(block);
    __real_free(block);
}

extern "C" void *__real_mmap64(void *at, size_t n, int prot, int flags, int fd, off64_t offset);
extern "C" void *__wrap_mmap64(void *at, size_t n, int prot, int flags, int fd, off64_t offset)
{
    if (look("mmap64", HERE, no_memory)) {
        errno = ENOMEM;
        return MAP_FAILED;
    }
    return took_range(__real_mmap64(at, n, prot, flags, fd, offset), n);
}

extern "C" int __real_munmap(void *at, size_t n);
extern "C" int __wrap_munmap(void *at, size_t n)
{
    gave_range(at, n);
    return __real_munmap(at, n);
}

WRAP(int, -1, madvise, (void *at, size_t n, int advice), (at, n, advice), ENOMEM)
WRAP(int, -1, mprotect, (void *at, size_t n, int prot), (at, n, prot), ENOMEM)
WRAP(int, -1, msync, (void *at, size_t n, int flags), (at, n, flags), EIO, ENOSPC)

// ---- descriptors and what they tell

// The argument that exists only if a file may be made.
static mode_t mode_of(int flags, va_list more)
{
    return flags & O_CREAT ? va_arg(more, mode_t) : 0;
}

extern "C" int __real_open64(const char *path, int flags, ...);
extern "C" int __wrap_open64(const char *path, int flags, ...)
{
    ERRORS(EMFILE, EACCES)
    va_list more;
    va_start(more, flags);
    mode_t mode = mode_of(flags, more);
    va_end(more);
    if (int error = look("open64", HERE, errors)) {
        errno = error;
        return -1;
    }
    return __real_open64(path, flags, mode);
}

extern "C" int __real_openat64(int dir, const char *path, int flags, ...);
extern "C" int __wrap_openat64(int dir, const char *path, int flags, ...)
{
    ERRORS(EMFILE, EIO, EACCES)
    va_list more;
    va_start(more, flags);
    mode_t mode = mode_of(flags, more);
    va_end(more);
    if (int error = look("openat64", HERE, errors)) {
        errno = error;
        return -1;
    }
    return __real_openat64(dir, path, flags, mode);
}

extern "C" int __real_fcntl64(int fd, int command, ...);
extern "C" int __wrap_fcntl64(int fd, int command, ...)
{
    static const int no_lock[] = {ENOLCK, EINTR, 0}, no_copy[] = {EMFILE, 0}, bad[] = {EBADF, 0};
    const char *name = "fcntl64";
    const int *errors = bad;
    if (command == F_OFD_SETLK || command == F_OFD_SETLKW || command == F_OFD_GETLK) {
        name = command == F_OFD_GETLK ? "fcntl64 GETLK" : "fcntl64 SETLK";
        errors = no_lock;
    } else if (command == F_DUPFD_CLOEXEC) {
        name = "fcntl64 DUPFD";
        errors = no_copy;
    }
    va_list more;
    va_start(more, command);
    void *argument = va_arg(more, void *);
    va_end(more);
    if (int error = look(name, HERE, errors)) {
        errno = error;
        return -1;
    }
    return __real_fcntl64(fd, command, argument);
}

WRAP(int, -1, fstat64, (int fd, void *st), (fd, st), EIO)
WRAP(int, -1, stat64, (const char *path, void *st), (path, st), EIO, EACCES)
WRAP(int, -1, fstatat64, (int dir, const char *path, void *st, int flags), (dir, path, st, flags),
     EIO)
WRAP(int, -1, statx, (int dir, const char *path, int flags, unsigned mask, void *st),
     (dir, path, flags, mask, st), EIO)
WRAP(int, -1, fstatfs64, (int fd, void *fs), (fd, fs), EIO)
WRAP(ssize_t, -1, pwrite64, (int fd, const void *from, size_t n, off64_t at), (fd, from, n, at),
     EIO, ENOSPC)
WRAP(ssize_t, -1, pread64, (int fd, void *to, size_t n, off64_t at), (fd, to, n, at), EIO)
WRAP(ssize_t, -1, read, (int fd, void *to, size_t n), (fd, to, n), EIO)
WRAP(off64_t, -1, lseek64, (int fd, off64_t at, int whence), (fd, at, whence), EIO)
WRAP(ssize_t, -1, readlink, (const char *path, char *to, size_t n), (path, to, n), EACCES)
WRAP(ssize_t, -1, fgetxattr, (int fd, const char *name, void *to, size_t n), (fd, name, to, n), EIO)
WRAP(ssize_t, -1, lgetxattr, (const char *path, const char *name, void *to, size_t n),
     (path, name, to, n), EIO)
WRAP(int, -1, ioctl, (int fd, unsigned long what, void *argument), (fd, what, argument), ENOTTY)
WRAP(char *, nullptr, getcwd, (char *to, size_t n), (to, n), ENOENT)
WRAP(ssize_t, -1, getrandom, (void *to, size_t n, unsigned flags), (to, n, flags), ENOSYS, EINTR)
using Chosen = int (*)(const struct dirent64 *);
using Sorted = int (*)(const struct dirent64 **, const struct dirent64 **);
WRAP(int, -1, scandirat64,
     (int dir, const char *name, struct dirent64 ***names, Chosen chosen, Sorted sorted),
     (dir, name, names, chosen, sorted), EIO, ENOMEM)

// ---- names, sizes, space, attributes

WRAP(int, -1, mkdirat, (int dir, const char *name, mode_t mode), (dir, name, mode), ENOSPC, EACCES)
WRAP(int, -1, renameat2, (int from, const char *name, int to, const char *other, unsigned flags),
     (from, name, to, other, flags), EIO, ENOSPC, EINVAL)
WRAP(int, -1, renameat, (int from, const char *name, int to, const char *other),
     (from, name, to, other), EIO)
WRAP(int, -1, unlinkat, (int dir, const char *name, int flags), (dir, name, flags), EIO, EACCES)
WRAP(int, -1, ftruncate64, (int fd, off64_t size), (fd, size), EIO, EFBIG)
WRAP(int, -1, fallocate64, (int fd, int mode, off64_t at, off64_t n), (fd, mode, at, n), ENOSPC,
     EINTR, EDQUOT)
WRAP(int, -1, fsetxattr, (int fd, const char *name, const void *value, size_t n, int flags),
     (fd, name, value, n, flags), ENOSPC)
WRAP(int, -1, fremovexattr, (int fd, const char *name), (fd, name), EIO)
WRAP(int, -1, fchown, (int fd, uid_t owner, gid_t group), (fd, owner, group), EPERM)
WRAP(int, -1, fchmod, (int fd, mode_t mode), (fd, mode), EPERM)
WRAP(int, -1, futimens, (int fd, const struct timespec *times), (fd, times), EPERM)
WRAP(int, -1, fsync, (int fd), (fd), EIO, ENOSPC)
WRAP(int, -1, fdatasync, (int fd), (fd), EIO, ENOSPC)
WRAP(int, -1, shm_unlink, (const char *name), (name), EACCES)

extern "C" int __real_shm_open(const char *name, int flags, mode_t mode);
extern "C" int __wrap_shm_open(const char *name, int flags, mode_t mode)
{
    ERRORS(EMFILE, EACCES)
    if (int error = look("shm_open", HERE, errors)) {
        errno = error;
        return -1;
    }
    int fd = __real_shm_open(name, flags, mode);
    std::lock_guard<std::mutex> hold(lock);
    if (fd >= 0)
        objects.insert(name);
    return fd;
}

// ---- threads and the process

WRAP_NUMBER(pthread_create,
            (pthread_t * thread, const pthread_attr_t *a, void *(*run)(void *), void *argument),
            (thread, a, run, argument), EAGAIN)
#ifndef WITH_SANITIZER
WRAP_NUMBER(pthread_setspecific, (pthread_key_t key, const void *value), (key, value), ENOMEM)
#endif
WRAP(int, -1, sched_getaffinity, (pid_t process, size_t n, void *cpus), (process, n, cpus), EINVAL)

} // namespace injector
} // namespace support
