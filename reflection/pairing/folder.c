/* SPDX-License-Identifier: BSD-3-Clause */
#include "reflection/pairing/folder.h"

#include "reflection/media/domain.h"
#include "reflection/media/fsops.h"
#include "reflection/media/locks.h"
#include "reflection/media/report.h"
#include "reflection/pairing/identity.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#define UNFINISHED ".tmp"
#define NAMED      "user.ato.named"

enum { MARK_BYTES = NAME_MAX + 96 };
enum { OPEN_FLAGS = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC };

bool folder_is_unfinished(const char *found, const char *name)
{
    const size_t n = strlen(name);
    return strncmp(found, name, n) == 0 && found[n] == '.' &&
           strspn(found + n + 1, "0123456789abcdef") == 16 &&
           strcmp(found + n + 17, UNFINISHED) == 0;
}

int folder_make(int around, const char *name, const struct trust *like, bool is_folder)
{
    char unfinished[NAME_MAX + 1];
    uint64_t random;
    int fd CLOSING = -1;
    if (identity_random(&random, sizeof(random)) < 0)
        return -1;
    if (snprintf(unfinished, sizeof(unfinished), "%s.%016" PRIx64 UNFINISHED, name, random) >
        NAME_MAX)
        return report_error(ENAMETOOLONG,
                            "the name %s is too long for libato to add a suffix to it", name);
    if (!is_folder)
        fd = fsops->create(around, unfinished, O_RDWR | O_EXCL, 0600);
    else if (fsops->mkdirat(around, unfinished, 0700) == 0)
        fd = openat(around, unfinished, OPEN_FLAGS);
    int r = fd < 0 ? -1 : ownership_give(like, fd);
    if (r == 0 && (r = fsops->renameat(around, unfinished, name)) < 0 &&
        (errno == EEXIST || errno == ENOTEMPTY || errno == ENOENT))
        r = 0;
    KEEP_ERRNO();
    (void)fsops->unlinkat(around, unfinished,
                          is_folder ? AT_REMOVEDIR : 0); /* if it has that name yet */
    return r;
}

/* Makes the folder, for the users that may write beside the file. Without privileges its maker stays the owner, which is trusted
 * too. Returns 0; -1 with errno. */
static int make_folder(const struct folder *f)
{
    char around[PATH_MAX];
    struct stat st;
    const char *slash = strrchr(f->path, '/');
    snprintf(around, sizeof(around), "%.*s", slash == f->path ? 1 : (int)(slash - f->path),
             f->path);
    const int fd CLOSING = open(around, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0)
        return -1;
    const struct trust like = {st.st_uid, st.st_gid, ownership_mode(fd, st.st_mode)};
    return folder_make(fd, slash + 1, &like, true);
}

/* Puts the note into a folder that was just made. If that fails, the folder is as good. It is no content: nothing waits for it to be
 * durable. */
static void write_note(const struct folder *f)
{
    static const char note[] =
        "Parts of the files in the folder around this one may lie here: libato keeps them while a\n"
        "program has such a file open, and after a crash. Do not change or remove them, and copy "
        "a\n"
        "file only when all of it is in its place:\n"
        "\n"
        "    ato info FILE                    says whether it is, and what to do\n"
        "    ato deploy FILE                  brings everything to its place, as when SQLite says\n"
        "                                     'file is not a database'\n"
        "    ato deploy --recursive FOLDER    for all files below a folder\n"
        "    ato cp FILE COPY                 copies it while programs have it open\n"
        "\n"
        "A name here is the inode number of a file (ls -i). A folder with this text alone may be\n"
        "removed.\n";
    struct stat st;
    KEEP_ERRNO();
    const int fd CLOSING = fsops->create(f->fd, FOLDER_NOTE, O_WRONLY | O_EXCL, 0600);
    if (fd < 0)
        return;
    if (fstat(f->fd, &st) == 0)
        (void)ownership_give(&(struct trust){st.st_uid, st.st_gid, st.st_mode & 0744}, fd);
    const ssize_t ignored = write(fd, note, sizeof(note) - 1);
    (void)ignored;
}

