/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The only caller of what changes names, sizes, space and attributes.
 *
 * One table, so that tests can record, fail and cut between any two calls. Not on any hot path.
 * Each entry answers as the call it is named after: -1 and errno on failure.
 * Reading (open of what exists, stat, getxattr, lseek, locks) changes nothing and is not here.
 */
#ifndef ATO_REFLECTION_FSOPS_H
#define ATO_REFLECTION_FSOPS_H

#include "seam.h"

#include <linux/falloc.h>
#include <stddef.h>
#include <sys/types.h>
#include <time.h>

struct fsops {
    int (*mkdirat)(int dir, const char *name, mode_t mode);
    int (*create)(int dir, const char *name, int flags, mode_t mode); /* openat with O_CREAT */
    int (*renameat)(int dir, const char *from, const char *to); /* within one folder; EEXIST */
    int (*unlinkat)(int dir, const char *name, int flags);
    int (*ftruncate)(int fd, off_t size);
    int (*fallocate)(int fd, int mode, off_t offset, off_t n);
    int (*fsetxattr)(int fd, const char *name, const void *value, size_t n);
    int (*fremovexattr)(int fd, const char *name);
    int (*fchown)(int fd, uid_t owner, gid_t group);
    int (*fchmod)(int fd, mode_t mode);
    int (*futimens)(int fd, const struct timespec times[2]);
    int (*fsync)(int fd, const char *site);
    int (*shm_open)(const char *name, int flags, mode_t mode);
    int (*shm_unlink)(const char *name);
};

extern const struct fsops fsops_real;

#ifdef ATO_SEAM
extern const struct fsops *fsops;
#else
static const struct fsops *const fsops __attribute__((unused)) = &fsops_real;
#endif

/* Gives space back: the range reads as zeros then. */
static inline int fsops_punch(int fd, off_t offset, off_t n)
{
    return fsops->fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset, n);
}

/* The one that orders: with the place it is called from, as the calls of persist.h. */
#define fsops_fsync(fd) fsops->fsync(fd, SEAM_SITE("fsync"))

#endif
