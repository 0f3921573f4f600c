/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reads and writes of a file that is served: reads come from its view, and writes are stored there, so that both agree with the mappings,
 * and are in the next commit. Where the kernel reads the file itself, what was stored is committed before.
 */
#include "lib/run/calls.h"
#include "lib/run/served.h"

#include "lib/file/table.h"
#include "reflection/media/fault.h"

#include <errno.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

/* As the offset: that of the descriptor; and errors, which are EINVAL and EOPNOTSUPP. */
enum { AT_POSITION = -1, INVALID = -2, UNSUPPORTED = -3 };

/* The most that one call moves, as in the kernel. */
static size_t sum(const struct iovec *v, int count)
{
    const size_t most = 0x7ffff000;
    size_t n = 0;
    for (int i = 0; i < count; i++)
        n = v[i].iov_len > most - n ? most : n + v[i].iov_len;
    return n;
}

static void __attribute__((noinline)) copy(char *at, const struct iovec *v, size_t n, bool is_write)
{
    for (; n; v++) {
        const size_t part = v->iov_len < n ? v->iov_len : n;
        if (is_write)
            memmove(at, v->iov_base, part);
        else
            memmove(v->iov_base, at, part);
        at += part;
        n -= part;
    }
}

/* Moves n bytes between v and the view. Returns false if an address of v is bad; bytes before it may have been moved. */
static bool move(char *at, const struct iovec *v, size_t n, bool is_write)
{
    sigjmp_buf bad;
    const bool is_good = sigsetjmp(bad, 0) == 0;
    if (is_good) {
        fault_exit = &bad;
        copy(at, v, n, is_write);
    }
    fault_exit = NULL;
    return is_good;
}

/* Returns the bytes that were moved; -1 with errno. */
static ssize_t transfer(struct served *s, int fd, const struct iovec *v, int count, off_t offset,
                        bool is_write)
{
    const int access = REAL(fcntl)(fd, F_GETFL);
    if (access < 0 || access & O_PATH || (access & O_ACCMODE) == (is_write ? O_RDONLY : O_WRONLY)) {
        errno = EBADF;
        return -1;
    }
    if (count < 0 || count > IOV_MAX || offset < AT_POSITION) {
        errno = offset == UNSUPPORTED ? EOPNOTSUPP : EINVAL;
        return -1;
    }
    const bool moves = offset == AT_POSITION;
    size_t n = sum(v, count);
    ssize_t r = -1;
    pthread_mutex_lock(&s->position);
    const off_t size = served_size(s);
    const bool appends = is_write && access & O_APPEND;
    off_t at = appends ? size : moves ? REAL(lseek)(fd, 0, SEEK_CUR) : offset, was = size;
    if (size < 0 || at < 0)
        goto end;
    if (is_write && at > LLONG_MAX - (off_t)n) {
        errno = EFBIG;
        goto end;
    }
    if (is_write && n && at + (off_t)n > size &&
        served_resize(s, appends ? (off_t)n : at + (off_t)n,
                      appends ? STORES_MORE : STORES_AT_LEAST, &was) < 0)
        goto end;
    if (appends)
        at = was;
    if (!is_write)
        n = at >= size ? 0 : (off_t)n > size - at ? (size_t)(size - at) : n;
    if (!move(s->base + at, v, n, is_write)) {
        if (is_write && at + (off_t)n > was)
            (void)served_resize(s, was, STORES_EXACTLY, &was);
        errno = EFAULT;
        goto end;
    }
    if (moves)
        (void)REAL(lseek)(fd, at + (off_t)n, SEEK_SET);
    r = (ssize_t)n;
end:
    pthread_mutex_unlock(&s->position);
    if (r > 0 && is_write && access & O_DSYNC && served_commit_file(s) < 0)
        r = -1;
    return r;
}

/* An offset below 0 is an error, except of preadv2() and pwritev2(). */
static off_t checked(off_t offset)
{
    return offset < 0 ? INVALID : offset;
}

/* Nothing can be stored to pages that another thread commits. A system call fails there; a store of the program waits, and so does this.
 * Returns whether the call is to be made again. */
static bool was_stopped(ssize_t r, void *to)
{
    if (r >= 0 || errno != EFAULT || !table_find(to))
        return false;
    __atomic_fetch_or((char *)to, 0, __ATOMIC_RELAXED);
    return true;
}

