/* SPDX-License-Identifier: BSD-3-Clause */
#include "diagnosis.h"

#include "logind.h"

#include "reflection/format/manifest.h"
#include "reflection/media/domain.h"
#include "reflection/media/report.h"
#include "reflection/pairing/folder.h"

#include <cpuid.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <linux/membarrier.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#ifndef MAP_SYNC
#define MAP_SYNC 0x80000
#endif

/* ---- what is found out ---- */

static struct cpu look_at_cpu(void)
{
    struct cpu c = {0};
    struct persist p;
    unsigned eax, ebx, ecx, edx;
    if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx)) {
        c.rtm = ebx & (1u << 11);
        c.clflushopt = ebx & (1u << 23);
        c.clwb = ebx & (1u << 24);
    }
    /* The kernel has to allow these too. */
    c.avx2 = __builtin_cpu_supports("avx2");
    c.avx512 = __builtin_cpu_supports("avx512f");
    c.rtm_commits = persist_rtm_works();
    persist_init(&p, PERSIST_PROCESS);
    c.kernel = p.kernel->name;
    return c;
}

static bool has_membarrier(void)
{
    long commands = syscall(SYS_membarrier, MEMBARRIER_CMD_QUERY, 0, 0);
    return commands > 0 && (commands & MEMBARRIER_CMD_GLOBAL_EXPEDITED);
}

/* Makes a file without a name in the folder. */
static int make_file(const char *folder)
{
    char path[PATH_MAX];
    int fd = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL))
        return fd;
    if (snprintf(path, sizeof(path), "%s/.ato-doctor-XXXXXX", folder) >= (int)sizeof(path)) {
        errno = ENAMETOOLONG;
        return -1;
    }
    fd = mkostemp(path, O_CLOEXEC);
    if (fd >= 0)
        (void)unlink(path);
    return fd;
}

static void try_file(struct medium *m, int fd)
{
    static const char value[] = "ato1";
    m->domain = domain_of(fd);
    void *map = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED_VALIDATE | MAP_SYNC, fd, 0);
    m->map_sync = map == MAP_FAILED ? errno : 0;
    if (map != MAP_FAILED)
        munmap(map, 4096);
    m->attributes = fsetxattr(fd, "user.ato", value, sizeof(value), 0) < 0 ? errno : 0;
    m->fallocate = fallocate(fd, 0, 0, MANIFEST_BYTES) < 0 ? errno : 0;
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 1};
    m->locks = fcntl(fd, F_OFD_SETLK, &lock) < 0 ? errno : 0;
}

/* domain_refused() of a folder that may not exist. */
static const char *refused_type(const char *folder)
{
    const int fd = open(folder, O_PATH | O_CLOEXEC);
    const char *type = fd < 0 ? NULL : domain_refused(fd);
    if (fd >= 0)
        close(fd);
    return type;
}

/* The type as mount(8) knows it: by the number of the mount, in a line of
 * "36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue". */
static bool find_type(const char *folder, char type[64])
{
    struct statx sx;
    unsigned long long id;
    char *line = NULL;
    size_t room = 0;
    bool found = false;
    if (statx(AT_FDCWD, folder, 0, STATX_MNT_ID, &sx) < 0 || !(sx.stx_mask & STATX_MNT_ID))
        return false;
    FILE *mounts = fopen("/proc/self/mountinfo", "re");
    if (!mounts)
        return false;
    while (!found && getline(&line, &room, mounts) > 0) {
        const char *at = strstr(line, " - ");
        if (sscanf(line, "%llu", &id) == 1 && id == sx.stx_mnt_id && at)
            found = sscanf(at + 3, "%63s", type) == 1;
    }
    free(line);
    fclose(mounts);
    return found;
}

static void name_type(const char *folder, char type[64])
{
    struct statfs fs;
    if (find_type(folder, type))
        return;
    if (statfs(folder, &fs) < 0)
        strcpy(type, "unknown");
    else
        snprintf(type, 64, "unknown (0x%lx)", (unsigned long)fs.f_type);
}

