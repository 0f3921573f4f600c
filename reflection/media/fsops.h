/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The only caller of functions that change names, sizes, space and attributes of files.
 *
 * One table, so that tests can record calls, make them fail and cut between any two. Not on a hot path. Each
 * entry returns what the call that it is named after returns: -1 and errno on failure. Calls that only read
 * (open of an existing file, stat, getxattr, lseek) and locks are not in it.
 */
#ifndef ATO_REFLECTION_MEDIA_FSOPS_H
#define ATO_REFLECTION_MEDIA_FSOPS_H

#include "reflection/media/seam.h"

#include <fcntl.h>
#include <linux/falloc.h>
#include <stddef.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <time.h>

struct fsops {
    int (*mkdirat)(int dir, const char *name, mode_t mode);
    int (*create)(int dir, const char *name, int flags, mode_t mode); /* openat with O_CREAT */
    int (*renameat)(int dir, const char *from, const char *to);       /* EEXIST if `to` exists */
    int (*unlinkat)(int dir, const char *name, int flags);
    int (*ftruncate)(int fd, off_t size);
    int (*fallocate)(int fd, int mode, off_t offset, off_t n);
    int (*fsetxattr)(int fd, const char *name, const void *value, size_t n, int flags);
    int (*fremovexattr)(int fd, const char *name);
    int (*fchown)(int fd, uid_t owner, gid_t group);
    int (*fchmod)(int fd, mode_t mode);
    int (*futimens)(int fd, const struct timespec times[2]);
    int (*fsync)(int fd);
    int (*fdatasync)(int fd);
    ssize_t (*pwrite)(int fd, const void *from, size_t n, off_t offset);
    int (*shm_open)(const char *name, int flags, mode_t mode);
    int (*shm_unlink)(const char *name);
};

extern const struct fsops fsops_real;

extern const struct fsops *fsops; /* tests store their own table here */

/* Returns the length of a file in bytes; -1 with errno. Not by fstat(): since Linux 6.13 the first store after a call that asks
 * for the times gets a new mtime, which the next sync has to write too. Nor by lseek(): the descriptor may share its offset with
 * the caller's. */
static inline off_t fsops_length(int fd)
{
    struct statx sx;
    return statx(fd, "", AT_EMPTY_PATH, STATX_SIZE, &sx) == 0 ? (off_t)sx.stx_size : -1;
}

/* Gives space back: the range reads as zeros afterwards. */
static inline int fsops_punch(int fd, off_t offset, off_t n)
{
    return fsops->fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset, n);
}

/* The only entries that order, so they carry the place of the call, as the calls of persist.h do. */
#define fsops_fsync(fd)     SEAM_AT("fsync", fsops->fsync(fd))
#define fsops_fdatasync(fd) SEAM_AT("fdatasync", fsops->fdatasync(fd))

#endif
