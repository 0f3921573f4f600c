/* SPDX-License-Identifier: BSD-3-Clause */
#include "reflection/pairing/identity.h"

#include "reflection/media/fsops.h"
#include "reflection/media/report.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/fs.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#define ATTRIBUTE_NAME "user.ato"
enum { ATTRIBUTE_MAX = PATH_MAX + 96 };

static bool is_before(const struct timespec *a, const struct timespec *b)
{
    return a->tv_sec != b->tv_sec ? a->tv_sec < b->tv_sec : a->tv_nsec < b->tv_nsec;
}

int identity_of(int fd, struct identity *identity)
{
    struct statx sx;
    memset(identity, 0, sizeof(*identity));
    (void)clock_gettime(CLOCK_REALTIME_COARSE, &identity->asked);
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
    if (sx.stx_mask & STATX_BTIME) {
        identity->known = MANIFEST_KNOWS_BIRTH;
        identity->birth_sec = sx.stx_btime.tv_sec;
        identity->birth_nsec = sx.stx_btime.tv_nsec;
    }
    identity->mtime_sec = sx.stx_mtime.tv_sec;
    identity->mtime_nsec = sx.stx_mtime.tv_nsec;
    identity->ctime = (struct timespec){sx.stx_ctime.tv_sec, sx.stx_ctime.tv_nsec};
    /* Changed since the clock was asked: more changes may follow at that very time. (A ctime of the future says that the clock was
     * set back.) */
    struct timespec now = {0};
    if (is_before(&identity->asked, &identity->ctime) &&
        clock_gettime(CLOCK_REALTIME_COARSE, &now) == 0 && !is_before(&now, &identity->ctime))
        identity->asked = identity->ctime;
    identity->trust =
        (struct trust){sx.stx_uid, sx.stx_gid, ownership_mode(fd, sx.stx_mode & 07777)};
    /* The kernel stores an int, although the ioctl's number says long. */
    long generation = 0;
    if (ioctl(fd, FS_IOC_GETVERSION, &generation) == 0) {
        identity->known |= MANIFEST_KNOWS_GENERATION;
        identity->generation = (uint32_t)generation;
    }
    return 0;
}

int identity_path(int fd, const struct identity *identity, char *path)
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
    int there = stat(path, &st);
    if (there < 0 && errno != ENOENT && errno != ENOTDIR && errno != ELOOP)
        return report_errno(errno, "cannot stat '%s', the path of descriptor %d", path, fd);
    if (path[0] != '/' || there < 0 || st.st_ino != identity->inode ||
        st.st_dev != identity->device)
        return report_error(
            EINVAL,
            "descriptor %d has the path '%s' in /proc, which does not name its file: the file was "
            "renamed meanwhile, or opened in another mount namespace",
            fd, path);
    return 0;
}

void identity_to_record(const struct identity *identity, struct manifest_record *record)
{
    record->inode = identity->inode;
    record->device = identity->device;
    record->birth_sec = identity->birth_sec;
    record->birth_nsec = identity->birth_nsec;
    record->generation = identity->generation;
    record->known = (record->known & MANIFEST_KNOWS_ATTRIBUTE) | identity->known;
}

