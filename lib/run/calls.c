/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/run/calls.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>

void *calls_real[CALL_COUNT];

void *calls_find(enum call call)
{
    static const char *const names[CALL_COUNT] = {
#define NAME(name, result, parameters) #name,
        CALLS(NAME)
#undef NAME
    };
    void *found = dlsym(RTLD_NEXT, names[call]);
    if (!found)
        abort();
    __atomic_store_n(&calls_real[call], found, __ATOMIC_RELAXED);
    return found;
}

/* What calls from within this library find. A name that is missing here is an error of the linker. */
#define WITHIN(name, real, result, parameters, ...)                                                \
    result __wrap_##name parameters;                                                               \
    result __wrap_##name parameters                                                                \
    {                                                                                              \
        return REAL(real)(__VA_ARGS__);                                                            \
    }
WITHIN(mmap64, mmap, void *, (void *at, size_t n, int prot, int flags, int fd, off_t offset), at, n,
       prot, flags, fd, offset)
WITHIN(msync, msync, int, (void *at, size_t n, int flags), at, n, flags)
WITHIN(madvise, madvise, int, (void *at, size_t n, int advice), at, n, advice)
WITHIN(mprotect, mprotect, int, (void *at, size_t n, int prot), at, n, prot)
WITHIN(fsync, fsync, int, (int fd), fd)
WITHIN(fdatasync, fdatasync, int, (int fd), fd)
WITHIN(ftruncate64, ftruncate, int, (int fd, off_t size), fd, size)
WITHIN(fallocate64, fallocate, int, (int fd, int mode, off_t offset, off_t n), fd, mode, offset, n)
WITHIN(read, read, ssize_t, (int fd, void *to, size_t n), fd, to, n)
WITHIN(pread64, pread, ssize_t, (int fd, void *to, size_t n, off_t offset), fd, to, n, offset)
WITHIN(write, write, ssize_t, (int fd, const void *from, size_t n), fd, from, n)
WITHIN(pwrite64, pwrite, ssize_t, (int fd, const void *from, size_t n, off_t offset), fd, from, n,
       offset)
WITHIN(pthread_sigmask, pthread_sigmask, int, (int how, const sigset_t *set, sigset_t *old), how,
       set, old)
WITHIN(sigaction, sigaction, int,
       (int signal, const struct sigaction *action, struct sigaction *old), signal, action, old)
WITHIN(lseek64, lseek, off_t, (int fd, off_t offset, int whence), fd, offset, whence)
WITHIN(fstat64, fstat, int, (int fd, struct stat *st), fd, st)
WITHIN(stat64, stat, int, (const char *path, struct stat *st), path, st)
WITHIN(fstatat64, fstatat, int, (int folder, const char *path, struct stat *st, int flags), folder,
       path, st, flags)
WITHIN(statx, statx, int,
       (int folder, const char *path, int flags, unsigned mask, struct statx *st), folder, path,
       flags, mask, st)

static bool own[CALLS_OWN_MOST];
unsigned calls_own_count;

bool calls_is_own(int fd)
{
    return fd >= 0 && fd < CALLS_OWN_MOST && __atomic_load_n(&own[fd], __ATOMIC_RELAXED);
}

static int keep(int fd, bool is_own)
{
    if (fd >= 0 && fd < CALLS_OWN_MOST) {
        const bool was = __atomic_exchange_n(&own[fd], is_own, __ATOMIC_RELAXED);
        __atomic_fetch_add(&calls_own_count, (unsigned)(is_own - was), __ATOMIC_RELAXED);
    }
    return fd;
}

/* Half of the numbers are left to the program. */
static int dup_far(int fd)
{
    enum { FAR = 512 };
    struct rlimit limit;
    const rlim_t half = getrlimit(RLIMIT_NOFILE, &limit) == 0 ? limit.rlim_cur / 2 : FAR;
    return REAL(fcntl)(fd, F_DUPFD_CLOEXEC, half < FAR ? (int)half : FAR);
}

int calls_own(int fd)
{
    const int error = errno, moved = fd < 0 ? -1 : dup_far(fd);
    if (moved >= 0)
        REAL(close)(fd);
    errno = error;
    return keep(moved < 0 ? fd : moved, true);
}

int calls_own_here(int fd)
{
    return keep(fd, true);
}

int __wrap_close(int fd);
int __wrap_close(int fd)
{
    return REAL(close)(keep(fd, false));
}

bool calls_keep_addresses;

int __wrap_munmap(void *at, size_t n);
int __wrap_munmap(void *at, size_t n)
{
    const int how = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED;
    if (!calls_keep_addresses)
        return REAL(munmap)(at, n);
    return REAL(mmap)(at, n, PROT_READ | PROT_WRITE, how, -1, 0) == MAP_FAILED ? -1 : 0;
}

int __wrap_open64(const char *path, int flags, ...);
int __wrap_open64(const char *path, int flags, ...)
{
    CALL_MODE(mode, flags);
    return calls_own(REAL(open)(path, flags, mode));
}

int __wrap_openat64(int folder, const char *path, int flags, ...);
int __wrap_openat64(int folder, const char *path, int flags, ...)
{
    CALL_MODE(mode, flags);
    return calls_own(REAL(openat)(folder, path, flags, mode));
}

int __wrap_shm_open(const char *name, int flags, mode_t mode);
int __wrap_shm_open(const char *name, int flags, mode_t mode)
{
    return calls_own(REAL(shm_open)(name, flags, mode));
}

int __wrap_fcntl64(int fd, int command, ...);
int __wrap_fcntl64(int fd, int command, ...)
{
    va_list rest;
    va_start(rest, command);
    void *argument = va_arg(rest, void *);
    va_end(rest);
    int r = command == F_DUPFD_CLOEXEC ? dup_far(fd) : -1;
    if (r < 0)
        r = REAL(fcntl)(fd, command, argument);
    return command == F_DUPFD_CLOEXEC ? calls_own_here(r) : r;
}

void *__wrap_mremap(void *at, size_t old, size_t n, int flags, ...);
void *__wrap_mremap(void *at, size_t old, size_t n, int flags, ...)
{
    va_list rest;
    va_start(rest, flags);
    void *to = va_arg(rest, void *);
    va_end(rest);
    return REAL(mremap)(at, old, n, flags, to);
}
