/* SPDX-License-Identifier: BSD-3-Clause */
#include "shared.h"

#include "../reflection/fsops.h"
#include "../reflection/identity.h"
#include "../reflection/layout.h"
#include "../reflection/report.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    SLOTS_AT = 4096,
    DIRECTORY_AT = SLOTS_AT + MANIFEST_SLOTS * sizeof(struct shared_slot),
    GROUPS_IN_BATCH = 256,
};

/* Room for growth in address space only: files up to a TiB can be mapped beside a small one. */
#define CAPACITY_MIN (1ull << 40)

static int allocate(struct shared *s, uint64_t at, uint64_t n, const char *what)
{
    if (fsops->fallocate(s->fd, 0, (off_t)at, (off_t)n) < 0)
        return report_errno(errno, "no shared memory for %s (/dev/shm%s)", what, s->name);
    return 0;
}

static void shared_name(char name[64], const uint8_t id[16], uint64_t generation)
{
    char hex[33];
    identity_hex(id, hex);
    snprintf(name, 64, "/ato-%s-%llx", hex, (unsigned long long)generation);
}

static int map_object(struct shared *s, uint64_t capacity_pages, uint64_t groups_at)
{
    s->capacity = capacity_pages;
    s->mapped = groups_at + capacity_pages / GROUP_PAGES * sizeof(struct page_group);
    s->base = mmap(NULL, s->mapped, PROT_READ | PROT_WRITE, MAP_SHARED, s->fd, 0);
    if (s->base == MAP_FAILED) {
        s->base = NULL;
        return report_errno(errno, "cannot map the shared memory /dev/shm%s", s->name);
    }
    madvise(s->base, s->mapped, MADV_DONTFORK);
    madvise(s->base, s->mapped, MADV_DONTDUMP);
    s->header = (struct shared_header *)s->base;
    s->slots = (struct shared_slot *)(s->base + SLOTS_AT);
    s->directory = (uint32_t *)(s->base + DIRECTORY_AT);
    s->groups = (struct page_group *)(s->base + groups_at);
    s->last_group = (uint32_t)(capacity_pages / GROUP_PAGES) - 1;
    s->ready = calloc(capacity_pages / GROUP_PAGES / SHARED_BATCH + 1, 1);
    if (!s->ready)
        return report_error(ENOMEM, "no memory to map a file");
    return 0;
}

/* Is this an object that a dead user of this very file left? 1, 0; -1 with a sentence. Its name says nothing:
 * who may write to a file may put the id of another's into its manifest, and have that one's object
 * removed. */
static int is_left(const char *name, const struct manifest_record *record, const struct trust *file)
{
    struct shared_header h;
    struct stat st;
    int fd = fsops->shm_open(name, O_RDONLY | O_NONBLOCK | O_CLOEXEC, 0);
    if (fd < 0) /* not there, or not for us */
        return errno == ENOENT || errno == EACCES
                   ? 0
                   : report_errno(errno, "cannot look at the shared memory /dev/shm%s", name);
    memset(&h, 0, sizeof(h));
    int result;
    if (fstat(fd, &st) < 0 || (S_ISREG(st.st_mode) && pread(fd, &h, sizeof(h), 0) < 0))
        result = report_errno(errno, "cannot look at the shared memory /dev/shm%s", name);
    else if (!S_ISREG(st.st_mode) || !trust_maker(file, &st))
        result = 0;
    else /* its maker may have died before he wrote anything */
        result =
            h.magic != SHARED_MAGIC || (h.inode == record->inode && h.device == record->device &&
                                        memcmp(h.id, record->id, 16) == 0);
    int saved = errno;
    close(fd);
    errno = saved;
    return result;
}

/* Removes such an object. 1, 0: it is somebody else's, or cannot be removed; -1 with a sentence. */
static int remove_left(const char *name, const struct manifest_record *record,
                       const struct trust *file)
{
    int left = is_left(name, record, file);
    return left == 1 ? fsops->shm_unlink(name) == 0 : left;
}

