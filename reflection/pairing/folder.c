/* SPDX-License-Identifier: BSD-3-Clause */
#include "reflection/pairing/folder.h"

#include "reflection/media/domain.h"
#include "reflection/media/fsops.h"
#include "reflection/media/report.h"
#include "reflection/pairing/identity.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#define UNFINISHED ".tmp"

enum { OPEN_FLAGS = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC };

static int open_parent(const char *path, const char **name)
{
    char parent[PATH_MAX];
    const char *slash = strrchr(path, '/');
    snprintf(parent, sizeof(parent), "%.*s", slash == path ? 1 : (int)(slash - path), path);
    *name = slash + 1;
    int fd = open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        report_errno(errno,
                     "cannot open the folder %s, in which the reflection folder has its place",
                     parent);
    return fd;
}

char *folder_unfinished(char to[NAME_MAX + 1], const char *name)
{
    uint64_t random;
    if (identity_random(&random, sizeof(random)) < 0)
        return NULL;
    if (snprintf(to, NAME_MAX + 1, "%s.%016" PRIx64 UNFINISHED, name, random) > NAME_MAX) {
        report_error(ENAMETOOLONG, "the name %s is too long for libato to add a suffix to it",
                     name);
        return NULL;
    }
    return to;
}

bool folder_is_unfinished(const char *found, const char *name)
{
    const size_t n = strlen(name);
    return strncmp(found, name, n) == 0 && found[n] == '.' &&
           strspn(found + n + 1, "0123456789abcdef") == 16 &&
           strcmp(found + n + 17, UNFINISHED) == 0;
}

static int cannot_make(int around, const char *path)
{
    const int error = errno;
    struct statfs fs;
    if (fstatfs(around, &fs) == 0 && (fs.f_type == PROC_SUPER_MAGIC || fs.f_type == SYSFS_MAGIC))
        return report_error(EINVAL,
                            "cannot make the reflection folder %s: files of the file systems proc "
                            "and sysfs cannot be mapped",
                            path);
    return report_errno(error,
                        "cannot make the reflection folder %s (ATO_REFLECTION_DIR or "
                        "reflection_dir names another one)",
                        path);
}

/* Makes the folder under another name first, so that other processes find it only when it is
 * complete. */
static int make_folder(int around, const struct stat *like, const char *name, const char *path)
{
    char unfinished[NAME_MAX + 1];
    if (!folder_unfinished(unfinished, name))
        return -1;
    if (fsops->mkdirat(around, unfinished, 0700) < 0)
        return cannot_make(around, path);
    int result = -1, fd = openat(around, unfinished, OPEN_FLAGS);
    if (fd < 0) {
        report_errno(errno, "cannot open the new reflection folder %s", path);
        goto out;
    }
    /* The folder is for the users that may write beside the file. Changing the owner takes privileges;
     * without them the maker stays the owner, which is trusted too. If the group cannot be set, all users get
     * at most what that group had. */
    struct stat st;
    mode_t mode = ownership_mode(around, like->st_mode & 07777);
    if (fsops->fchown(fd, like->st_uid, like->st_gid) < 0 &&
        fsops->fchown(fd, (uid_t)-1, like->st_gid) < 0)
        report_log(REPORT_INFO,
                   "cannot give the reflection folder %s the owner and group of the folder around "
                   "it: its maker stays the owner",
                   path);
    if (fstat(fd, &st) == 0 && st.st_gid != like->st_gid)
        mode = (mode & 01700) | (mode & mode >> 3 & 0007);
    if (fsops->fchmod(fd, mode) < 0)
        report_errno(errno, "cannot set the mode of the reflection folder %s", path);
    else if (fsops->renameat(around, unfinished, name) < 0 && errno != EEXIST && errno != ENOTEMPTY)
        report_errno(errno,
                     "cannot make the reflection folder %s (ATO_REFLECTION_DIR or reflection_dir "
                     "names another one)",
                     path);
    else
        result = 0;
out:;
    int saved = errno;
    if (fd >= 0)
        close(fd);
    (void)fsops->unlinkat(around, unfinished, AT_REMOVEDIR); /* there only if it was not renamed */
    errno = saved;
    return result;
}

/* Returns true if the maker of the folder is a member of the group that may rename names around it: only
 * members can give a folder that group. */
static bool is_of_the_group(const struct stat *folder, const struct stat *parent)
{
    return (parent->st_mode & S_IWGRP) && !(parent->st_mode & S_ISVTX) &&
           folder->st_gid == parent->st_gid;
}

static int check_trust(const struct folder *f, const struct stat *parent)
{
    struct stat st;
    if (fstat(f->fd, &st) < 0)
        return report_errno(errno, "cannot stat %s", f->path);
    if (st.st_uid != geteuid() && st.st_uid != 0 && st.st_uid != parent->st_uid &&
        !is_of_the_group(&st, parent))
        return report_error(
            EACCES,
            "the reflection folder %s belongs to user %u, and is refused: it must belong to the "
            "caller, to root, to the owner of the folder around it, or to the group that may write "
            "there. Name another one by ATO_REFLECTION_DIR or reflection_dir",
            f->path, (unsigned)st.st_uid);
    return 0;
}