static int look_at_medium(struct medium *m, const char *folder)
{
    struct statvfs vfs;
    struct stat st;
    memset(m, 0, sizeof(*m));
    if (stat(folder, &st) < 0)
        return -1;
    if (!S_ISDIR(st.st_mode)) {
        errno = ENOTDIR;
        return -1;
    }
    name_type(folder, m->type);
    m->unsafe = refused_type(folder);
    if (statvfs(folder, &vfs) == 0) {
        m->has_space = true;
        m->size = (uint64_t)vfs.f_blocks * vfs.f_frsize;
        m->free = (uint64_t)vfs.f_bavail * vfs.f_frsize;
        m->reserved = (uint64_t)(vfs.f_bfree - vfs.f_bavail) * vfs.f_frsize;
    }
    int fd = make_file(folder);
    m->tried = fd < 0 ? errno : 0;
    if (fd >= 0) {
        try_file(m, fd);
        close(fd);
    }
    return 0;
}

static void look_at_shm(struct shm *s)
{
    struct statvfs vfs;
    memset(s, 0, sizeof(*s));
    s->vanishes = logind_removes();
    if (statvfs("/dev/shm", &vfs) < 0) {
        s->error = errno;
        return;
    }
    s->size = (uint64_t)vfs.f_blocks * vfs.f_frsize;
    s->free = (uint64_t)vfs.f_bavail * vfs.f_frsize;
    const int fd = make_file("/dev/shm");
    s->tried = fd < 0 || fallocate(fd, 0, 0, 1 << 20) < 0 ? errno : 0;
    if (fd >= 0)
        close(fd);
}

static const char *variable(const char *name)
{
    const char *value = secure_getenv(name);
    return value && *value ? value : NULL;
}

/* Finds out whether the library would take the folder that reflections would lie in, and could make it. */
static void try_folder(struct diagnosis *d, const char *path)
{
    struct folder f;
    char above[PATH_MAX];
    if (folder_open(&f, path, false) == 0) {
        if (faccessat(f.fd, ".", W_OK | X_OK, AT_EACCESS) < 0)
            snprintf(d->folder, sizeof(d->folder), "no permission to write to %.400s", path);
        folder_close(&f);
        return;
    }
    if (errno != ENOENT) {
        snprintf(d->folder, sizeof(d->folder), "%s", report_sentence());
        return;
    }
    snprintf(above, sizeof(above), "%s", path);
    if (faccessat(AT_FDCWD, dirname(above), W_OK | X_OK, AT_EACCESS) < 0) /* one level is made */
        snprintf(d->folder, sizeof(d->folder), "the folder %.400s cannot be made: %s", path,
                 report_reason(errno));
}

/* Reflections in another folder: the weaker of the two media counts. */
static void look_elsewhere(struct diagnosis *d, const char *folder)
{
    char beside[PATH_MAX];
    snprintf(beside, sizeof(beside), "%s/" FOLDER_NAME, folder);
    d->elsewhere = variable("ATO_REFLECTION_DIR");
    try_folder(d, d->elsewhere ? d->elsewhere : beside);
    if (!d->elsewhere)
        return;
    d->elsewhere_unsafe = refused_type(d->elsewhere);
    int fd = make_file(d->elsewhere);
    d->elsewhere_domain = fd < 0 ? -1 : (int)domain_of(fd);
    if (fd >= 0)
        close(fd);
}

int diagnosis_make(struct diagnosis *d, const char *folder)
{
    memset(d, 0, sizeof(*d));
    d->name = folder;
    if (look_at_medium(&d->medium, folder) < 0)
        return -1;
    uname(&d->kernel);
    d->membarrier = has_membarrier();
    d->auto_flush = domain_has_auto_flush();
    d->cpu = look_at_cpu();
    look_at_shm(&d->shm);
    look_elsewhere(d, folder);
    d->wish = variable("ATO_DURABILITY");
    d->any = variable("ATO_ANY_FILE_SYSTEM") && strcmp(variable("ATO_ANY_FILE_SYSTEM"), "1") == 0;
    d->domain = d->medium.domain;
    if (d->elsewhere && d->elsewhere_domain > 0)
        d->domain = (int)domain_weaker(d->domain, d->elsewhere_domain);
    d->offered = d->domain;
    if (d->wish)
        d->domain = domain_from_name(d->wish);
    return 0;
}

/* ---- what it means ---- */

#define UNSAFE ", on which locks and stores may not reach all programs that use a file"

const char *diagnosis_reason(const struct diagnosis *d)
{
    if (d->wish)
        return "ATO_DURABILITY says so";
    if (d->offered != d->medium.domain)
        return "the folder that ATO_REFLECTION_DIR names is on a medium that offers no more";
    switch (d->medium.domain) {
    case PERSIST_PMEM:
        return "a mapping with MAP_SYNC works: this is persistent memory, reached by DAX";
    case PERSIST_EADR:
        return "a mapping with MAP_SYNC works, and this machine writes its CPU caches back when "
               "the "
               "power fails (eADR)";
    case PERSIST_PROCESS:
        return "the file system is in memory (tmpfs or ramfs)";
    default:
        return "the file system is on a disk, or on something else that is reached through the "
               "page "
               "cache";
    }
}

