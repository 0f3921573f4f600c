/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ato_shared(): memory for the processes that use a file, mapped or not, and have locks of their own on it.
 *
 * The memory is an object `/ato-<device>-<inode>-<user>` in /dev/shm, which that user has made. Each process that uses it has a write lock on
 * a byte of the file far behind its end. The number of the byte tells later processes which object it is:
 *
 *   bits 0-9    a number of its own
 *   bits 10-29  a random number, which is in the object, too
 *   bits 30-61  the user
 *   bit 62      1
 *
 * So a process finds the object that living processes use, and makes one if there are none. A process
 * in a container with a /dev/shm of its own does not find it, nor does one after somebody has removed it, or finds one with another
 * random number. Only a process that may write to the file gets such a lock: no other process can name an object.
 */
#include "lib/api/shared.h"

#include "ato_engine.h"

#include "lib/file/shared.h"
#include "reflection/format/layout.h"
#include "reflection/media/fault.h"
#include "reflection/media/fsops.h"
#include "reflection/media/locks.h"
#include "reflection/media/report.h"
#include "reflection/pairing/identity.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { OWN_BITS = 10, RANDOM_BITS = 20, USER_AT = OWN_BITS + RANDOM_BITS };

#define FIRST_BYTE (1ll << 62)

struct object {
    int file; /* the caller's descriptor */
    struct identity identity;
    uint32_t user, random;
    size_t bytes; /* with the header */
    char name[64];
    int fd;
    char *base; /* NULL: not mapped */
};

/* A page before the object, which is this process's. */
struct before {
    struct fault_target faults; /* in the object (fault.h) */
    char name[64];              /* of the object */
};

enum { BEFORE = PAGE_BYTES };

static struct before *before(const char *base)
{
    return (struct before *)(uintptr_t)(base - BEFORE);
}

static void unmap(char *base, size_t bytes)
{
    if (!base)
        return;
    fault_unmap(base, bytes);
    (void)munmap(base - BEFORE, BEFORE);
}

void shared_memory_name(char name[64], dev_t device, ino_t inode, uid_t user)
{
    (void)snprintf(name, 64, "/ato-%jx-%ju-%u", (uintmax_t)device, (uintmax_t)inode,
                   (unsigned)user);
}

