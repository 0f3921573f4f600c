/* SPDX-License-Identifier: BSD-3-Clause */
#include "reflection/pairing/identity.h"

#include "reflection/media/fsops.h"
#include "reflection/media/report.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#define ATTRIBUTE_NAME "user.ato"
enum { ATTRIBUTE_MAX = PATH_MAX + 96 };

int identity_of(int fd, struct identity *identity)
{
    struct statx sx;
    memset(identity, 0, sizeof(*identity));
    if (statx(fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS | STATX_BTIME, &sx) < 0)
        return report_errno(errno, "cannot stat descriptor %d", fd);
    if (!S_ISREG(sx.stx_mode))
        return report_error(EINVAL, "descriptor %d is not a regular file", fd);
    if (sx.stx_nlink == 0)
        return report_error(EINVAL,
                            "descriptor %d is a file without a name: its reflection could not be "
                            "found again. Give the file a name first",
                            fd);
    identity->inode = sx.stx_ino;
    identity->device = makedev(sx.stx_dev_major, sx.stx_dev_minor);
    identity->size = sx.stx_size;
    identity->links = sx.stx_nlink;
    identity->has_birth = sx.stx_mask & STATX_BTIME;
    if (identity->has_birth) {
        identity->birth_sec = sx.stx_btime.tv_sec;
        identity->birth_nsec = sx.stx_btime.tv_nsec;
    }
    identity->mtime_sec = sx.stx_mtime.tv_sec;
    identity->mtime_nsec = sx.stx_mtime.tv_nsec;
    identity->mode = ownership_mode(fd, sx.stx_mode & 07777);
    identity->owner = sx.stx_uid;
    identity->group = sx.stx_gid;
    /* The kernel stores an int, although the ioctl's number says long. */
    long generation = 0;
    if (ioctl(fd, FS_IOC_GETVERSION, &generation) == 0) {
        identity->has_generation = true;
        identity->generation = (uint32_t)generation;
    }
    return 0;
}

int identity_path(int fd, const struct identity *identity, char *path, char **name)
{
    char link[64];
    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, PATH_MAX);
    if (n < 0)
        return report_errno(errno, "cannot find the path of descriptor %d through /proc", fd);
    if (n >= PATH_MAX)
        return report_error(ENAMETOOLONG, "the path of descriptor %d is too long", fd);
    path[n] = '\0';
    struct stat st;
    char *slash = strrchr(path, '/');
    int there = stat(path, &st);
    if (there < 0 && errno != ENOENT && errno != ENOTDIR && errno != ELOOP)
        return report_errno(errno, "cannot stat '%s', the path of descriptor %d", path, fd);
    if (path[0] != '/' || !slash || there < 0 || st.st_ino != identity->inode ||
        st.st_dev != identity->device)
        return report_error(
            EINVAL,
            "descriptor %d has the path '%s' in /proc, which does not name its file: the file was "
            "renamed meanwhile, or opened in another mount namespace",
            fd, path);
    *name = slash + 1;
    return 0;
}

void identity_to_record(const struct identity *identity, struct manifest_record *record)
{
    record->inode = identity->inode;
    record->device = identity->device;
    record->birth_sec = identity->birth_sec;
    record->birth_nsec = identity->birth_nsec;
    record->generation = identity->generation;
    record->known &= ~(MANIFEST_KNOWS_BIRTH | MANIFEST_KNOWS_GENERATION);
    if (identity->has_birth)
        record->known |= MANIFEST_KNOWS_BIRTH;
    if (identity->has_generation)
        record->known |= MANIFEST_KNOWS_GENERATION;
}

bool identity_same_inode(const struct identity *identity, const struct manifest_record *record)
{
    if (identity->inode != record->inode)
        return false;
    if (identity->has_birth && (record->known & MANIFEST_KNOWS_BIRTH) &&
        (identity->birth_sec != record->birth_sec || identity->birth_nsec != record->birth_nsec))
        return false;
    if (identity->has_generation && (record->known & MANIFEST_KNOWS_GENERATION) &&
        identity->generation != record->generation)
        return false;
    return true;
}

bool identity_unwritten(const struct identity *identity, const struct manifest_record *record)
{
    return identity->size == record->clean_size && identity->mtime_sec == record->clean_mtime_sec &&
           identity->mtime_nsec == record->clean_mtime_nsec;
}

void identity_hex(const uint8_t id[16], char out[33])
{
    for (int i = 0; i < 16; i++)
        snprintf(out + 2 * i, 3, "%02x", id[i]);
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return -1;
}