void folder_follow(const struct folder *f)
{
    struct stat st, around;
    if (strcmp(strrchr(f->path, '/') + 1, FOLDER_NAME) != 0 || fstat(f->fd, &st) < 0 ||
        fstatat(f->fd, "..", &around, 0) < 0 ||
        (st.st_uid == around.st_uid && st.st_gid == around.st_gid && st.st_mode == around.st_mode))
        return;
    const int fd CLOSING = openat(f->fd, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return;
    const struct trust like = {around.st_uid, around.st_gid, ownership_mode(fd, around.st_mode)};
    (void)ownership_give(&like, f->fd);
}

static int check_trust(struct folder *f)
{
    struct stat st, around;
    if (fstat(f->fd, &st) < 0 || fstatat(f->fd, "..", &around, 0) < 0)
        return report_errno(errno, "cannot stat %s, or the folder around it", f->path);
    f->marked = -1;
    f->device = st.st_dev;
    f->inode = st.st_ino;
    /* Of its group, if that may rename names around the folder: only members can give a folder that group. */
    const mode_t group = around.st_mode & S_ISVTX ? 0 : around.st_mode & S_IWGRP;
    if (!ownership_maker(&(struct trust){around.st_uid, around.st_gid, group}, &st))
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
    const bool relative = path[0] != '/';
    f->fd = -1;
    f->path[0] = '\0';
    if (relative && !getcwd(f->path, PATH_MAX))
        return report_errno(errno, "cannot find the working directory");
    const size_t cwd = strlen(f->path);
    if ((size_t)snprintf(f->path + cwd, PATH_MAX - cwd, "%s%s", relative ? "/" : "", path) >=
        PATH_MAX - cwd)
        return report_error(ENAMETOOLONG, "the path of the reflection folder is too long");
    size_t n =
        0; /* one slash between two names, and none at the end: an attribute's `//` has a meaning (identity.h) */
    for (const char *from = f->path; *from; from++)
        if (*from != '/' || n == 0 || f->path[n - 1] != '/')
            f->path[n++] = *from;
    f->path[n - (n > 1 && f->path[n - 1] == '/')] = '\0';

    f->fd = open(f->path, OPEN_FLAGS);
    const bool makes = f->fd < 0 && errno == ENOENT && make && make_folder(f) == 0;
    if (makes)
        f->fd = open(f->path, OPEN_FLAGS);
    if (f->fd >= 0 && check_trust(f) == 0) {
        if (makes)
            write_note(f);
        return 0;
    }
    if (f->fd >= 0)
        folder_close(f);
    else if (errno == ELOOP || errno == ENOTDIR)
        report_error(EACCES,
                     "%s is a symbolic link or not a folder, and is refused as reflection "
                     "folder: name another one by ATO_REFLECTION_DIR or reflection_dir",
                     f->path);
    else
        report_errno(errno, "cannot %s the reflection folder %s%s", make ? "open or make" : "open",
                     f->path, folder_advice(errno));
    return -1;
}

const char *folder_advice(int error)
{
    return error == EMFILE || error == ENFILE || error == ENOMEM || error == EIO || error == EFBIG
               ? ""
               : " (for a file without a reflection, ATO_REFLECTION_DIR or reflection_dir names "
                 "another folder)";
}

void folder_close(struct folder *f)
{
    KEEP_ERRNO();
    if (f->fd >= 0)
        close(f->fd);
    f->fd = -1;
}

int folder_error(const struct folder *f, const char *name, const char *what)
{
    return report_errno(errno, "%s %s/%s", what, f->path, name);
}

int folder_names(const struct folder *f, const char *name, int fd)
{
    struct stat held, named;
    if (fstat(fd, &held) < 0)
        return folder_error(f, name, "cannot stat");
    if (fstatat(f->fd, name, &named, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT ? 0 : folder_error(f, name, "cannot stat");
    return held.st_ino == named.st_ino && held.st_dev == named.st_dev;
}

int folder_open_file(const struct folder *f, const char *name, int access, const struct trust *file,
                     const char *what)
{
    /* O_NONBLOCK: opening a named pipe of that name would block. */
    const int fd = openat(f->fd, name, access | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0 && errno != ENOENT)
        report_errno(errno, "cannot open %s %s/%s", what, f->path, name);
    if (fd < 0 || ownership_check(file, fd, f->path, name) == 0)
        return fd;
    KEEP_ERRNO();
    close(fd);
    return -1;
}

int folder_lock_manifest(const struct folder *f, const char *name, int access,
                         const struct trust *file)
{
    const short type = access == O_RDONLY ? F_RDLCK : F_WRLCK;
    const int fd = folder_open_file(f, name, access, file, "the manifest");
    if (fd < 0)
        return -1;
    locks_keep(fd);
    int named;
    if (access == O_RDONLY && locks_try(fd, type, 0, 1) == LOCKS_TAKEN)
        named = 0;
    else if (locks_wait(fd, type, 0, 1) == 0)
        named = folder_names(f, name, fd);
    else if (errno != ENOSYS)
        named = folder_error(f, name, "cannot lock the manifest");
    else
        named = report_error(
            ENOSYS,
            "cannot lock the manifest %s/%s: this kernel, or the sandbox in place of it (gVisor), "
            "has no open file description locks (F_OFD_SETLK), which libato needs",
            f->path, name);
    if (named == 1)
        return fd;
    if (named ==
        0) /* removed or set aside meanwhile: its lock has no meaning any more. Or it cannot be had at once */
        errno = ENOENT;
    locks_close(fd);
    return -1;
}

int folder_reopen(int fd, int access)
{
    char link[64];
    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    return open(link, access | O_CLOEXEC);
}

void *folder_map(int fd, int access, size_t n, off_t at)
{
    const int own CLOSING = folder_reopen(fd, access);
    const int prot = access == O_RDWR ? PROT_READ | PROT_WRITE : PROT_READ;
    void *map = domain_map(PERSIST_PMEM, NULL, n, prot, own < 0 ? fd : own, at);
    return map == MAP_FAILED ? NULL : map;
}

bool folder_has(const struct folder *f, const char *name)
{
    struct stat st;
    return fstatat(f->fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0;
}

int folder_each_name(const struct folder *f, const char *where,
                     int (*visit)(void *arg, const char *name), void *arg)
{
    struct dirent **names;
    const int n = scandirat(f->fd, where, &names, NULL, NULL);
    if (n < 0)
        return report_errno(errno, "cannot list the reflection folder %s, or the one around it",
                            f->path);
    int result = 0;
    for (int i = 0; i < n; i++) {
        if (result == 0)
            result = visit(arg, names[i]->d_name);
        free(names[i]);
    }
    free(names);
    return result;
}

static int sweep(void *arg, const char *name)
{
    const struct folder *f = arg;
    if (folder_is_unfinished(name + strspn(name, "0123456789"), ".manifest"))
        (void)fsops->unlinkat(f->fd, name, 0);
    return 0;
}

void folder_sweep(const struct folder *f)
{
    (void)folder_each_name(f, ".", sweep, (void *)(uintptr_t)f);
}

/* The attribute of a reflection folder says where the folder had its name when that was made durable: inode of the
 * folder around it, name, own inode and birth time. A folder that was copied, or moved elsewhere, does not match; the birth time
 * is for a copy that has the same inode numbers on another file system. Returns false if there can be no such attribute. */
static bool make_mark(const struct folder *f, char mark[MARK_BYTES])
{
    struct stat around;
    struct statx own;
    if (fstatat(f->fd, "..", &around, 0) < 0 || around.st_dev != f->device ||
        statx(f->fd, "", AT_EMPTY_PATH, STATX_BTIME, &own) < 0 || !(own.stx_mask & STATX_BTIME))
        return false;
    snprintf(mark, MARK_BYTES, "%ju %s %ju %jd.%09u", (uintmax_t)around.st_ino,
             strrchr(f->path, '/') + 1, (uintmax_t)f->inode, (intmax_t)own.stx_btime.tv_sec,
             own.stx_btime.tv_nsec);
    return true;
}

bool folder_is_marked(struct folder *f)
{
    char mark[MARK_BYTES], found[MARK_BYTES];
    if (f->marked < 0) {
        const ssize_t n = make_mark(f, mark) ? fgetxattr(f->fd, NAMED, found, sizeof(found)) : -1;
        f->marked = n > 0 && (size_t)n == strlen(mark) && memcmp(found, mark, (size_t)n) == 0;
    }
    return f->marked;
}

int folder_sync_name(struct folder *f, bool marks)
{
    char mark[MARK_BYTES];
    if (folder_is_marked(f))
        return 0;
    const int parent CLOSING = openat(f->fd, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const int result = parent < 0 ? -1 : fsops_fsync(parent);
    if (result < 0)
        report_errno(errno, "cannot sync the folder around the reflection folder %s", f->path);
    else if (marks && make_mark(f, mark)) /* if it fails, the next birth syncs again */
        (void)fsops->fsetxattr(f->fd, NAMED, mark, strlen(mark), 0);
    return result;
}

int folder_sync_names(const struct folder *f)
{
    if (fsops->fsync(f->fd) < 0)
        return report_errno(errno, "cannot sync the folder %s", f->path);
    return 0;
}