/* Opens a new object; its name follows from the generation. */
static int open_new(struct shared *s, const uint8_t id[16], uint64_t generation)
{
    shared_name(s->name, id, generation);
    s->fd = fsops->shm_open(s->name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    return s->fd;
}

/* The generation that follows, so that one who died before it was in the manifest is found and cleared
 * away. Anybody who may read the file can tell that name beforehand and take it, and keep what is his:
 * then one that nobody can tell. */
static int open_next(struct shared *s, const struct manifest_record *record,
                     const struct trust *file, uint64_t *generation)
{
    const uint8_t *id = record->id;
    if (open_new(s, id, ++*generation) >= 0)
        return 0;
    int err = errno;
    if (err == EEXIST) {
        int removed = remove_left(s->name, record, file);
        if (removed < 0)
            return -1;
        if (removed && open_new(s, id, *generation) >= 0)
            return 0;
    }
    if (err == EEXIST || err == EACCES || err == EPERM) {
        if (identity_random(generation, sizeof(*generation)) < 0)
            return -1;
        if (open_new(s, id, *generation) >= 0)
            return 0;
        err = errno;
    }
    return report_errno(err, "cannot make the shared memory /dev/shm%s", s->name);
}

int shared_create(struct shared *s, const struct manifest_record *record, uint64_t *generation,
                  uint64_t capacity, uint64_t size, uid_t owner, gid_t group, mode_t mode)
{
    memset(s, 0, sizeof(*s));
    /* We hold the attach lock and every slot was free: what is there belongs to the dead. Another
     * user's may not be ours to remove; the new one has another name, and the old one is litter. */
    const struct trust file = {owner, group, mode};
    char old[sizeof(s->name)];
    shared_name(old, record->id, *generation);
    s->fd = -1;
    int removed = remove_left(old, record, &file);
    if (removed < 0 || open_next(s, record, &file, generation) < 0)
        return -1;
    if (!removed) /* once more: afterwards nobody knows the name */
        (void)remove_left(old, record, &file);
    if (capacity < CAPACITY_MIN)
        capacity = CAPACITY_MIN;
    uint64_t pages = GROUP_PAGES * SHARED_BATCH;
    while (pages * PAGE_BYTES < capacity)
        pages *= 2;
    uint64_t groups_at = DIRECTORY_AT + pages / GROUP_PAGES * 4;
    groups_at = (groups_at + 4095) & ~4095ull;
    if (allocate(s, 0, DIRECTORY_AT, "slots") < 0 || map_object(s, pages, groups_at) < 0)
        goto fail;
    if (trust_give(&file, s->fd) < 0) {
        report_errno(errno, "cannot set the mode of /dev/shm%s", s->name);
        goto fail;
    }
    struct shared_header *h = s->header;
    h->version = SHARED_VERSION;
    h->slots = MANIFEST_SLOTS;
    memcpy(h->id, record->id, 16);
    memcpy(h->boot_id, record->boot_id, 16);
    h->generation = *generation;
    h->capacity = pages;
    h->groups_at = groups_at;
    h->size = size;
    h->cut = h->gone = UINT64_MAX;
    h->domain = record->domain;
    h->inode = record->inode;
    h->device = record->device;
    h->sizing.version = 1;
    __atomic_store_n(&h->magic, SHARED_MAGIC, __ATOMIC_RELEASE);
    return 0;
fail:;
    int saved = errno;
    shared_close(s, true);
    errno = saved;
    return -1;
}

bool shared_close(struct shared *s, bool remove)
{
    bool removed = !remove || s->fd < 0 || fsops->shm_unlink(s->name) == 0;
    if (!removed)
        report_log(REPORT_WARNING, "cannot remove the shared memory /dev/shm%s", s->name);
    if (s->base)
        munmap(s->base, s->mapped);
    if (s->fd >= 0)
        close(s->fd);
    free(s->ready);
    memset(s, 0, sizeof(*s));
    s->fd = -1;
    return removed;
}

/* Hands a new group out; UINT64_MAX with ENOSPC. Space first, so that a failed try uses nothing up.
 * Killing its caller anywhere loses at most this one group. */
static uint64_t new_group(struct shared *s)
{
    const uint64_t most = s->capacity / GROUP_PAGES;
    uint64_t have = __atomic_load_n(&s->header->groups_allocated, __ATOMIC_ACQUIRE);
    uint64_t index = __atomic_load_n(&s->header->next_group, __ATOMIC_RELAXED);
    for (;;) {
        if (index < have && index < most) {
            if (__atomic_compare_exchange_n(&s->header->next_group, &index, index + 1, false,
                                            __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
                return index;
            continue;
        }
        if (have >= most || index >= most) {
            report_error(ENOSPC, "the shared memory /dev/shm%s is used up", s->name);
            return UINT64_MAX;
        }
        /* Idempotent, so that racing callers, in other processes too, need no lock. */
        uint64_t at = (uint64_t)((char *)s->groups - s->base) + have * sizeof(struct page_group);
        if (allocate(s, at, GROUPS_IN_BATCH * sizeof(struct page_group), "page states") < 0)
            return UINT64_MAX;
        if (__atomic_compare_exchange_n(&s->header->groups_allocated, &have, have + GROUPS_IN_BATCH,
                                        false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
            have += GROUPS_IN_BATCH;
    }
}

struct page_state *shared_make_state(struct shared *s, uint64_t page)
{
    uint64_t group = page / GROUP_PAGES, batch = group / SHARED_BATCH;
    if (!__atomic_load_n(&s->ready[batch], __ATOMIC_ACQUIRE)) {
        if (allocate(s, DIRECTORY_AT + batch * SHARED_BATCH * 4, SHARED_BATCH * 4ull,
                     "a directory of page states") < 0)
            return NULL;
        __atomic_store_n(&s->ready[batch], 1, __ATOMIC_RELEASE);
    }
    uint32_t index = __atomic_load_n(&s->directory[group], __ATOMIC_ACQUIRE);
    if (!index) {
        uint64_t made = new_group(s);
        if (made == UINT64_MAX)
            return NULL;
        /* Who loses this race wastes 128 bytes. Release: pairs with shared_state(). */
        if (__atomic_compare_exchange_n(&s->directory[group], &index, (uint32_t)made + 1, false,
                                        __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
            index = (uint32_t)made + 1;
    }
    return &s->groups[(index - 1) & s->last_group].pages[page % GROUP_PAGES];
}