bool attribute_parse(const char *value, size_t n, struct attribute *a)
{
    static const char magic[] = "ato1 ";
    size_t at = sizeof(magic) - 1;
    memset(a, 0, sizeof(*a));
    if (n < at + 32 + 1 || memcmp(value, magic, at) != 0)
        return false;
    for (int i = 0; i < 16; i++, at += 2) {
        int high = hex_digit(value[at]), low = hex_digit(value[at + 1]);
        if (high < 0 || low < 0)
            return false;
        a->id[i] = (uint8_t)(high << 4 | low);
    }
    if (value[at++] != ' ')
        return false;
    size_t digits = 0;
    for (; at < n && value[at] >= '0' && value[at] <= '9'; at++, digits++) {
        uint64_t digit = (uint64_t)(value[at] - '0');
        if (a->inode > (UINT64_MAX - digit) / 10)
            return false;
        a->inode = a->inode * 10 + digit;
    }
    if (digits == 0 || at >= n || value[at++] != ' ')
        return false;
    size_t folder = n - at;
    if (folder == 0 || folder >= sizeof(a->folder) || memchr(value + at, '\0', folder))
        return false;
    memcpy(a->folder, value + at, folder);
    a->folder[folder] = '\0';
    return true;
}

enum attribute_finding attribute_read(int fd, const char *path, struct attribute *a)
{
    char value[ATTRIBUTE_MAX];
    ssize_t n = fgetxattr(fd, ATTRIBUTE_NAME, value, sizeof(value));
    if (n < 0 && errno == ENODATA)
        return ATTRIBUTE_NONE;
    if (n < 0 && errno == ENOTSUP)
        return ATTRIBUTE_UNSUPPORTED;
    if (n < 0 && errno != ERANGE) {
        report_errno(errno, "cannot read the attribute " ATTRIBUTE_NAME " of %s", path);
        return ATTRIBUTE_BAD;
    }
    if (n < 0 || !attribute_parse(value, (size_t)n, a)) {
        report_error(EUCLEAN, "the attribute " ATTRIBUTE_NAME " of %s is damaged", path);
        return ATTRIBUTE_BAD;
    }
    return ATTRIBUTE_FOUND;
}

int attribute_write(int fd, const char *path, const struct attribute *a)
{
    char value[ATTRIBUTE_MAX], id[33];
    identity_hex(a->id, id);
    int n = snprintf(value, sizeof(value), "ato1 %s %" PRIu64 " %s", id, a->inode, a->folder);
    if (fsops->fsetxattr(fd, ATTRIBUTE_NAME, value, (size_t)n) < 0)
        return report_errno(errno, "cannot set the attribute " ATTRIBUTE_NAME " of %s", path);
    if (fsops_fsync(fd) < 0)
        return report_errno(errno, "cannot make the attribute " ATTRIBUTE_NAME " of %s durable",
                            path);
    return 0;
}

int attribute_remove(int fd, const char *path)
{
    if (fsops->fremovexattr(fd, ATTRIBUTE_NAME) < 0 && errno != ENODATA && errno != ENOTSUP)
        return report_errno(errno, "cannot remove the attribute " ATTRIBUTE_NAME " of %s", path);
    if (fsops_fsync(fd) < 0)
        return report_errno(errno, "cannot sync %s", path);
    return 0;
}

int identity_random(void *bytes, size_t n)
{
    ssize_t got;
    do
        got = getrandom(bytes, n, 0);
    while (got < 0 && errno == EINTR);
    if (got != (ssize_t)n)
        return report_errno(got < 0 ? errno : EIO, "cannot get random bytes from the kernel");
    return 0;
}

static uint64_t this_process;

int identity_process(uint64_t *process)
{
    uint64_t made = 0;
    *process = __atomic_load_n(&this_process, __ATOMIC_RELAXED);
    while (!*process) {
        if (identity_random(&made, sizeof(made)) < 0)
            return -1;
        if (__atomic_compare_exchange_n(&this_process, process, made, false, __ATOMIC_RELAXED,
                                        __ATOMIC_RELAXED))
            *process = made;
    }
    return 0;
}

void identity_forget_process(void)
{
    __atomic_store_n(&this_process, 0, __ATOMIC_RELAXED);
}

void identity_boot(uint8_t boot_id[16])
{
    char text[64] = {0};
    memset(boot_id, 0, 16);
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    ssize_t n = read(fd, text, sizeof(text) - 1);
    close(fd);
    int nibble = 0;
    for (ssize_t i = 0; i < n && nibble < 32; i++) {
        int digit = hex_digit(text[i]);
        if (digit >= 0) {
            boot_id[nibble / 2] = (uint8_t)(boot_id[nibble / 2] << 4 | digit);
            nibble++;
        }
    }
}
