/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What programs do with the descriptors of a file that is served, but for reads and writes (transfers.c): syncs, its size, which is libato's,
 * opening and closing it, and its locks.
 */
#include "lib/run/calls.h"
#include "lib/run/served.h"

#include "reflection/media/report.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/sysmacros.h>
#include <unistd.h>

/* ---- durability ---- */

int call_fsync(int fd)
{
    return served_commit_of(fd) < 0 ? -1 : REAL(fsync)(fd);
}

/* What was stored and written is durable with the commit. */
int call_fdatasync(int fd)
{
    const int r = served_commit_of(fd);
    return r == 1 ? REAL(fdatasync)(fd) : r;
}

int call_sync_file_range(int fd, off_t offset, off_t n, unsigned flags)
{
    const int r = served_commit_of(fd);
    return r == 1 ? REAL(sync_file_range)(fd, offset, n, flags) : r;
}

int call_syncfs(int fd)
{
    served_end();
    return REAL(syncfs)(fd);
}

void call_sync(void)
{
    served_end();
    REAL(sync)();
}

/* ---- the size ---- */

static bool is_writable(int fd)
{
    const int access = REAL(fcntl)(fd, F_GETFL);
    return access >= 0 && !(access & O_PATH) && (access & O_ACCMODE) != O_RDONLY;
}

static int resize(struct served *s, off_t size, enum stores_size how)
{
    off_t was;
    pthread_mutex_lock(&s->position);
    const int r = served_resize(s, size, how, &was);
    pthread_mutex_unlock(&s->position);
    return r;
}

int call_ftruncate(int fd, off_t size)
{
    struct served *s LEAVING = served_enter_of(fd);
    if (!s)
        return REAL(ftruncate)(fd, size);
    return is_writable(fd) ? resize(s, size, STORES_EXACTLY) : (errno = EINVAL, -1);
}
CALL_ALIAS(ftruncate, ftruncate64);

int call_truncate(const char *path, off_t size)
{
    served_recover(AT_FDCWD, path);
    struct served *s LEAVING = served_enter_path(AT_FDCWD, path);
    if (!s)
        return REAL(truncate)(path, size);
    return access(path, W_OK) == 0 ? resize(s, size, STORES_EXACTLY) : -1;
}
CALL_ALIAS(truncate, truncate64);

/* Returns 0; -1 with errno. */
static int allocate(struct served *s, int fd, int mode, off_t offset, off_t n)
{
    off_t size = served_size(s), end = offset + n;
    if (!is_writable(fd) || offset < 0 || n <= 0 || end < 0) {
        errno = is_writable(fd) ? EINVAL : EBADF;
        return -1;
    }
    if (mode & ~(FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE)) {
        errno = EOPNOTSUPP;
        return -1;
    }
    if (!(mode & FALLOC_FL_KEEP_SIZE) && end > size && resize(s, end, STORES_AT_LEAST) < 0)
        return -1;
    size = served_size(s);
    if (mode & ~FALLOC_FL_KEEP_SIZE) {
        /* Zeros that are stored: committed as all other stores are. */
        if (offset < size)
            memset(s->base + offset, 0, (size_t)((end < size ? end : size) - offset));
        return 0;
    }
    return REAL(fallocate)(fd, FALLOC_FL_KEEP_SIZE, offset, n);
}

int call_fallocate(int fd, int mode, off_t offset, off_t n)
{
    struct served *s LEAVING = served_enter_of(fd);
    return s ? allocate(s, fd, mode, offset, n) : REAL(fallocate)(fd, mode, offset, n);
}
CALL_ALIAS(fallocate, fallocate64);

int call_posix_fallocate(int fd, off_t offset, off_t n)
{
    const int before = errno;
    struct served *s LEAVING = served_enter_of(fd);
    if (!s)
        return REAL(posix_fallocate)(fd, offset, n);
    int error = allocate(s, fd, 0, offset, n) < 0 ? errno : 0;
    if (error == EOPNOTSUPP) /* the file is long enough, and has no space yet */
        error = 0;
    errno = before;
    return error;
}
CALL_ALIAS(posix_fallocate, posix_fallocate64);

