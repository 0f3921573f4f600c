/* SPDX-License-Identifier: BSD-3-Clause */
#include "reflection/media/domain.h"

#include "reflection/media/report.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/vfs.h>
#include <unistd.h>

static const char *const names[] = {"auto", "pmem", "eadr", "disk", "process"};

int domain_has_auto_flush(void)
{
    static const char place[] = "/sys/bus/nd/devices";
    char path[NAME_MAX + sizeof(place) + 32], is[32];
    DIR *all = opendir(place);
    int has = all ? 0 : -(errno != ENOENT);
    for (const struct dirent *e; all && (e = readdir(all));) {
        if (strncmp(e->d_name, "region", 6) != 0)
            continue;
        (void)snprintf(path, sizeof(path), "%s/%s/persistence_domain", place, e->d_name);
        const int fd CLOSING = open(path, O_RDONLY | O_CLOEXEC);
        const ssize_t n = fd < 0 ? -1 : read(fd, is, sizeof(is));
        has = n >= 9 && memcmp(is, "cpu_cache", 9) == 0;
        if (!has)
            break;
    }
    if (all)
        closedir(all);
    return has;
}

enum persist_domain domain_of(int fd)
{
    if (domain_is_memory(fd) == 1)
        return PERSIST_PROCESS;
    void *try = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED_VALIDATE | MAP_SYNC, fd, 0);
    if (try == MAP_FAILED)
        return PERSIST_DISK;
    munmap(try, 4096);
    return domain_has_auto_flush() == 1 ? PERSIST_EADR : PERSIST_PMEM;
}

int domain_is_memory(int fd)
{
    struct statfs fs;
    if (fstatfs(fd, &fs) < 0)
        return -1;
    return fs.f_type == TMPFS_MAGIC || fs.f_type == RAMFS_MAGIC;
}

const char *domain_refused(int fd)
{
    /* Not all are in linux/magic.h. */
    static const struct {
        uint32_t type;
        const char *name;
    } refused[] = {
        {NFS_SUPER_MAGIC, "NFS"},
        {SMB_SUPER_MAGIC, "SMB"},
        {CIFS_SUPER_MAGIC, "SMB"},
        {SMB2_SUPER_MAGIC, "SMB"},
        {V9FS_MAGIC, "9p"},
        {FUSE_SUPER_MAGIC, "FUSE"},
        {CEPH_SUPER_MAGIC, "Ceph"},
        {AFS_SUPER_MAGIC, "AFS"},
        {AFS_FS_MAGIC, "AFS"},
        {CODA_SUPER_MAGIC, "Coda"},
        {0x564c, "NCP"},
        {0x0bd00bd0, "Lustre"},
        {0x47504653, "GPFS"},
        {OCFS2_SUPER_MAGIC, "OCFS2"},
        {0x01161970, "GFS2"},
        {0x19830326, "BeeGFS"},
        {0x20030528, "OrangeFS"},
        {0xaad7aaea, "PanFS"},
        {0x786f4256, "vboxsf"},
        {0xbacbacbc, "vmhgfs"},
    };
    struct statfs fs;
    if (fstatfs(fd, &fs) < 0)
        return NULL;
    for (unsigned i = 0; i < sizeof(refused) / sizeof(refused[0]); i++)
        if ((uint32_t)fs.f_type == refused[i].type)
            return refused[i].name;
    return NULL;
}

enum persist_domain domain_weaker(enum persist_domain a, enum persist_domain b)
{
    const enum persist_domain weaker = a > b ? a : b; /* their numbers have that order */
    /* Except that pmem's protocol is right on an eADR machine, and not vice versa. */
    return weaker == PERSIST_EADR && a != b ? PERSIST_PMEM : weaker;
}

const char *domain_name(int domain)
{
    return domain >= 0 && domain <= PERSIST_PROCESS ? names[domain] : NULL;
}

int domain_check(enum persist_domain is, int wished, const char *path)
{
    if (wished == PERSIST_AUTO || wished == (int)is)
        return 0;
    return report_error(EXDEV,
                        "%s is in domain %s, in which it is or was mapped: it cannot be mapped in "
                        "domain %s",
                        path, domain_name((int)is), domain_name(wished));
}

int domain_from_name(const char *name)
{
    if (!name || !*name)
        return PERSIST_AUTO;
    for (int d = PERSIST_PMEM; d <= PERSIST_PROCESS; d++)
        if (strcmp(name, names[d]) == 0)
            return d;
    return report_error(EINVAL, "ATO_DURABILITY '%.40s' is none of pmem, eadr, disk, process",
                        name);
}

void *domain_map_with(enum persist_domain domain, int flags, void *at, size_t n, int prot, int fd,
                      off_t offset)
{
    void *view = MAP_FAILED;
    errno = EINVAL;
    if (fd < 0)
        view = mmap(at, n, prot, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | flags, -1, 0);
    else if (domain == PERSIST_PMEM || domain == PERSIST_EADR)
        view = mmap(at, n, prot, MAP_SHARED_VALIDATE | MAP_SYNC | flags, fd, offset);
    /* Otherwise the caller chose this domain for a medium of another kind. */
    if (fd >= 0 && view == MAP_FAILED && (errno == EOPNOTSUPP || errno == EINVAL))
        view = mmap(at, n, prot, MAP_SHARED | flags, fd, offset);
    if (view != MAP_FAILED)
        madvise(view, n, MADV_DONTFORK);
    return view;
}

void *domain_map(enum persist_domain domain, void *at, size_t n, int prot, int fd, off_t offset)
{
    return domain_map_with(domain, at ? MAP_FIXED : 0, at, n, prot, fd, offset);
}

int domain_make_storable(enum persist_domain domain, void *at, size_t n)
{
    if (!domain_is_cached(domain) || madvise(at, n, MADV_POPULATE_WRITE) == 0 || errno != EFAULT)
        return 0;
    errno = ENOSPC;
    return -1;
}
