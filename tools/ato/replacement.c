/* SPDX-License-Identifier: BSD-3-Clause */
#include "replacement.h"

#include "text.h"

#include "reflection/media/report.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

int replacement_find(struct replacement *r, const char *path, struct stat *st)
{
    r->fd = r->folder = -1;
    r->other[0] = '\0';
    const bool exists = stat(path, st) == 0;
    if (!exists && errno != ENOENT)
        return report_errno(errno, "cannot look at %s", path);
    if (exists && S_ISDIR(st->st_mode))
        return report_error(EISDIR, "%s is a folder: name the file", path);
    if (exists && !S_ISREG(st->st_mode))
        return report_error(EINVAL, "%s is not a regular file", path);
    if (!*path || path[strlen(path) - 1] == '/')
        return report_error(EISDIR, "%s names no file", path);
    if (!text_resolve(r->path, path))
        return report_errno(errno, "cannot find the folder of %s", path);
    const char *slash = strrchr(r->path, '/');
    if (slash - r->path >= 5 && memcmp(slash - 5, "/.ato", 5) == 0)
        return report_error(EINVAL, "%s lies in a folder of libato's own files", path);
    memcpy(r->name, slash + 1, strlen(slash));
    return exists;
}

/* A name that no other file has, most likely. */
static void choose_name(struct replacement *r)
{
    unsigned long long random = 0;
    if (getrandom(&random, sizeof(random), 0) < 0)
        random = (unsigned long long)getpid();
    snprintf(r->other, sizeof(r->other), ".%.200s.ato-%016llx", r->name, random);
}

int replacement_begin(struct replacement *r)
{
    char folder[PATH_MAX];
    const int n = (int)(strrchr(r->path, '/') - r->path);
    snprintf(folder, sizeof(folder), "%.*s", n ? n : 1, r->path);
    r->folder = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (r->folder < 0)
        return report_errno(errno, "cannot open the folder %s", folder);
    r->fd = openat(r->folder, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (r->fd < 0 && errno != EACCES && errno != EROFS && errno != ENOSPC) {
        choose_name(r);
        r->fd = openat(r->folder, r->other, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600);
        if (r->fd < 0)
            r->other[0] = '\0';
    }
    return r->fd < 0 ? report_errno(errno, "cannot make a file in %s", folder) : 0;
}

/* Gives the file a name. Returns 0; -1 with errno. */
static int name_it(struct replacement *r)
{
    char from[64];
    if (r->other[0])
        return 0;
    snprintf(from, sizeof(from), "/proc/self/fd/%d", r->fd);
    choose_name(r);
    if (linkat(AT_FDCWD, from, r->folder, r->other, AT_SYMLINK_FOLLOW) == 0)
        return 0;
    r->other[0] = '\0';
    return -1;
}

int replacement_write(const struct replacement *r, const void *bytes, uint64_t n, off_t at)
{
    for (const char *from = bytes; n;) {
        const ssize_t done = pwrite(r->fd, from, n, at);
        if (done < 0 && errno != EINTR)
            return -1;
        if (done > 0) {
            from += done;
            at += done;
            n -= (uint64_t)done;
        }
    }
    return 0;
}

int replacement_commit(struct replacement *r, mode_t mode)
{
    if (fchmod(r->fd, mode) < 0 || fsync(r->fd) < 0)
        return report_errno(errno, "cannot write %s", r->path);
    if (name_it(r) < 0 || renameat(r->folder, r->other, r->folder, r->name) < 0)
        return report_errno(errno, "cannot name the copy %s", r->path);
    r->other[0] = '\0';
    if (fsync(r->folder) < 0)
        return report_errno(errno, "%s is complete, but the folder cannot be made durable",
                            r->path);
    return 0;
}

void replacement_end(struct replacement *r)
{
    if (r->other[0])
        (void)unlinkat(r->folder, r->other, 0);
    if (r->fd >= 0)
        close(r->fd);
    if (r->folder >= 0)
        close(r->folder);
}
