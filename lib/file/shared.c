/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/file/shared.h"

#include "reflection/format/layout.h"
#include "reflection/media/fsops.h"
#include "reflection/media/locks.h"
#include "reflection/media/report.h"
#include "reflection/pairing/identity.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

enum { GROUPS_IN_BATCH = 256 };

/* The least capacity: files of up to a TiB can be mapped. It costs address space only. */
#define CAPACITY_MIN (1ull << 40)

enum { TABLE_NAME = 72 };

/* The name of the object with the table of snapshots. */
static const char *table_name(char to[TABLE_NAME], const struct shared *s)
{
    snprintf(to, TABLE_NAME, "%s-s", s->name);
    return to;
}

int shared_unlink(const struct shared *s, const struct shared_header *h)
{
    char table[TABLE_NAME];
    if (__atomic_load_n(&h->undo.most, __ATOMIC_RELAXED)) /* set before there is a table */
        (void)fsops->shm_unlink(table_name(table, s));
    return fsops->shm_unlink(s->name);
}

int shared_allocate_object(int fd, const char *name, uint64_t at, uint64_t n, const char *what)
{
    struct rlimit limit;
    /* The kernel counts shared memory as files, and kills with SIGXFSZ. */
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && at + n > limit.rlim_cur)
        return report_error(EFBIG,
                            "no shared memory for %s (/dev/shm%s): it ends at %llu bytes, which "
                            "this process's limit on the size of files (RLIMIT_FSIZE) forbids",
                            what, name, (unsigned long long)(at + n));
    return fsops->fallocate(fd, 0, (off_t)at, (off_t)n) == 0
               ? 0
               : report_errno(errno, "no shared memory for %s (/dev/shm%s)", what, name);
}

int shared_allocate(struct shared *s, uint64_t at, uint64_t n, const char *what)
{
    return shared_allocate_object(s->fd, s->name, at, n, what);
}

void shared_name(char name[64], const uint8_t id[16], uint64_t generation)
{
    char hex[33];
    identity_hex(id, hex);
    snprintf(name, 64, "/ato-%s-%llx", hex, (unsigned long long)generation);
}

/* The end of what is allocated when the object is made. */
static uint64_t ready_end(uint64_t capacity_pages)
{
    return SHARED_READY_AT + capacity_pages / SHARED_BATCH_PAGES;
}

static uint64_t groups_behind(uint64_t capacity_pages)
{
    return (SHARED_DIRECTORY_AT + capacity_pages / GROUP_PAGES * 4 + 4095) & ~4095ull;
}

unsigned shared_index_bits(uint64_t places)
{
    unsigned bits = 4;
    while (1ull << bits < places + places / 4)
        bits++;
    return bits;
}

/* What is mapped at first: the directory of so many pages, 1 GiB, as most files need, and so many bytes of states. */
#define FIRST_PAGES  (1ull << 18)
#define FIRST_STATES (1ull << 20)

uint64_t shared_undo_at(const struct shared *s)
{
    return (s->places_at + s->capacity * sizeof(uint32_t) +
            (8ull << shared_index_bits(LAYOUT_PLACES)) + 4095) &
           ~4095ull;
}

/* Opens one of the object's windows, at an offset in it. */
static int open_window(const struct shared *s, struct window *w, uint64_t at, uint64_t bytes,
                       uint64_t room, int prot, struct fault_target *faults)
{
    *w = (struct window){.domain = PERSIST_PROCESS, .fd = s->fd, .prot = prot, .at = at};
    return window_open(w, bytes, room, faults) == 0
               ? 0
               : window_no_room(errno, bytes, "the shared memory /dev/shm", s->name);
}