int folder_open(struct folder *f, const char *path, bool make)
{
    f->fd = -1;
    if (path[0] == '/') {
        if (strlen(path) >= sizeof(f->path))
            return report_error(ENAMETOOLONG, "the path of the reflection folder is too long");
        strcpy(f->path, path);
    } else {
        char cwd[PATH_MAX];
        if (!getcwd(cwd, sizeof(cwd)))
            return report_errno(errno, "cannot find the working directory");
        if (strlen(cwd) + 1 + strlen(path) >= sizeof(f->path))
            return report_error(ENAMETOOLONG, "the path of the reflection folder is too long");
        strcat(strcat(strcpy(f->path, cwd), "/"), path);
    }
    size_t n = strlen(f->path);
    while (n > 1 && f->path[n - 1] == '/')
        f->path[--n] = '\0';

    const char *name;
    int parent = open_parent(f->path, &name);
    if (parent < 0)
        return -1;
    struct stat around;
    int result = -1;
    if (fstat(parent, &around) < 0) {
        report_errno(errno, "cannot stat the folder around %s", f->path);
        goto out;
    }
    f->fd = openat(parent, name, OPEN_FLAGS);
    if (f->fd < 0 && errno == ENOENT && make) {
        if (make_folder(parent, &around, name, f->path) < 0)
            goto out;
        f->fd = openat(parent, name, OPEN_FLAGS);
    }
    if (f->fd < 0) {
        if (errno == ELOOP || errno == ENOTDIR)
            report_error(EACCES,
                         "%s is a symbolic link or not a folder, and is refused as reflection "
                         "folder: name another one by ATO_REFLECTION_DIR or reflection_dir",
                         f->path);
        else
            report_errno(errno,
                         "cannot open the reflection folder %s (for a file without a reflection, "
                         "ATO_REFLECTION_DIR or reflection_dir names another one)",
                         f->path);
        goto out;
    }
    result = check_trust(f, &around);
out:
    close(parent);
    if (result < 0)
        folder_close(f);
    return result;
}

void folder_close(struct folder *f)
{
    if (f->fd >= 0) {
        int saved = errno;
        close(f->fd);
        errno = saved;
    }
    f->fd = -1;
}

int folder_names(const struct folder *f, const char *name, int fd)
{
    struct stat held, named;
    if (fstat(fd, &held) < 0)
        return report_errno(errno, "cannot stat %s/%s", f->path, name);
    if (fstatat(f->fd, name, &named, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT ? 0 : report_errno(errno, "cannot stat %s/%s", f->path, name);
    return held.st_ino == named.st_ino && held.st_dev == named.st_dev;
}

int folder_reopen(int fd)
{
    char link[64];
    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    return open(link, O_RDWR | O_CLOEXEC);
}

void *folder_map(int fd, enum persist_domain domain, size_t n, off_t at)
{
    const int own = folder_reopen(fd);
    if (own < 0)
        return NULL;
    void *map = domain_map(domain, NULL, n, PROT_READ | PROT_WRITE, own, at);
    const int saved = errno;
    close(own);
    errno = saved;
    if (map == MAP_FAILED)
        return NULL;
    madvise(map, n, MADV_DONTFORK);
    return map;
}

bool folder_has(const struct folder *f, const char *name)
{
    struct stat st;
    return fstatat(f->fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0;
}

int folder_each_name(const struct folder *f, int (*visit)(void *arg, const char *name), void *arg)
{
    int fd = openat(f->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    if (!dir) {
        int r = report_errno(errno, "cannot list the reflection folder %s", f->path);
        if (fd >= 0)
            close(fd);
        return r;
    }
    int result = 0;
    while (result == 0) {
        errno = 0;
        const struct dirent *entry = readdir(dir);
        if (!entry && errno)
            result = report_errno(errno, "cannot list the reflection folder %s", f->path);
        if (!entry)
            break;
        result = visit(arg, entry->d_name);
    }
    int saved = errno;
    closedir(dir);
    errno = saved;
    return result;
}

int folder_sync_name(const struct folder *f)
{
    const char *name;
    int parent = open_parent(f->path, &name);
    if (parent < 0)
        return -1;
    int result = 0;
    if (fsops_fsync(parent) < 0)
        result =
            report_errno(errno, "cannot sync the folder around the reflection folder %s", f->path);
    int saved = errno;
    close(parent);
    errno = saved;
    return result;
}

int folder_sync_from(const struct folder *f, const char *site)
{
    if (fsops->fsync(f->fd, site) < 0)
        return report_errno(errno, "cannot sync the folder %s", f->path);
    return 0;
}
