// SPDX-License-Identifier: BSD-3-Clause
//
// How does a test get a file system without extended attributes? Kernels of today mount nothing
// without them: reading one says ENOTSUP, by this program's own fgetxattr(), while `no_attributes` is
// set. (Setting one goes through fsops: faults.h.) To be included once in a program.
#ifndef ATO_TEST_SUPPORT_WITHOUT_ATTRIBUTES_H
#define ATO_TEST_SUPPORT_WITHOUT_ATTRIBUTES_H

#include <cerrno>

#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

static bool no_attributes;

// Stands in for the C library's.
extern "C" ssize_t fgetxattr(int fd, const char *name, void *value, size_t n) noexcept
{
    if (!no_attributes)
        return syscall(SYS_fgetxattr, fd, name, value, n);
    errno = ENOTSUP;
    return -1;
}

#endif
