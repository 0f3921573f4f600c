// SPDX-License-Identifier: BSD-3-Clause
//
// Simulates a file system without extended attributes, because current kernels mount none: while
// `no_attributes` is set, reading one fails with ENOTSUP, by this program's own fgetxattr() and lgetxattr(). (Setting
// one goes through fsops: faults.h.) Include it once in a program.
#ifndef ATO_TEST_SUPPORT_WITHOUT_ATTRIBUTES_H
#define ATO_TEST_SUPPORT_WITHOUT_ATTRIBUTES_H

#include <cerrno>

#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

static bool no_attributes;

// Replace the C library's functions.
extern "C" ssize_t lgetxattr(const char *path, const char *name, void *value, size_t n) noexcept
{
    if (!no_attributes)
        return syscall(SYS_lgetxattr, path, name, value, n);
    errno = ENOTSUP;
    return -1;
}

extern "C" ssize_t fgetxattr(int fd, const char *name, void *value, size_t n) noexcept
{
    if (!no_attributes)
        return syscall(SYS_fgetxattr, fd, name, value, n);
    errno = ENOTSUP;
    return -1;
}

#endif