static int map_object(struct shared *s, uint64_t capacity_pages, uint32_t format, int prot,
                      struct fault_target *faults)
{
    const uint64_t states = capacity_pages * sizeof(struct page_state),
                   places = capacity_pages * sizeof(uint32_t),
                   placed = places + (8ull << shared_index_bits(LAYOUT_PLACES));
    s->capacity = capacity_pages;
    s->groups_at = groups_behind(capacity_pages);
    s->places_at = s->groups_at + states;
    s->pages = capacity_pages < FIRST_PAGES ? capacity_pages : FIRST_PAGES;
    if (open_window(s, &s->head, 0, SHARED_DIRECTORY_AT + s->pages / GROUP_PAGES * 4, s->groups_at,
                    prot, faults) < 0 ||
        open_window(s, &s->states, s->groups_at, FIRST_STATES, states, prot, faults) < 0 ||
        (format == LAYOUT_SPARSE &&
         open_window(s, &s->placed, s->places_at, placed, placed, prot, faults) < 0))
        return -1;
    /* For shared_is_used(). A mapping keeps the lock too, so none may get into a forked child (window.c). */
    (void)locks_try(s->fd, F_RDLCK, 0, 1);
    char *base = s->head.base;
    s->header = (struct shared_header *)base;
    s->slots = (struct shared_slot *)(base + SHARED_SLOTS_AT);
    s->ready = (uint8_t *)(base + SHARED_READY_AT);
    s->threads = (struct shared_thread *)(base + SHARED_THREADS_AT);
    s->directory = (uint32_t *)(base + SHARED_DIRECTORY_AT);
    s->groups = (struct page_group *)s->states.base;
    s->mapped = FIRST_STATES / sizeof(struct page_group);
    if (s->placed.base) {
        s->places = (uint32_t *)s->placed.base;
        s->index = (uint64_t *)(s->placed.base + places);
        s->index_bits = __atomic_load_n(&s->header->index_bits, __ATOMIC_RELAXED);
        if (s->index_bits > shared_index_bits(LAYOUT_PLACES)) /* it was checked, and may change */
            s->index_bits = 0;
    }
    s->faults = faults;
    fault_poisons(faults, &s->header->poisoned, !(prot & PROT_WRITE));
    return 0;
}

int shared_reach(struct shared *s, uint64_t pages)
{
    const uint64_t bytes = SHARED_DIRECTORY_AT + pages / GROUP_PAGES * 4 + 4;
    if (pages <= __atomic_load_n(&s->pages, __ATOMIC_ACQUIRE))
        return 0;
    if (window_reach(&s->head, bytes < s->groups_at ? bytes : s->groups_at) < 0)
        return window_no_room(errno, bytes, "the shared memory /dev/shm", s->name);
    __atomic_store_n(&s->pages, pages, __ATOMIC_RELEASE);
    return 0;
}

/* Maps the group with this index, one of those that were handed out. Returns 0; -1 with a sentence. */
static int reach_group(struct shared *s, uint32_t index)
{
    const uint64_t bytes = (index + 1ull) * sizeof(struct page_group);
    if (index >= s->capacity / GROUP_PAGES)
        return report_error(EUCLEAN, "the shared memory /dev/shm%s is damaged", s->name);
    const uint64_t twice = 2 * bytes < s->states.room ? 2 * bytes : s->states.room;
    if (index >= __atomic_load_n(&s->mapped, __ATOMIC_ACQUIRE) &&
        window_reach(&s->states, twice) < 0 && window_reach(&s->states, bytes) < 0)
        return window_no_room(errno, bytes, "the shared memory /dev/shm", s->name);
    /* Another thread may have gone further, and store its larger number first: then the next access to such a group comes here again. */
    __atomic_store_n(
        &s->mapped,
        (uint32_t)(__atomic_load_n(&s->states.bytes, __ATOMIC_ACQUIRE) / sizeof(struct page_group)),
        __ATOMIC_RELEASE);
    return 0;
}

int shared_reach_all(struct shared *s)
{
    uint64_t batch = s->capacity / SHARED_BATCH_PAGES;
    const uint64_t handed_out = __atomic_load_n(&s->header->next_group, __ATOMIC_RELAXED);
    while (batch > 0 && !__atomic_load_n(&s->ready[batch - 1], __ATOMIC_ACQUIRE))
        batch--;
    return shared_reach(s, batch * SHARED_BATCH_PAGES) < 0 ||
                   (handed_out && handed_out <= s->capacity / GROUP_PAGES &&
                    reach_group(s, (uint32_t)handed_out - 1) < 0)
               ? -1
               : 0;
}

struct page_state *shared_look_further(const struct shared *s, uint64_t page)
{
    const uint64_t group = page / GROUP_PAGES;
    const uint32_t index = __atomic_load_n(&s->ready[group / SHARED_BATCH], __ATOMIC_ACQUIRE)
                               ? __atomic_load_n(&s->directory[group], __ATOMIC_ACQUIRE)
                               : 0;
    if (!index)
        return NULL;
    /* A caller that knew of no state would take the page for one that nobody has touched. */
    if (reach_group((struct shared *)(uintptr_t)s, index - 1) < 0) {
        fault_poison_here(s->faults);
        return NULL;
    }
    return &s->groups[index - 1].pages[page % GROUP_PAGES];
}

