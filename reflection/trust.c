/* SPDX-License-Identifier: BSD-3-Clause */
#include "trust.h"

#include "report.h"

#include <errno.h>
#include <unistd.h>

bool trust_maker(const struct trust *file, const struct stat *found)
{
    if (found->st_uid == 0 || found->st_uid == geteuid() || found->st_uid == file->owner)
        return true;
    /* One of the group: such a one can give that group to what he makes, and others cannot. */
    if ((file->mode & S_IWGRP) && found->st_gid == file->group)
        return true;
    return file->mode & S_IWOTH;
}

int trust_kind(const struct stat *found, const char *folder, const char *name)
{
    if (!S_ISREG(found->st_mode))
        return report_error(EUCLEAN, "%s/%s is no regular file", folder, name);
    if (found->st_nlink > 1)
        return report_error(EACCES,
                            "%s/%s has %lu names and must have one: by another it may be somebody "
                            "else's file, or a copy's by hard links",
                            folder, name, (unsigned long)found->st_nlink);
    return 0;
}

int trust_check(const struct trust *file, int fd, const char *folder, const char *name)
{
    struct stat st;
    if (fstat(fd, &st) < 0)
        return report_errno(errno, "cannot look at %s/%s", folder, name);
    if (!trust_maker(file, &st))
        return report_error(EACCES,
                            "%s/%s belongs to user %u, who is neither the caller, nor root, nor "
                            "anybody who may write to the file it is about: refused",
                            folder, name, (unsigned)st.st_uid);
    return trust_kind(&st, folder, name);
}