/* The length of a file that was made shorter changes when it is unmapped. */
static void correct(int r, struct stat *st)
{
    if (r < 0 || !S_ISREG(st->st_mode) || !served_may_be(st->st_ino) ||
        !served_enter(SERVED_TO_USE))
        return;
    const struct served *s = served_file(st->st_dev, st->st_ino);
    const off_t size = s ? served_size(s) : -1;
    if (size >= 0)
        st->st_size = size;
    served_leave();
}

#define STAT(name, folder_, path_, parameters, ...)                                                \
    int call_##name parameters                                                                     \
    {                                                                                              \
        served_recover(folder_, path_);                                                            \
        const int r = REAL(name)(__VA_ARGS__);                                                     \
        correct(r, st);                                                                            \
        return r;                                                                                  \
    }                                                                                              \
    CALL_ALIAS(name, name##64)
STAT(fstat, AT_FDCWD, NULL, (int fd, struct stat *st), fd, st);
STAT(stat, AT_FDCWD, path, (const char *path, struct stat *st), path, st);
STAT(lstat, AT_FDCWD, path, (const char *path, struct stat *st), path, st);
STAT(fstatat, folder, path, (int folder, const char *path, struct stat *st, int flags), folder,
     path, st, flags);
STAT(__fxstat, AT_FDCWD, NULL, (int version, int fd, struct stat *st), version, fd, st);
STAT(__xstat, AT_FDCWD, path, (int version, const char *path, struct stat *st), version, path, st);
STAT(__lxstat, AT_FDCWD, path, (int version, const char *path, struct stat *st), version, path, st);
STAT(__fxstatat, folder, path,
     (int version, int folder, const char *path, struct stat *st, int flags), version, folder, path,
     st, flags);

int call_statx(int folder, const char *path, int flags, unsigned mask, struct statx *st)
{
    served_recover(folder, path);
    const int r = REAL(statx)(folder, path, flags, mask, st);
    if (r == 0 && st->stx_mask & STATX_SIZE && S_ISREG(st->stx_mode)) {
        struct stat found = {.st_mode = S_IFREG,
                             .st_dev = makedev(st->stx_dev_major, st->stx_dev_minor),
                             .st_ino = st->stx_ino,
                             .st_size = (off_t)st->stx_size};
        correct(0, &found);
        st->stx_size = (uint64_t)found.st_size;
    }
    return r;
}

off_t call_lseek(int fd, off_t offset, int whence)
{
    struct served *s = whence == SEEK_END ? served_enter_of(fd) : NULL;
    if (s) {
        offset += served_size(s);
        whence = SEEK_SET;
        served_leave();
    } else if (whence == SEEK_DATA || whence == SEEK_HOLE)
        (void)served_commit_of(fd);
    return REAL(lseek)(fd, offset, whence);
}
CALL_ALIAS(lseek, lseek64);

/* ---- opening ---- */

/* O_TRUNC is a change of the size. */
static int open_at(int folder, const char *path, int flags, mode_t mode)
{
    if (!(flags & O_PATH))
        served_recover(folder, path);
    struct served *s LEAVING = flags & O_TRUNC ? served_enter_path(folder, path) : NULL;
    if (!s)
        return served_note(REAL(openat)(folder, path, flags, mode));
    const int fd = served_note(REAL(openat)(folder, path, flags & ~O_TRUNC, mode));
    if (fd >= 0 && is_writable(fd) && resize(s, 0, STORES_EXACTLY) < 0) {
        KEEP_ERRNO();
        REAL(close)(fd);
        return -1;
    }
    return fd;
}

int call_openat(int folder, const char *path, int flags, ...)
{
    CALL_MODE(mode, flags);
    return open_at(folder, path, flags, mode);
}
CALL_ALIAS(openat, openat64);

int call_open(const char *path, int flags, ...)
{
    CALL_MODE(mode, flags);
    return open_at(AT_FDCWD, path, flags, mode);
}
CALL_ALIAS(open, open64);

/* Of a program that was compiled with _FORTIFY_SOURCE. */
EXPORTED int call___open_2(const char *path, int flags) __asm__("__open_2");
int call___open_2(const char *path, int flags)
{
    return open_at(AT_FDCWD, path, flags, 0);
}
CALL_ALIAS(__open_2, __open64_2);

EXPORTED int call___openat_2(int folder, const char *path, int flags) __asm__("__openat_2");
int call___openat_2(int folder, const char *path, int flags)
{
    return open_at(folder, path, flags, 0);
}
CALL_ALIAS(__openat_2, __openat64_2);

int call_creat(const char *path, mode_t mode)
{
    return open_at(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode);
}
CALL_ALIAS(creat, creat64);

/* freopen(), or fopen() if there is no stream. */
static FILE *open_stream(const char *path, const char *mode, FILE *stream)
{
    char other[16];
    const bool cuts =
        path && mode && *mode == 'w' && !strchr(mode, 'x') && strlen(mode) < sizeof(other) - 1;
    served_recover(AT_FDCWD, path);
    struct served *s LEAVING = cuts ? served_enter_path(AT_FDCWD, path) : NULL;
    if (s) {
        (void)snprintf(other, sizeof(other), "r+%s", mode + 1);
        mode = other;
    }
    FILE *opened = stream ? REAL(freopen)(path, mode, stream) : REAL(fopen)(path, mode);
    if (opened)
        (void)served_note(fileno(opened));
    if (opened && s && resize(s, 0, STORES_EXACTLY) < 0) {
        KEEP_ERRNO();
        (void)REAL(fclose)(opened);
        return NULL;
    }
    return opened;
}

FILE *call_fopen(const char *path, const char *mode)
{
    return open_stream(path, mode, NULL);
}
CALL_ALIAS(fopen, fopen64);

/* Other ways to a descriptor. */
#define GIVES(name, parameters, ...)                                                               \
    int call_##name parameters                                                                     \
    {                                                                                              \
        return served_note(REAL(name)(__VA_ARGS__));                                               \
    }
GIVES(shm_open, (const char *name, int flags, mode_t mode), name, flags, mode)
GIVES(dup, (int fd), fd)

ssize_t call_recvmsg(int fd, struct msghdr *message, int flags)
{
    const ssize_t r = REAL(recvmsg)(fd, message, flags);
    if (r >= 0 && message->msg_controllen)
        served_note_any();
    return r;
}

/* ---- closing ---- */

/* Returns whether there is a lock by this descriptor: any that ends when it is closed, or, " WRITE ", one that excludes others. */
static bool has_lock(int fd, const char *kind)
{
    char text[4096];
    (void)snprintf(text, sizeof(text), "/proc/self/fdinfo/%d", fd);
    const int info = REAL(open)(text, O_RDONLY | O_CLOEXEC);
    const ssize_t n = info < 0 ? 0 : read(info, text, sizeof(text) - 1);
    text[n < 0 ? 0 : n] = 0;
    if (info >= 0)
        REAL(close)(info);
    const char *locks = strstr(text, "\nlock:");
    return locks && strstr(locks, kind);
}

/* Before a descriptor is closed: a file that is not mapped any more is not served any more. */
static void leave(int fd)
{
    struct served *s = served_enter_of(fd);
    const bool is_last = s && !s->count;
    if (s && !is_last && served_is_here() && has_lock(fd, ""))
        (void)served_commit_file(s);
    if (s)
        served_leave();
    if (!is_last || !served_is_here() || !served_enter(SERVED_TO_CHANGE))
        return;
    s = served_of(fd);
    if (s && !s->count)
        (void)served_drop(s);
    served_leave();
}

int call_close(int fd)
{
    if (calls_is_own(fd)) {
        errno = EBADF; /* the program has not opened it */
        return -1;
    }
    leave(fd);
    return REAL(close)(fd);
}

int call_close_range(unsigned from, unsigned to, int flags)
{
    int r = 0;
    if (from > to)
        return REAL(close_range)(from, to, flags); /* EINVAL */
    if (!(flags & CLOSE_RANGE_CLOEXEC) && __atomic_load_n(&served_count, __ATOMIC_RELAXED) &&
        served_is_here())
        for (unsigned at = from; at <= to && at < CALLS_OWN_MOST; at++)
            if (!calls_is_own((int)at))
                leave((int)at);
    for (unsigned at = from; at <= to && at < CALLS_OWN_MOST && r == 0; at++)
        if (calls_is_own((int)at)) {
            r = at > from ? REAL(close_range)(from, at - 1, flags) : 0;
            from = at + 1;
        }
    return r < 0 || from > to ? r : REAL(close_range)(from, to, flags);
}

EXPORTED void call_closefrom(int from) __asm__("closefrom");
void call_closefrom(int from)
{
    (void)call_close_range(from < 0 ? 0 : (unsigned)from, ~0u, 0);
}

/* dup2() closes, too. Returns false with errno if the descriptor is one of libato. A child of vfork(2) is about to be another program. */
static bool may_replace(int fd, int as)
{
    if (fd == as || !served_is_here())
        return true;
    if (calls_is_own(as)) {
        served_say(SAID_DESCRIPTOR, "dup2() onto descriptor %d is refused: libato uses it", as);
        errno = EBUSY;
        return false;
    }
    leave(as);
    return true;
}

int call_dup2(int fd, int as)
{
    return may_replace(fd, as) ? served_note(REAL(dup2)(fd, as)) : -1;
}

int call_dup3(int fd, int as, int flags)
{
    return may_replace(fd, as) ? served_note(REAL(dup3)(fd, as, flags)) : -1;
}

static void leave_stream(FILE *stream)
{
    if (__atomic_load_n(&served_count, __ATOMIC_RELAXED)) {
        (void)fflush(stream);
        leave(fileno(stream));
    }
}

int call_fclose(FILE *stream)
{
    leave_stream(stream);
    return REAL(fclose)(stream);
}

FILE *call_freopen(const char *path, const char *mode, FILE *stream)
{
    leave_stream(stream);
    return open_stream(path, mode, stream);
}
CALL_ALIAS(freopen, freopen64);

/* ---- locks ---- */

/* Before a lock is given back, or (not all) becomes one that others may have, too: they expect to see what was stored. */
static void give_lock(int fd, bool all)
{
    struct served *s LEAVING = served_enter_of(fd);
    if (s && (all || has_lock(fd, " WRITE ")))
        (void)served_commit_file(s);
}

int call_flock(int fd, int operation)
{
    if (operation & (LOCK_UN | LOCK_SH))
        give_lock(fd, operation & LOCK_UN);
    return REAL(flock)(fd, operation);
}

int call_lockf(int fd, int command, off_t n)
{
    if (command == F_ULOCK)
        give_lock(fd, true);
    return REAL(lockf)(fd, command, n);
}
CALL_ALIAS(lockf, lockf64);

int call_fcntl(int fd, int command, ...)
{
    va_list rest;
    va_start(rest, command);
    void *argument = va_arg(rest, void *);
    va_end(rest);
    if ((command == F_SETLK || command == F_SETLKW || command == F_OFD_SETLK ||
         command == F_OFD_SETLKW) &&
        ((struct flock *)argument)->l_type != F_WRLCK)
        give_lock(fd, ((struct flock *)argument)->l_type == F_UNLCK);
    const int r = REAL(fcntl)(fd, command, argument);
    return command == F_DUPFD || command == F_DUPFD_CLOEXEC ? served_note(r) : r;
}
CALL_ALIAS(fcntl, fcntl64);
