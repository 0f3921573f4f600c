/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * mmap(), and what programs do with what it returns.
 *
 * Which mappings are of libato: those that are shared and writable, of files at or below the paths of ATO_RUN_PATH. Without that
 * variable, of all files but those below /dev, and those that by their names are memory of programs that run at the same time: lock.mdb of LMDB,
 * NAME-lock, NAME-shm of SQLite, __db.NUMBER of Berkeley DB. What one process stores there another one has to see at once; with libato it sees it at the next commit. A
 * path that names such a file itself includes it. What a libato of the program maps is left to that.
 */
#include "lib/run/calls.h"
#include "lib/run/served.h"

#include "lib/file/table.h"
#include "lib/preload/record.h"

#include "ato_engine.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define PAGE 4096ull

static uint64_t whole_pages(uint64_t n)
{
    return (n + PAGE - 1) & ~(PAGE - 1);
}

/* ---- which files? ---- */

static bool ends_with(const char *path, const char *end)
{
    const size_t n = strlen(path), m = strlen(end);
    return n >= m && strcmp(path + n - m, end) == 0;
}

bool served_is_wanted(const char *path)
{
    const char *paths = secure_getenv("ATO_RUN_PATH");
    const bool is_memory = ends_with(path, "/lock.mdb") || ends_with(path, "-lock") ||
                           ends_with(path, "-shm") || strstr(path, "/__db.");
    if (*path != '/' || strstr(path, "/.ato/"))
        return false;
    if (!paths || !*paths)
        return !is_memory && strncmp(path, "/dev/", 5) != 0;
    for (const char *at = paths; *at; at += *at == ':') {
        const size_t n = strcspn(at, ":");
        const size_t root = n == 1 ? 0 : n; /* of "/" */
        if (n && strncmp(path, at, root) == 0 && (!path[root] || (path[root] == '/' && !is_memory)))
            return true;
        at += n;
    }
    return false;
}

/* Returns whether the process has the file mapped by a libato of its own: it has its manifest open. */
static bool is_of_libato(ino_t inode)
{
    char manifest[64], link[PATH_MAX];
    bool found = false;
    DIR *all = opendir("/proc/self/fd");
    (void)snprintf(manifest, sizeof(manifest), "/%ju.manifest", (uintmax_t)inode);
    for (const struct dirent *e; all && !found && (e = readdir(all));) {
        if (calls_is_own(atoi(e->d_name)))
            continue;
        const ssize_t n = readlinkat(dirfd(all), e->d_name, link, sizeof(link) - 1);
        link[n < 0 ? 0 : n] = 0;
        found = ends_with(link, manifest);
    }
    if (all)
        closedir(all);
    return found;
}

/* Says why a mapping is not one of libato. `sx`: of the file, if it is not served. With --require, returns MAP_FAILED with the error; else NULL:
 * it becomes an ordinary one. */
static void *refuse(const char *path, const struct statx *sx, int error, const char *why)
{
    if (sx)
        served_refuse(makedev(sx->stx_dev_major, sx->stx_dev_minor), sx->stx_ino);
    served_say(SAID_REFUSED, "%s is %s without libato: %s", path,
               served_is_required ? "not mapped" : "mapped", why);
    errno = error;
    return served_is_required ? MAP_FAILED : NULL;
}

/* ---- mmap ---- */

/* Returns the address; MAP_FAILED with errno; NULL: it is to be an ordinary mapping. */
static void *map(void *at, size_t n, int prot, int flags, int fd, off_t offset)
{
    char name[32], path[PATH_MAX];
    struct statx sx;
    const int access = fcntl(fd, F_GETFL);
    if (access < 0 || access & O_PATH || (access & O_ACCMODE) == O_WRONLY ||
        statx(fd, "", AT_EMPTY_PATH, STATX_INO | STATX_TYPE | STATX_NLINK, &sx) < 0 ||
        !S_ISREG(sx.stx_mode))
        return NULL;
    const bool is_writer = prot & PROT_WRITE;
    if (is_writer && (access & O_ACCMODE) != O_RDWR)
        return NULL; /* EACCES */
    const dev_t device = makedev(sx.stx_dev_major, sx.stx_dev_minor);
    struct served *s = served_file(device, sx.stx_ino);
    if (!s) {
        (void)snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
        const ssize_t length = readlink(name, path, sizeof(path) - 1);
        path[length < 0 ? 0 : length] = 0;
        if (!is_writer || !sx.stx_nlink)
            return NULL;
        record_set(offsetof(struct record, reached));
        if (!served_is_wanted(path))
            return NULL;
        record_set(offsetof(struct record, wanted));
        if (is_of_libato(sx.stx_ino))
            return NULL;
        if (served_is_refused(device, sx.stx_ino))
            return refuse(path, NULL, ENOTSUP, "it was refused before");
    }
    const char *const known = s ? s->path : path;
    const struct statx *const unserved = s ? NULL : &sx;
    const uint64_t from = (uint64_t)offset, to = from + whole_pages(n);
    const struct served *const there = served_at(at);
    const bool is_same = s && s == there && flags & MAP_FIXED && at == s->base + from;
    if (flags & (MAP_FIXED | MAP_FIXED_NOREPLACE) && !is_same)
        return there && there->count ? NULL /* an error */
                                     : refuse(known, unserved, ENOTSUP,
                                              "the program chooses the address (MAP_FIXED)");
    if (flags & MAP_SYNC)
        return refuse(known, unserved, ENOTSUP,
                      "the program makes its stores durable without msync() (MAP_SYNC)");
    if (prot & PROT_EXEC)
        return refuse(known, unserved, ENOTSUP, "the mapping is to be executable");
    if (!s) {
        s = served_make(fd, device, sx.stx_ino, path, to);
        if (!s)
            return refuse(path, unserved, errno, ato_errormsg());
        record_database(device, sx.stx_ino, path);
    }
    if (to > s->reach)
        return refuse(s->path, NULL, ENOTSUP, "it is mapped already, with less room");
    if ((is_same && served_remove(s, from, to) < 0) || !served_add(s, from, to)) {
        errno = ENOMEM;
        return MAP_FAILED;
    }
    record_set(offsetof(struct record, opened));
    return s->base + from;
}

