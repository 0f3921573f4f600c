/* SPDX-License-Identifier: BSD-3-Clause */
#include "reflection/media/fsops.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

static int create(int dir, const char *name, int flags, mode_t mode)
{
    return openat(dir, name, flags | O_CREAT | O_CLOEXEC | O_NOFOLLOW, mode);
}

static int rename_within(int dir, const char *from, const char *to)
{
    int r = renameat2(dir, from, dir, to, RENAME_NOREPLACE);
    /* Some file systems know no flags: there the second of two renames replaces the first one's file. */
    return r < 0 && errno == EINVAL ? renameat(dir, from, dir, to) : r;
}

static int allocate(int fd, int mode, off_t offset, off_t n)
{
    int r;
    do
        r = fallocate(fd, mode, offset, n);
    while (r < 0 && errno == EINTR);
    return r;
}

const struct fsops fsops_real = {
    .mkdirat = mkdirat,
    .create = create,
    .renameat = rename_within,
    .unlinkat = unlinkat,
    .ftruncate = ftruncate,
    .fallocate = allocate,
    .fsetxattr = fsetxattr,
    .fremovexattr = fremovexattr,
    .fchown = fchown,
    .fchmod = fchmod,
    .futimens = futimens,
    .fsync = fsync,
    .fdatasync = fdatasync,
    .pwrite = pwrite,
    .shm_open = shm_open,
    .shm_unlink = shm_unlink,
};

const struct fsops *fsops = &fsops_real;