const char *diagnosis_survival(int domain)
{
    switch (domain) {
    case PERSIST_PMEM:
    case PERSIST_EADR:
        return "When ato_memcpy() has returned, its bytes are there after a kill, a crash of the "
               "kernel and a power cut.";
    case PERSIST_MSYNC:
        return "When ato_memcpy() has returned, its bytes are there after a kill, a crash of the "
               "kernel and a power cut; each write waits for the disk.";
    default:
        return "When ato_memcpy() has returned, its bytes are there when the process is killed. "
               "They are not when the kernel crashes or the power fails.";
    }
}

static void __attribute__((format(printf, 2, 3)))
obstacle(struct obstacles *o, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(o->all[o->n++], sizeof(o->all[0]), format, args);
    va_end(args);
}

struct obstacles diagnosis_obstacles(const struct diagnosis *d)
{
    const struct medium *m = &d->medium;
    struct obstacles o = {0};
    if (m->unsafe && !d->any)
        obstacle(&o,
                 "the file system is %s" UNSAFE
                 ", and is refused; ATO_ANY_FILE_SYSTEM=1 takes it all the same",
                 m->unsafe);
    if (d->elsewhere_unsafe && !d->any)
        obstacle(&o, "the folder that ATO_REFLECTION_DIR names is on %s" UNSAFE ", and is refused",
                 d->elsewhere_unsafe);
    if (m->tried)
        obstacle(&o, "no file can be made there: %s", report_reason(m->tried));
    else if (m->fallocate == EOPNOTSUPP)
        obstacle(&o, "the file system cannot allocate space before it is written to (fallocate)");
    else if (m->fallocate)
        obstacle(&o, "no space can be allocated there: %s", report_reason(m->fallocate));
    if (!m->tried && m->locks)
        obstacle(
            &o,
            "the kernel or the file system has no open file description locks (F_OFD_SETLK), by "
            "which processes see one another: %s",
            report_reason(m->locks));
    if (!m->tried && d->folder[0])
        obstacle(&o, "reflections have no place: %s", d->folder);
    if (d->domain < 0)
        obstacle(&o, "ATO_DURABILITY is none of pmem, eadr, msync, process");
    if (d->shm.error)
        obstacle(&o, "there is no /dev/shm: %s", report_reason(d->shm.error));
    else if (d->shm.tried)
        obstacle(&o,
                 "no file of 1 MiB can be made in /dev/shm, where the states of a file's pages are "
                 "kept: %s",
                 report_reason(d->shm.tried));
    return o;
}

struct obstacles diagnosis_remarks(const struct diagnosis *d)
{
    const struct medium *m = &d->medium;
    struct obstacles o = {0};
    if (m->unsafe && d->any)
        obstacle(&o, "the file system is %s" UNSAFE "; ATO_ANY_FILE_SYSTEM=1 takes it all the same",
                 m->unsafe);
    if (d->shm.vanishes)
        obstacle(
            &o,
            "systemd removes what this user has in /dev/shm when the user's last session ends "
            "(RemoveIPC in logind.conf): a process that goes on then keeps others from mapping "
            "its files. Run it as a service under a user of the system, or set RemoveIPC=no, or "
            "'loginctl enable-linger'");
    if (!m->tried && m->attributes)
        obstacle(&o, "the file system has no user attributes: a fast unmap makes the file plain, "
                     "and files with several links are refused");
    if (strcmp(m->type, "btrfs") == 0)
        obstacle(&o, "btrfs takes new space for what is overwritten, which cannot be reserved: "
                     "a full disk may be SIGBUS");
    if (!d->membarrier)
        obstacle(&o, "the kernel has no membarrier: a thread that waits for a page may be woken "
                     "10 ms late");
    if (d->wish && d->domain > 0 && !m->tried &&
        domain_weaker(d->offered, d->domain) == (enum persist_domain)d->offered &&
        d->offered != d->domain)
        obstacle(&o, "ATO_DURABILITY promises %s, the medium offers only %s", d->wish,
                 domain_name(d->offered));
    if (d->elsewhere && d->elsewhere_domain < 0 && !d->folder[0])
        obstacle(&o, "no file can be made in the folder that ATO_REFLECTION_DIR names now");
    return o;
}
