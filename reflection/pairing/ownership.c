/* SPDX-License-Identifier: BSD-3-Clause */
#include "reflection/pairing/ownership.h"

#include "reflection/media/fsops.h"
#include "reflection/media/report.h"

#include <endian.h>
#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/xattr.h>
#include <unistd.h>

/* The kernel's form of an access list: a version, then these entries, little-endian. */
struct acl_entry {
    uint16_t tag, permissions;
    uint32_t id;
};
enum { ACL_VERSION = 2, ACL_GROUP = 0x04, ACL_MASK = 0x10, ACL_BYTES = 4096 };

mode_t ownership_mode(int fd, mode_t mode)
{
    _Alignas(4) char list[ACL_BYTES];
    uint32_t version;
    mode_t group = 0, mask = 7;
    ssize_t n = fgetxattr(fd, "system.posix_acl_access", list, sizeof(list));
    if (n < 0) /* no list, or one that is too long */
        return errno == ENODATA || errno == ENOTSUP ? mode : mode & ~(mode_t)S_IRWXG;
    if (n >= (ssize_t)sizeof(version))
        memcpy(&version, list, sizeof(version));
    if (n < (ssize_t)sizeof(version) || le32toh(version) != ACL_VERSION)
        return mode & ~(mode_t)S_IRWXG;
    for (size_t at = sizeof(version); at + sizeof(struct acl_entry) <= (size_t)n;
         at += sizeof(struct acl_entry)) {
        struct acl_entry e;
        memcpy(&e, list + at, sizeof(e));
        if (le16toh(e.tag) == ACL_GROUP)
            group = le16toh(e.permissions) & 7;
        if (le16toh(e.tag) == ACL_MASK)
            mask = le16toh(e.permissions) & 7;
    }
    return (mode & ~(mode_t)S_IRWXG) | (group & mask) << 3;
}

mode_t ownership_writers(mode_t mode)
{
    if (!(mode & S_IWGRP))
        mode &= ~(mode_t)S_IRGRP;
    if (!(mode & S_IWOTH))
        mode &= ~(mode_t)S_IROTH;
    return mode;
}

static mode_t mode_for(const struct trust *file, gid_t group)
{
    mode_t mode = file->mode & 0666;
    if (group == file->group)
        return mode;
    return (mode & 0600) | (mode & mode >> 3 & 0006);
}

int ownership_give(const struct trust *file, int fd)
{
    struct stat st;
    if (fstat(fd, &st) < 0)
        return -1;
    mode_t narrow = st.st_mode & mode_for(file, st.st_gid);
    if ((st.st_mode & 0777) != narrow && fsops->fchmod(fd, narrow) < 0)
        return -1;
    if ((st.st_uid != file->owner || st.st_gid != file->group) &&
        fsops->fchown(fd, file->owner, file->group) < 0)
        (void)fsops->fchown(fd, (uid_t)-1, file->group); /* the maker stays the owner */
    if (fstat(fd, &st) < 0)
        return -1;
    mode_t mode = mode_for(file, st.st_gid);
    return (st.st_mode & 0777) == mode ? 0 : fsops->fchmod(fd, mode);
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

int ownership_kind(const struct stat *found, const char *folder, const char *name)
{
    if (!S_ISREG(found->st_mode))
        return report_error(EUCLEAN, "%s/%s is not a regular file", folder, name);
    if (found->st_nlink > 1)
        return report_error(
            EACCES,
            "%s/%s has %lu links, and must have one: by another link it may be another user's "
            "file, or belong to a copy of this folder. Remove the other links",
            folder, name, (unsigned long)found->st_nlink);
    return 0;
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
    return ownership_kind(&st, folder, name);
}