bool identity_same_inode(const struct identity *identity, const struct manifest_record *record)
{
    const uint32_t both = identity->known & record->known;
    if (identity->inode != record->inode)
        return false;
    if ((both & MANIFEST_KNOWS_BIRTH) &&
        (identity->birth_sec != record->birth_sec || identity->birth_nsec != record->birth_nsec))
        return false;
    return !(both & MANIFEST_KNOWS_GENERATION) || identity->generation == record->generation;
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

static int text_of(const struct attribute *a, char *text, size_t n)
{
    char id[33];
    identity_hex(a->id, id);
    return snprintf(text, n, "ato1 %s %" PRIu64 " %s", id, a->inode, a->folder);
}

bool attribute_parse(const char *value, size_t n, struct attribute *a)
{
    char head[96] = {0}, again[96], id[33];
    int at = 0;
    memset(a, 0, sizeof(*a));
    if (n == 0)
        return false;
    memcpy(head, value, n < sizeof(head) ? n : sizeof(head) - 1);
    if (sscanf(head, "ato1 %32[0-9a-f] %" SCNu64 "%n", id, &a->inode, &at) != 2 || head[at] != ' ')
        return false;
    for (size_t i = 0; i < 16 && i < strlen(id) / 2; i++)
        sscanf(id + 2 * i, "%2hhx", &a->id[i]);
    /* Any other text than the one that is written is damaged. */
    const size_t begin = (size_t)at + 1, length = n - begin;
    if (begin >= n || length >= sizeof(a->folder) || memchr(value + begin, 0, length) ||
        text_of(a, again, sizeof(again)) != (int)begin || memcmp(again, value, begin) != 0)
        return false;
    memcpy(a->folder, value + begin, length);
    return true;
}

/* What the kernel has returned: n bytes, or -1 and errno. */
static enum attribute_finding finding_of(ssize_t n, const char *value, const char *path,
                                         struct attribute *a)
{
    if (n < 0 && errno == ENODATA)
        return ATTRIBUTE_NONE;
    if (n < 0 && errno == ENOTSUP)
        return ATTRIBUTE_UNSUPPORTED;
    if (n < 0 && errno != ERANGE) {
        report_errno(errno, "cannot read the attribute " ATTRIBUTE_NAME " of %s", path);
        return ATTRIBUTE_BAD;
    }
    if (n < 0 || !attribute_parse(value, (size_t)n, a)) {
        report_error(EUCLEAN,
                     "the attribute " ATTRIBUTE_NAME
                     " of %s is damaged: take it away ('setfattr -x " ATTRIBUTE_NAME
                     "'), and choose a side, which 'ato deploy' then shows",
                     path);
        return ATTRIBUTE_BAD;
    }
    return ATTRIBUTE_FOUND;
}

enum attribute_finding attribute_read(int fd, const char *path, struct attribute *a)
{
    char value[ATTRIBUTE_MAX];
    return finding_of(fgetxattr(fd, ATTRIBUTE_NAME, value, sizeof(value)), value, path, a);
}

enum attribute_finding attribute_read_at(int folder, const char *name, struct attribute *a)
{
    char value[ATTRIBUTE_MAX], link[NAME_MAX + 64];
    snprintf(link, sizeof(link), "/proc/self/fd/%d/%s", folder, name);
    return finding_of(lgetxattr(link, ATTRIBUTE_NAME, value, sizeof(value)), value, name, a);
}

int attribute_write(int fd, const char *path, const struct attribute *a)
{
    char value[ATTRIBUTE_MAX];
    const int n = text_of(a, value, sizeof(value));
    if (fsops->fsetxattr(fd, ATTRIBUTE_NAME, value, (size_t)n, 0) < 0)
        return report_errno(errno, "cannot set the attribute " ATTRIBUTE_NAME " of %s", path);
    return 0;
}

int attribute_remove(int fd, const char *path)
{
    if ((fsops->fremovexattr(fd, ATTRIBUTE_NAME) < 0 && errno != ENODATA && errno != ENOTSUP) ||
        fsops_fsync(fd) < 0)
        return report_errno(errno, "cannot remove the attribute " ATTRIBUTE_NAME " of %s", path);
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

static uint8_t boot[16];

static void read_boot(void)
{
    char text[64] = {0};
    const int fd CLOSING = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    ssize_t n = read(fd, text, sizeof(text) - 1);
    const char *at = text;
    for (int i = 0; n > 0 && i < 16 && sscanf(at, "%2hhx", &boot[i]) == 1; i++)
        at += at[2] == '-' ? 3 : 2;
}

void identity_boot(uint8_t boot_id[16])
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, read_boot);
    memcpy(boot_id, boot, sizeof(boot));
}