/* Reads the header of the object that is open as s->fd. Returns 1; 0: it is no regular file, or its maker may not write to the
 * file; -1 with a sentence. */
static int read_header(const struct shared *s, const struct trust *file, struct shared_header *h,
                       struct stat *st)
{
    memset(h, 0, sizeof(*h));
    if (fstat(s->fd, st) < 0 || (S_ISREG(st->st_mode) && pread(s->fd, h, sizeof(*h), 0) < 0))
        return report_errno(errno, "cannot look at the shared memory /dev/shm%s", s->name);
    return S_ISREG(st->st_mode) && ownership_maker(file, st);
}

/* Removes the object with the name s->name, if a dead user of this very file left it, or died before it was complete. The name
 * proves nothing: a process that may write to a file may put another file's id into its manifest, to have that file's object
 * removed. In /dev/shm a user can remove only its own objects. Another user's is emptied; if it can then be given owner, group and
 * mode for all writers of the file, it stays open as s->fd, to be used anew. Returns 0, also if there is none, or it cannot be
 * removed; -1 with a sentence. */
static int remove_left(struct shared *s, const struct manifest_record *record,
                       const struct trust *file)
{
    struct shared_header h;
    struct stat st;
    s->fd = fsops->shm_open(s->name, O_RDWR | O_NONBLOCK | O_CLOEXEC, 0);
    /* It is absent, not accessible, or no file: a folder (EINVAL, by glibc), a symbolic link, a socket. */
    if (s->fd < 0)
        return errno == ENOENT || errno == EACCES || errno == EPERM || errno == EINVAL ||
                       errno == EISDIR || errno == ELOOP || errno == ENXIO
                   ? 0
                   : report_errno(errno, "cannot look at the shared memory /dev/shm%s", s->name);
    const int r = read_header(s, file, &h, &st);
    const bool left =
        r > 0 && st.st_nlink == 1 &&
        (h.magic == 0 || (h.magic == SHARED_MAGIC && h.inode == record->inode &&
                          h.device == record->device && memcmp(h.id, record->id, 16) == 0));
    if (left && shared_unlink(s, &h) < 0 && fsops->ftruncate(s->fd, 0) == 0 &&
        ownership_give(file, s->fd) == 0)
        return 0;
    KEEP_ERRNO();
    close(s->fd);
    s->fd = -1;
    return r < 0 ? -1 : 0;
}

int shared_remove(const struct manifest_record *record, const struct trust *file)
{
    struct shared s;
    shared_name(s.name, record->id, record->shm_generation);
    const int r = remove_left(&s, record, file);
    if (s.fd >= 0)
        close(s.fd);
    return r;
}

int shared_is_used(const uint8_t id[16], const struct trust *file)
{
    char name[64], path[NAME_MAX + 16];
    struct dirent **all;
    struct stat st;
    int r = 0;
    shared_name(name, id, 0);
    const size_t n = strrchr(name, '-') - name; /* "ato-<id>-", without the slash before */
    const int count = scandirat(AT_FDCWD, "/dev/shm", &all, NULL, NULL);
    if (count < 0)
        return report_errno(errno, "cannot list /dev/shm");
    for (int i = 0; i < count; i++) {
        snprintf(path, sizeof(path), "/dev/shm/%s", all[i]->d_name);
        /* I5: any user may make such a name. */
        if (r == 0 && strncmp(all[i]->d_name, name + 1, n) == 0 &&
            fstatat(AT_FDCWD, path, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode) &&
            ownership_maker(file, &st)) {
            const int fd CLOSING =
                fsops->shm_open(path + strlen("/dev/shm"), O_RDONLY | O_NONBLOCK | O_CLOEXEC, 0);
            const enum locks_answer lives = fd < 0 ? LOCKS_FAILED : locks_ask(fd, 0, 1);
            r = lives == LOCKS_FAILED && errno != ENOENT
                    ? report_errno(errno, "cannot look at the shared memory %s", path)
                    : lives == LOCKS_TAKEN;
        }
        free(all[i]);
    }
    free(all);
    return r;
}

