/* SPDX-License-Identifier: BSD-3-Clause */
#include "reflection/pairing/ownership.h"

#include "reflection/media/fsops.h"
#include "reflection/media/report.h"

#include <errno.h>
#include <sys/xattr.h>
#include <unistd.h>

mode_t ownership_mode(int fd, mode_t mode)
{
    const bool has_list = fgetxattr(fd, "system.posix_acl_access", NULL, 0) >= 0 ||
                          (errno != ENODATA && errno != ENOTSUP);
    return has_list ? mode & ~(mode_t)S_IRWXG : mode;
}

/* The mode of what is made with this group; `made`: what it is. */
static mode_t mode_for(const struct trust *file, const struct stat *made)
{
    const mode_t mode = file->mode & (S_ISDIR(made->st_mode) ? 07777 : 0666);
    if (made->st_gid == file->group)
        return mode;
    return (mode & 01700) | (mode & mode >> 3 & 0007);
}

int ownership_give(const struct trust *file, int fd)
{
    struct stat st;
    if (fstat(fd, &st) < 0)
        return -1;
    mode_t narrow = st.st_mode & mode_for(file, &st);
    if (st.st_uid == file->owner && st.st_gid == file->group &&
        (st.st_mode & 07777) == mode_for(file, &st))
        return 0;
    if ((st.st_mode & 07777) != narrow && fsops->fchmod(fd, narrow) < 0)
        return -1;
    if ((st.st_uid != file->owner || st.st_gid != file->group) &&
        fsops->fchown(fd, file->owner, file->group) < 0 && st.st_gid != file->group)
        (void)fsops->fchown(fd, (uid_t)-1, file->group); /* the maker stays the owner */
    if (fstat(fd, &st) < 0)
        return -1;
    mode_t mode = mode_for(file, &st);
    return (st.st_mode & 07777) == mode ? 0 : fsops->fchmod(fd, mode);
}

bool ownership_maker(const struct trust *file, const struct stat *found)
{
    if (found->st_uid == 0 || found->st_uid == geteuid() || found->st_uid == file->owner)
        return true;
    /* A member of the file's group: only members can give a file that group. */
    if ((file->mode & S_IWGRP) && found->st_gid == file->group)
        return true;
    return file->mode & S_IWOTH;
}

int ownership_check(const struct trust *file, int fd, const char *folder, const char *name)
{
    struct stat st;
    if (fstat(fd, &st) < 0)
        return report_errno(errno, "cannot stat %s/%s", folder, name);
    if (!ownership_maker(file, &st))
        return report_error(EACCES,
                            "%s/%s belongs to user %u, and is refused: it must belong to the "
                            "caller, to root, or to a user that may write to the mapped file. If "
                            "the two belong together, give it the owner of that file",
                            folder, name, (unsigned)st.st_uid);
    if (!S_ISREG(st.st_mode))
        return report_error(EUCLEAN, "%s/%s is not a regular file", folder, name);
    if (st.st_nlink > 1)
        return report_error(
            EACCES,
            "%s/%s has %lu links, and must have one: by another link it may be another user's "
            "file, or belong to a copy of this folder. Remove the other links",
            folder, name, (unsigned long)st.st_nlink);
    return 0;
}
