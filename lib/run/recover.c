/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A file that a killed process left has what was committed only when it is recovered: the next map does that. But programs look at a file
 * before they map it, or never map it. So it is made plain before they open it.
 */
#include "lib/run/calls.h"
#include "lib/run/served.h"

#include "reflection/media/locks.h"
#include "reflection/pairing/lookup.h"

#include "ato_engine.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#define ATTRIBUTE "user.ato"

/* Returns the file's manifest, open; -1. */
static int open_manifest(int fd, const char *path, ino_t inode, int access)
{
    struct attribute a;
    char folder[PATH_MAX], name[PATH_MAX + 64];
    int manifest = -1;
    if (attribute_read(fd, path, &a) != ATTRIBUTE_FOUND)
        return -1;
    for (unsigned i = 0; i < LOOKUP_PLACES && manifest < 0; i++) {
        if (lookup_place(path, &a, secure_getenv("ATO_REFLECTION_DIR"), i, folder) != 1)
            continue;
        (void)snprintf(name, sizeof(name), "%s/%s", folder, pairing_names(inode).manifest);
        manifest = open(name, access | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    }
    return manifest;
}

/* Of processes that open the file at the same time one recovers it, and the others wait. Returns whether it may be recovered: no living
 * process has it mapped. */
static bool is_due(int fd, int manifest, bool is_writable)
{
    return (manifest < 0 ||
            (locks_wait(manifest, is_writable ? F_WRLCK : F_RDLCK, PAIRING_RECOVERY, 1) == 0 &&
             locks_ask(manifest, 1, PAIRING_LIVES) == LOCKS_FREE)) &&
           fgetxattr(fd, ATTRIBUTE, NULL, 0) >= 0;
}

/* As `ato deploy`. Returns false, and ato_errormsg() says why. */
static bool make_plain(int fd)
{
    struct statx sx;
    if (statx(fd, "", AT_EMPTY_PATH, STATX_SIZE, &sx) < 0)
        return false;
    const size_t length = sx.stx_size ? sx.stx_size : 1;
    const struct ato_options o = {
        .struct_size = sizeof(o), .flags = ATO_BORROW_FD, .read_policy = ATO_READ_GATHER};
    struct ato_stat st = {.struct_size = sizeof(st)};
    void *at = ato_mmap_opt(length, fd, 0, &o);
    if (at == MAP_FAILED)
        return false;
    /* That of SQLite is brought home by SQLite's next process with libato. */
    const bool is_masked = ato_stat(at, &st) == 0 && st.guard_bytes;
    if (ato_munmap(at, length, is_masked ? ATO_UNMAP_FAST : ATO_UNMAP_SPATIAL) == 0)
        return true;
    const bool is_mapped = ato_size(at) >= 0;
    if (is_mapped)
        (void)ato_munmap(at, length, ATO_UNMAP_FAST);
    return false;
}

/* Without any descriptor of the file in this process: closing one drops all its locks of fcntl(2). */
static __attribute__((noinline)) void recover(int folder, const char *name)
{
    char link[32], path[PATH_MAX];
    struct statx sx;
    if (statx(folder, name, 0, STATX_INO | STATX_TYPE, &sx) < 0 || !S_ISREG(sx.stx_mode) ||
        served_has_descriptor(makedev(sx.stx_dev_major, sx.stx_dev_minor), sx.stx_ino, -1))
        return;
    int fd = openat(folder, name, O_RDWR | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    const bool is_writable = fd >= 0;
    if (!is_writable)
        fd = openat(folder, name, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0)
        return;
    (void)snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    const ssize_t n = readlink(link, path, sizeof(path) - 1);
    path[n < 0 ? 0 : n] = 0;
    const bool is_wanted = served_is_wanted(path);
    const int manifest =
        is_wanted ? open_manifest(fd, path, sx.stx_ino, is_writable ? O_RDWR : O_RDONLY) : -1;
    if (is_wanted && is_due(fd, manifest, is_writable)) {
        if (!is_writable)
            served_say(SAID_RECOVERY,
                       "%s is not as its last sync left it, and cannot be written to: a user that "
                       "may has to run 'ato deploy' on it",
                       path);
        else if (!make_plain(fd))
            served_say(SAID_RECOVERY, "%s may not be as its last sync left it: %s", path,
                       ato_errormsg());
    }
    if (manifest >= 0)
        close(manifest);
    close(fd);
}

/* Without inlining: a thread with a small stack may open files. */
static __attribute__((noinline)) bool has_attribute_at(int folder, const char *name)
{
    char path[PATH_MAX + 32];
    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d/%s", folder, name);
    return getxattr(path, ATTRIBUTE, NULL, 0) >= 0;
}

void served_recover(int folder, const char *name)
{
    const int error = errno;
    const bool is_path = folder == AT_FDCWD || (name && *name == '/');
    if (name && *name &&
        (is_path ? getxattr(name, ATTRIBUTE, NULL, 0) >= 0 : has_attribute_at(folder, name)) &&
        served_is_here()) {
        if (served_enter_path(folder, name)) {
            served_leave();
        } else if (served_enter(SERVED_TO_CHANGE)) {
            recover(folder, name);
            served_leave();
        }
    }
    errno = error;
}