/* Returns whether there is no view. One of a file that is not mapped any more goes: the program reuses its addresses. */
static bool is_free(void *at, size_t n)
{
    if (!table_touches(at, n))
        return true;
    if (served_is_here() && served_enter(SERVED_TO_CHANGE)) {
        struct served *s = served_at(at);
        if (s && !s->count)
            (void)served_drop(s);
        served_leave();
    }
    return !table_touches(at, n);
}

void *call_mmap(void *at, size_t n, int prot, int flags, int fd, off_t offset)
{
    const int type = flags & MAP_TYPE;
    const int error = errno;
    void *p = NULL;
    if (fd < 0 || flags & MAP_ANONYMOUS || !n || offset < 0 || offset % (off_t)PAGE ||
        n > 1ull << 46 || offset > 1ll << 46)
        ; /* not for libato, or an error */
    else if (type == MAP_PRIVATE)
        (void)served_commit_of(fd); /* it is to see what was stored before */
    else if (type != MAP_PRIVATE && (prot & PROT_WRITE || served_count) &&
             served_enter(SERVED_TO_CHANGE)) {
        p = map(at, n, prot, flags, fd, offset);
        served_leave();
    }
    if (p != MAP_FAILED)
        errno = error;
    if (!p && flags & (MAP_FIXED | MAP_FIXED_NOREPLACE) && n && !is_free(at, n)) {
        served_say(SAID_FIXED, "an mmap() with MAP_FIXED over a mapping of libato is refused");
        errno = EINVAL;
        return MAP_FAILED;
    }
    return p ? p : REAL(mmap)(at, n, prot, flags, fd, offset);
}
CALL_ALIAS(mmap, mmap64);

int call_munmap(void *at, size_t n)
{
    if (!n || !table_touches(at, n) || !served_enter(SERVED_TO_CHANGE))
        return REAL(munmap)(at, n);
    struct served *s = served_at(at);
    const uint64_t from = s ? (uint64_t)((char *)at - s->base) : 0, to = from + whole_pages(n);
    int r = -1;
    if (!s || from % PAGE || to > s->reach) {
        served_say(SAID_UNMAP, "a munmap() that reaches beyond a mapping of libato is refused");
        errno = EINVAL;
    } else
        r = served_remove(s, from, to);
    served_leave();
    return r;
}

/* A view has room to grow: only the range changes. */
static void *remap(struct served *s, uint64_t from, uint64_t old, uint64_t n, int flags)
{
    if (flags & ~MREMAP_MAYMOVE || !old || from % PAGE || !n) {
        served_say(SAID_FIXED, "mremap() of %s with flags 0x%x is refused", s->path,
                   (unsigned)flags);
        errno = EINVAL;
    } else if (from + n > s->reach) {
        errno = ENOMEM;
    } else if (n < old ? served_remove(s, from + n, from + old) == 0
                       : n == old || served_add(s, from + old, from + n))
        return s->base + from;
    return MAP_FAILED;
}

void *call_mremap(void *at, size_t old, size_t n, int flags, ...)
{
    va_list rest;
    va_start(rest, flags);
    void *to = flags & MREMAP_FIXED ? va_arg(rest, void *) : NULL;
    va_end(rest);
    if (to && table_touches(to, n)) {
        served_say(SAID_FIXED, "an mremap() with MREMAP_FIXED over a mapping of libato is refused");
        errno = EINVAL;
        return MAP_FAILED;
    }
    if (!table_find(at) || !served_enter(SERVED_TO_CHANGE))
        return REAL(mremap)(at, old, n, flags, to);
    struct served *s = served_at(at);
    void *p = MAP_FAILED;
    if (s)
        p = remap(s, (uint64_t)((char *)at - s->base), whole_pages(old), whole_pages(n), flags);
    else
        errno = EFAULT;
    served_leave();
    return p;
}

int call_msync(void *at, size_t n, int flags)
{
    if (!table_find(at) || !served_enter(SERVED_TO_USE))
        return REAL(msync)(at, n, flags);
    struct served *s = served_at(at);
    const int r = s ? served_commit(s, at, n, flags & ~MS_INVALIDATE) : REAL(msync)(at, n, flags);
    served_leave();
    return r;
}

/* A commit reads the mapping, and gives its pages other rights meanwhile. */
int call_mprotect(void *at, size_t n, int prot)
{
    if (!table_touches(at, n))
        return REAL(mprotect)(at, n, prot);
    if (prot == (PROT_READ | PROT_WRITE))
        return 0;
    served_say(SAID_FIXED, "mprotect() of a mapping of libato, which is readable and writable, is "
                           "refused");
    errno = EACCES;
    return -1;
}

/* What would drop stores of a private mapping does nothing to a shared one. */
int call_madvise(void *at, size_t n, int advice)
{
    if (table_find(at))
        switch (advice) {
        case MADV_DONTNEED:
        case MADV_FREE:
        case MADV_DONTFORK:
        case MADV_DOFORK:
            return 0;
        case MADV_REMOVE:
            errno = EOPNOTSUPP;
            return -1;
        }
    return REAL(madvise)(at, n, advice);
}