#define BYTES(name, is_write, at, parameters, ...)                                                 \
    ssize_t call_##name parameters                                                                 \
    {                                                                                              \
        struct served *s LEAVING = served_enter_of(fd);                                            \
        const struct iovec v = {(void *)(uintptr_t)bytes, n};                                      \
        ssize_t r;                                                                                 \
        if (s)                                                                                     \
            return transfer(s, fd, &v, 1, at, is_write);                                           \
        do {                                                                                       \
            r = REAL(name)(__VA_ARGS__);                                                           \
        } while (!(is_write) && was_stopped(r, v.iov_base));                                       \
        return r;                                                                                  \
    }
BYTES(read, false, AT_POSITION, (int fd, void *bytes, size_t n), fd, bytes, n)
BYTES(pread, false, checked(offset), (int fd, void *bytes, size_t n, off_t offset), fd, bytes, n,
      offset)
BYTES(write, true, AT_POSITION, (int fd, const void *bytes, size_t n), fd, bytes, n)
BYTES(pwrite, true, checked(offset), (int fd, const void *bytes, size_t n, off_t offset), fd, bytes,
      n, offset)
CALL_ALIAS(pread, pread64);
CALL_ALIAS(pwrite, pwrite64);

/* Of a program that was compiled with _FORTIFY_SOURCE. */
ssize_t call___read_chk(int fd, void *to, size_t n, size_t room)
{
    return n > room ? REAL(__read_chk)(fd, to, n, room) : call_read(fd, to, n);
}

ssize_t call___pread_chk(int fd, void *to, size_t n, off_t offset, size_t room)
{
    return n > room ? REAL(__pread_chk)(fd, to, n, offset, room) : call_pread(fd, to, n, offset);
}
CALL_ALIAS(__pread_chk, __pread64_chk);

#define VECTORS(name, is_write, at, parameters, ...)                                               \
    ssize_t call_##name parameters                                                                 \
    {                                                                                              \
        struct served *s LEAVING = served_enter_of(fd);                                            \
        return s ? transfer(s, fd, v, count, at, is_write) : REAL(name)(__VA_ARGS__);              \
    }
VECTORS(readv, false, AT_POSITION, (int fd, const struct iovec *v, int count), fd, v, count)
VECTORS(writev, true, AT_POSITION, (int fd, const struct iovec *v, int count), fd, v, count)
VECTORS(preadv, false, checked(offset), (int fd, const struct iovec *v, int count, off_t offset),
        fd, v, count, offset)
VECTORS(pwritev, true, checked(offset), (int fd, const struct iovec *v, int count, off_t offset),
        fd, v, count, offset)
/* Programs go on with the calls above. */
VECTORS(preadv2, false, flags ? UNSUPPORTED : offset,
        (int fd, const struct iovec *v, int count, off_t offset, int flags), fd, v, count, offset,
        flags)
VECTORS(pwritev2, true, flags ? UNSUPPORTED : offset,
        (int fd, const struct iovec *v, int count, off_t offset, int flags), fd, v, count, offset,
        flags)
CALL_ALIAS(preadv, preadv64);
CALL_ALIAS(pwritev, pwritev64);
CALL_ALIAS(preadv2, preadv64v2);
CALL_ALIAS(pwritev2, pwritev64v2);

/* ---- copies in the kernel ---- */

/* Commits the file that is read. Returns whether `to` is served: the kernel must not write there, and programs go on with read() and
 * write() after these errors. */
static bool prepare_copy(int from, int to)
{
    (void)served_commit_of(from);
    struct served *s LEAVING = served_enter_of(to);
    return s;
}

#define COPIES(name, error, parameters, ...)                                                       \
    ssize_t call_##name parameters                                                                 \
    {                                                                                              \
        if (!prepare_copy(from, to))                                                               \
            return REAL(name)(__VA_ARGS__);                                                        \
        errno = error;                                                                             \
        return -1;                                                                                 \
    }
COPIES(sendfile, EINVAL, (int to, int from, off_t *at, size_t n), to, from, at, n)
COPIES(copy_file_range, EXDEV,
       (int from, off_t *at, int to, off_t *to_at, size_t n, unsigned flags), from, at, to, to_at,
       n, flags)
COPIES(splice, EINVAL, (int from, off_t *at, int to, off_t *to_at, size_t n, unsigned flags), from,
       at, to, to_at, n, flags)
CALL_ALIAS(sendfile, sendfile64);