/* Opens a new object, with one of three names. By that of the last generation and of the next one, dead processes may have left
 * objects: the last one's, and that of a process that died before the manifest named it. The object with the next name is the
 * new one. Any user that may read the file can predict that name, take it and keep it: then a random generation is used, which
 * cannot be predicted. Returns 0; -1 with a sentence. */
static int open_new(struct shared *s, const struct manifest_record *record,
                    const struct trust *file, uint64_t *generation)
{
    enum { LAST, NEXT, RANDOM };
    s->fd = -1;
    for (int name = LAST; s->fd < 0; name++) {
        if (name == NEXT)
            ++*generation;
        if (name == RANDOM && identity_random(generation, sizeof(*generation)) < 0)
            return -1;
        shared_name(s->name, record->id, *generation);
        if (remove_left(s, record, file) < 0)
            return -1;
        if (name == LAST || s->fd >= 0)
            continue;
        s->fd = fsops->shm_open(s->name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        const bool taken = s->fd < 0 && (errno == EEXIST || errno == EACCES || errno == EPERM);
        if (s->fd < 0 && (name == RANDOM || !taken))
            return report_errno(errno, "cannot make the shared memory /dev/shm%s", s->name);
    }
    return 0;
}

int shared_create(struct shared *s, const struct manifest_record *record, uint64_t *generation,
                  uint64_t capacity, uint64_t size, const struct trust *file,
                  struct fault_target *faults)
{
    memset(s, 0, sizeof(*s));
    /* The caller holds the attach lock and every slot was free: what is there belongs to dead processes. */
    if (open_new(s, record, file, generation) < 0)
        return -1;
    uint64_t pages = CAPACITY_MIN / PAGE_BYTES;
    while (pages * PAGE_BYTES < capacity)
        pages *= 2;
    /* First of all: from here on the next process can use the object anew, should this one die. */
    const int r = ownership_give(file, s->fd);
    if (r < 0)
        report_errno(errno, "cannot set the mode of /dev/shm%s", s->name);
    if (r < 0 || shared_allocate(s, 0, ready_end(pages), "slots") < 0 ||
        map_object(s, pages, record->format, PROT_READ | PROT_WRITE, faults) < 0 ||
        shared_reach(s, layout_pages(capacity)) < 0) {
        shared_close(s, true);
        return -1;
    }
    struct shared_header *h = s->header;
    h->version = SHARED_VERSION;
    h->slots = MANIFEST_SLOTS;
    memcpy(h->id, record->id, 16);
    memcpy(h->boot_id, record->boot_id, 16);
    h->generation = *generation;
    h->capacity = pages;
    h->groups_at = groups_behind(pages);
    h->size = size;
    h->cut = UINT64_MAX;
    h->domain = record->domain;
    h->format = record->format;
    h->inode = record->inode;
    h->device = record->device;
    h->sizing.version = 1;
    h->undo.begun = h->undo.shown = h->undo.moment = UNDO_FIRST;
    __atomic_store_n(&h->magic, SHARED_MAGIC, __ATOMIC_RELEASE);
    return 0;
}

/* Checks the header of an object. I5: its makers may write to the file, but it may be any file with that name. */
static bool is_object_of(const struct shared_header *h, const struct manifest_record *record)
{
    return h->magic == SHARED_MAGIC && h->version == SHARED_VERSION && h->slots == MANIFEST_SLOTS &&
           memcmp(h->id, record->id, 16) == 0 && memcmp(h->boot_id, record->boot_id, 16) == 0 &&
           h->generation == record->shm_generation && h->inode == record->inode &&
           h->domain == record->domain && h->format == record->format &&
           h->index_bits <= shared_index_bits(LAYOUT_PLACES) && h->capacity >= SHARED_BATCH_PAGES &&
           h->capacity <= SHARED_CAPACITY_MAX && (h->capacity & (h->capacity - 1)) == 0 &&
           h->groups_at == groups_behind(h->capacity);
}

int shared_join(struct shared *s, const struct manifest_record *record, const struct trust *file,
                const char *path, int access, struct fault_target *faults)
{
    const int prot = access == O_RDWR ? PROT_READ | PROT_WRITE : PROT_READ;
    struct shared_header h;
    struct stat st;
    memset(s, 0, sizeof(*s));
    shared_name(s->name, record->id, record->shm_generation);
    s->fd = fsops->shm_open(s->name, access | O_NONBLOCK | O_CLOEXEC, 0);
    if (s->fd < 0 && errno != ENOENT)
        return report_errno(errno, "cannot open the shared memory /dev/shm%s", s->name);
    int r = s->fd < 0 ? PAIRING_NOT_YET : read_header(s, file, &h, &st);
    if (r == 0)
        r = report_error(EACCES,
                         "the shared memory /dev/shm%s is of user %u, which may not write to %s",
                         s->name, (unsigned)st.st_uid, path);
    else if (r == 1 && is_object_of(&h, record) && (uint64_t)st.st_size >= ready_end(h.capacity))
        r = map_object(s, h.capacity, record->format, prot, faults);
    else if (r > 0) {
        report_quietly(
            EBUSY,
            "%s is mapped by another process, and its shared memory /dev/shm%s is not "
            "here, or another one has this name: that process is just ending, or the two "
            "have different ones, as in containers: let these share one /dev/shm (as "
            "docker's --ipc=shareable and --ipc=container:NAME, or a common volume)",
            path, s->name);
        r = PAIRING_NOT_YET;
    }
    if (r != 0)
        shared_close(s, false);
    return r;
}

bool shared_is_cut(const struct shared *s)
{
    struct stat st;
    if (s->fd < 0 || fstat(s->fd, &st) < 0)
        return false;
    const uint64_t groups = __atomic_load_n(&s->header->groups_allocated, __ATOMIC_RELAXED);
    return (uint64_t)st.st_size < ready_end(s->capacity) ||
           (groups <= s->capacity / GROUP_PAGES &&
            (uint64_t)st.st_size < s->groups_at + groups * sizeof(struct page_group));
}

void shared_close(struct shared *s, bool remove)
{
    KEEP_ERRNO();
    if (remove && s->fd >= 0 &&
        (s->header ? shared_unlink(s, s->header) : fsops->shm_unlink(s->name)) < 0) {
        report_log(REPORT_WARNING, "cannot remove the shared memory /dev/shm%s", s->name);
        (void)fsops->ftruncate(s->fd, 0); /* its memory at least */
    }
    if (s->faults)
        s->faults->poisoned = NULL;
    window_close(&s->head);
    window_close(&s->states);
    window_close(&s->placed);
    window_close(&s->undo);
    if (s->table.base)
        close(s->table_fd);
    window_close(&s->table);
    if (s->fd >= 0)
        close(s->fd);
    memset(s, 0, sizeof(*s));
    s->fd = -1;
}

/* A new table takes the place of what has its name: nobody uses it before `numbered` is set. */
static int make_table(const char *name, const struct trust *file, uint64_t bytes)
{
    struct trust all = *file;
    (void)fsops->shm_unlink(name);
    const int fd = fsops->shm_open(name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0)
        return report_errno(errno, "cannot make the shared memory /dev/shm%s", name);
    all.mode |= (all.mode & 0444) >> 1;
    if (shared_allocate_object(fd, name, 0, bytes, "snapshots") == 0) {
        if (ownership_give(&all, fd) == 0)
            return fd;
        report_errno(errno, "cannot set the mode of /dev/shm%s", name);
    }
    KEEP_ERRNO();
    close(fd);
    (void)fsops->shm_unlink(name);
    return -1;
}

int shared_open_table(struct shared *s, const struct trust *file, uint64_t bytes, bool makes)
{
    char name[TABLE_NAME];
    struct stat st;
    table_name(name, s);
    const int fd = makes ? make_table(name, file, bytes)
                         : fsops->shm_open(name, O_RDWR | O_NONBLOCK | O_CLOEXEC, 0);
    if (fd < 0)
        return makes ? -1 : report_errno(errno, "cannot open the shared memory /dev/shm%s", name);
    struct window w = {.domain = PERSIST_PROCESS, .fd = fd, .prot = PROT_READ | PROT_WRITE};
    int r = -1;
    if (fstat(fd, &st) < 0)
        report_errno(errno, "cannot look at the shared memory /dev/shm%s", name);
    else if (!S_ISREG(st.st_mode) || (uint64_t)st.st_size < bytes || !ownership_maker(file, &st))
        report_error(EACCES, "the shared memory /dev/shm%s is not that of the file's snapshots",
                     name);
    else if ((r = window_open(&w, bytes, bytes, &s->table_faults)) < 0)
        window_no_room(errno, bytes, "the shared memory /dev/shm", name);
    KEEP_ERRNO();
    if (r < 0) {
        close(fd);
        if (makes)
            (void)fsops->shm_unlink(name);
        return -1;
    }
    s->table_fd = fd;
    s->table = w;
    return 0;
}

int shared_make_index(struct shared *s, uint64_t n)
{
    const unsigned bits = shared_index_bits(n);
    const uint64_t at = s->places_at + s->capacity * sizeof(uint32_t);
    if (shared_allocate(s, at, 8ull << bits, "an index of places") < 0)
        return -1;
    madvise(s->index, 8ull << bits, MADV_POPULATE_WRITE); /* all at once; older kernels cannot */
    s->header->index_bits = s->index_bits = bits;
    return 0;
}

/* Hands out a new group; UINT64_MAX with ENOSPC. Space first, so a failed try uses nothing up. If the process is
 * killed here, at most this one group is lost. */
static uint64_t new_group(struct shared *s)
{
    const uint64_t most = s->capacity / GROUP_PAGES;
    uint64_t have = __atomic_load_n(&s->header->groups_allocated, __ATOMIC_ACQUIRE);
    uint64_t index = __atomic_load_n(&s->header->next_group, __ATOMIC_RELAXED);
    do {
        if (index >= most) {
            report_error(ENOSPC, "the shared memory /dev/shm%s is used up", s->name);
            return UINT64_MAX;
        }
        while (index >= have) {
            /* Idempotent, so racing callers need no lock, in other processes too. */
            enum { PAGES = GROUPS_IN_BATCH * GROUP_PAGES };
            const uint64_t page = have * GROUP_PAGES;
            if (shared_allocate(s, s->groups_at + page * sizeof(struct page_state),
                                PAGES * sizeof(struct page_state), "page states") < 0 ||
                (s->places && shared_allocate(s, s->places_at + page * sizeof(uint32_t),
                                              PAGES * sizeof(uint32_t), "places of pages") < 0))
                return UINT64_MAX;
            if (__atomic_compare_exchange_n(&s->header->groups_allocated, &have,
                                            have + GROUPS_IN_BATCH, false, __ATOMIC_ACQ_REL,
                                            __ATOMIC_ACQUIRE))
                have += GROUPS_IN_BATCH;
        }
    } while (!__atomic_compare_exchange_n(&s->header->next_group, &index, index + 1, false,
                                          __ATOMIC_ACQ_REL, __ATOMIC_RELAXED));
    return index;
}

struct page_state *shared_make_state(struct shared *s, uint64_t page)
{
    uint64_t group = page / GROUP_PAGES, batch = group / SHARED_BATCH;
    if (!__atomic_load_n(&s->ready[batch], __ATOMIC_ACQUIRE)) {
        if (shared_allocate(s, SHARED_DIRECTORY_AT + batch * SHARED_BATCH * 4, SHARED_BATCH * 4ull,
                            "a directory of page states") < 0)
            return NULL;
        __atomic_store_n(&s->ready[batch], 1, __ATOMIC_RELEASE);
    }
    uint32_t index = __atomic_load_n(&s->directory[group], __ATOMIC_ACQUIRE);
    if (!index) {
        uint64_t made = new_group(s);
        if (made == UINT64_MAX)
            return NULL;
        /* A thread that loses this race wastes 128 bytes. Release: pairs with shared_peek(). */
        if (__atomic_compare_exchange_n(&s->directory[group], &index, (uint32_t)made + 1, false,
                                        __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
            index = (uint32_t)made + 1;
    }
    return reach_group(s, index - 1) < 0 ? NULL : &s->groups[index - 1].pages[page % GROUP_PAGES];
}

struct page_state *shared_next_state(struct shared *s, uint64_t *page, uint64_t end)
{
    const uint64_t pages = __atomic_load_n(&s->pages, __ATOMIC_ACQUIRE);
    if (end > pages)
        end = pages;
    while (*page < end) {
        const bool ready = __atomic_load_n(&s->ready[*page / SHARED_BATCH_PAGES], __ATOMIC_ACQUIRE);
        const uint64_t step = ready ? GROUP_PAGES : SHARED_BATCH_PAGES;
        struct page_state *found = shared_peek(s, (*page)++);
        if (found)
            return found;
        *page = ((*page - 1) / step + 1) * step;
    }
    return NULL;
}