static int map(struct object *o)
{
    const int prot = PROT_READ | PROT_WRITE;
    char *all = mmap(NULL, BEFORE + o->bytes, prot, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (all == MAP_FAILED ||
        mmap(all + BEFORE, o->bytes, prot, MAP_SHARED | MAP_FIXED, o->fd, 0) == MAP_FAILED) {
        report_errno(errno, "cannot map the shared memory /dev/shm%s", o->name);
        KEEP_ERRNO();
        if (all != MAP_FAILED)
            munmap(all, BEFORE + o->bytes);
        return -1;
    }
    o->base = all + BEFORE;
    madvise(all, BEFORE + o->bytes, MADV_DONTFORK);
    madvise(all, BEFORE + o->bytes, MADV_DONTDUMP);
    fault_watch(o->base, (o->bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES,
                &before(o->base)->faults);
    memcpy(before(o->base)->name, o->name, sizeof(o->name));
    return 0;
}

/* Locks a byte that tells which object it is. */
static int tell(const struct object *o)
{
    const off_t first = FIRST_BYTE | (off_t)o->user << USER_AT | (off_t)o->random << OWN_BITS;
    enum locks_answer answer = LOCKS_TAKEN;
    for (off_t own = 0; answer == LOCKS_TAKEN && own < 1 << OWN_BITS; own++)
        answer = locks_try(o->file, F_WRLCK, first + own, 1);
    if (answer == LOCKS_MINE)
        return 0;
    return answer == LOCKS_TAKEN
               ? report_error(EBUSY,
                              "%d processes share memory for the file of descriptor %d already",
                              1 << OWN_BITS, o->file)
               : report_errno(errno, "cannot lock a byte of the file of descriptor %d", o->file);
}

/* ---- the first one ---- */

/* Makes the object anew, which dead processes of this user may have left. */
static int make(struct object *o)
{
    o->user = geteuid();
    if (identity_random(&o->random, sizeof(o->random)) < 0)
        return -1;
    o->random &= (1u << RANDOM_BITS) - 1;
    shared_memory_name(o->name, o->identity.device, o->identity.inode, o->user);
    (void)fsops->shm_unlink(o->name);
    o->fd = fsops->shm_open(o->name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (o->fd < 0)
        return report_errno(errno, "cannot make the shared memory /dev/shm%s", o->name);
    if (ownership_give(&o->identity.trust, o->fd) < 0)
        return report_errno(errno, "cannot set the mode of /dev/shm%s", o->name);
    if (shared_allocate_object(o->fd, o->name, 0, o->bytes, "ato_shared()") < 0 || map(o) < 0)
        return -1;
    struct shared_memory *h = (struct shared_memory *)o->base;
    h->random = o->random;
    h->user = o->user;
    h->device = o->identity.device;
    h->inode = o->identity.inode;
    h->bytes = o->bytes;
    __atomic_store_n(&h->magic, SHARED_MEMORY_MAGIC, __ATOMIC_RELEASE);
    return 0;
}

/* ---- those that come later ---- */

int shared_memory_find(int fd, uint32_t *user, uint32_t *random)
{
    struct flock l = {.l_type = F_RDLCK, .l_whence = SEEK_SET, .l_start = FIRST_BYTE};
    if (fcntl(fd, F_OFD_GETLK, &l) < 0)
        return report_errno(errno, "cannot ask for the locks on the file of descriptor %d", fd);
    if (l.l_type == F_UNLCK || l.l_start < FIRST_BYTE)
        return 0;
    *user = (uint32_t)(l.l_start >> USER_AT); /* without bit 62 */
    *random = (uint32_t)(l.l_start >> OWN_BITS) & ((1u << RANDOM_BITS) - 1);
    return 1;
}

int shared_memory_open(const struct identity *of, uint32_t user, uint32_t random, int access,
                       struct shared_memory *h)
{
    char name[64];
    struct stat st;
    shared_memory_name(name, of->device, of->inode, user);
    const int fd = fsops->shm_open(name, access | O_NONBLOCK | O_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && ownership_maker(&of->trust, &st) &&
        pread(fd, h, sizeof(*h), 0) == sizeof(*h) && h->magic == SHARED_MEMORY_MAGIC &&
        h->random == random && h->user == user && h->device == of->device &&
        h->inode == of->inode && (uint64_t)st.st_size >= h->bytes)
        return fd;
    close(fd);
    errno = EBUSY;
    return -1;
}

/* Asks which object it is. *is_first: no process has one. */
static int ask(struct object *o, bool *is_first)
{
    const int found = shared_memory_find(o->file, &o->user, &o->random);
    *is_first = found == 0;
    if (found == 1)
        shared_memory_name(o->name, o->identity.device, o->identity.inode, o->user);
    return found < 0 ? -1 : 0;
}

static int join(struct object *o)
{
    struct shared_memory h;
    o->fd = shared_memory_open(&o->identity, o->user, o->random, O_RDWR, &h);
    if (o->fd >= 0 && h.bytes >= o->bytes)
        return map(o);
    if (o->fd < 0 && errno != ENOENT && errno != EBUSY)
        return report_errno(errno, "cannot open the shared memory /dev/shm%s", o->name);
    return report_error(EBUSY,
                        "other processes use the file, and their shared memory /dev/shm%s is "
                        "not here, or another one has this name: they have a different "
                        "/dev/shm, as in containers (share it, for instance by --ipc), or "
                        "somebody has removed it",
                        o->name);
}

/* ---- the calls ---- */

void *ato_shared(int fd, size_t bytes)
{
    bool is_first = false;
    struct object o = {.file = fd, .fd = -1, .bytes = SHARED_MEMORY_AT + bytes};
    if (bytes - 1 >= ATO_SHARED_MAX)
        return report_null(EINVAL, "%zu bytes are not between 1 and %d", bytes, ATO_SHARED_MAX);
    const int flags = fcntl(fd, F_GETFL);
    if (flags < 0)
        return report_errno(errno, "descriptor %d", fd), NULL;
    if ((flags & O_ACCMODE) != O_RDWR)
        return report_null(EACCES, "descriptor %d is not open for reading and writing", fd);
    const bool done = identity_of(fd, &o.identity) == 0 && ask(&o, &is_first) == 0 &&
                      (is_first ? make(&o) : join(&o)) == 0 && tell(&o) == 0;
    KEEP_ERRNO();
    if (!done && is_first && o.fd >= 0)
        (void)fsops->shm_unlink(o.name);
    if (o.fd >= 0)
        close(o.fd);
    if (done)
        return o.base + SHARED_MEMORY_AT;
    unmap(o.base, o.bytes);
    return NULL;
}

int ato_shared_check(const void *memory)
{
    if (!memory)
        return report_error(EINVAL, "no memory of ato_shared() is given");
    const char *base = (const char *)memory - SHARED_MEMORY_AT;
    if (__builtin_expect(!__atomic_load_n(&before(base)->faults.met, __ATOMIC_RELAXED), 1))
        return 0;
    return report_error(EIO,
                        "another program made the memory of ato_shared() shorter, in /dev/shm: "
                        "give it back in all processes, then take it anew");
}

int ato_shared_end(int fd, void *memory, size_t bytes, int is_last)
{
    if (!memory || bytes - 1 >= ATO_SHARED_MAX)
        return report_error(EINVAL, "no memory of ato_shared() is given");
    char *base = (char *)memory - SHARED_MEMORY_AT;
    if (is_last)
        (void)fsops->shm_unlink(before(base)->name);
    unmap(base, SHARED_MEMORY_AT + bytes);
    return locks_drop(fd, FIRST_BYTE, 0) == 0
               ? 0
               : report_errno(errno, "cannot unlock the file of descriptor %d", fd);
}
