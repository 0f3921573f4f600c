/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The processes that have a file mapped: the slots whose byte of the manifest is locked, and their
 * names.
 *
 * The lock shows, in every pid namespace, that the process lives, but not its pid: an open file
 * description lock has no owner process. The pid is in the shared memory. It is used if that
 * process has the manifest open, or if this cannot be found out.
 */
#include "look.h"

#include "json.h"

#include "lib/file/shared.h"
#include "reflection/media/locks.h"
#include "reflection/media/report.h"
#include "reflection/pairing/pairing.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

int look_shared(const struct manifest_record *record, struct shared_header *h)
{
    char name[64];
    struct stat st;
    shared_name(name, record->id, record->shm_generation);
    int fd = shm_open(name, O_RDONLY | O_NONBLOCK | O_CLOEXEC, 0);
    if (fd < 0 || (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) &&
                   pread(fd, h, sizeof(*h), 0) == (ssize_t)sizeof(*h) && h->magic == SHARED_MAGIC &&
                   h->version == SHARED_VERSION && memcmp(h->id, record->id, 16) == 0 &&
                   h->generation == record->shm_generation))
        return fd;
    close(fd);
    return -1;
}

/* Returns true if it is known that process `pid` has the file open. */
static bool has_open(uint32_t pid, const struct stat *file)
{
    char path[64];
    struct dirent *entry;
    struct stat st;
    bool found = false;
    snprintf(path, sizeof(path), "/proc/%u/fd", pid);
    DIR *dir = opendir(path);
    while (dir && !found && (entry = readdir(dir)))
        found = fstatat(dirfd(dir), entry->d_name, &st, 0) == 0 && st.st_ino == file->st_ino &&
                st.st_dev == file->st_dev;
    if (dir)
        closedir(dir);
    return found;
}

void look_holder_find(struct look_holder *h, uint32_t pid, const struct stat *opened)
{
    char path[64];
    /* The pid may be of another pid namespace, and name another process here. */
    if (pid == 0 || !has_open(pid, opened))
        return;
    snprintf(path, sizeof(path), "/proc/%u/comm", pid);
    const int fd CLOSING = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, h->command, sizeof(h->command) - 1) : -1;
    if (n <= 0)
        return;
    if (h->command[n - 1] == '\n')
        h->command[n - 1] = '\0';
    h->pid = pid;
}

/* Finds the next locked range within [start, end). Returns 1; 0 if there is none; -1 on error. */
static int next_locked(int fd, off_t *start, off_t *after, off_t end)
{
    off_t first = end;
    /* The kernel reports any one lock: there may be others before it. */
    while (first > *start) {
        struct flock l = {
            .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = *start, .l_len = first - *start};
        if (fcntl(fd, F_OFD_GETLK, &l) < 0)
            return report_errno(errno, "cannot ask for the locks of a manifest");
        if (l.l_type == F_UNLCK)
            break;
        *after = l.l_len == 0 || l.l_start + l.l_len > end ? end : l.l_start + l.l_len;
        first = l.l_start > *start ? l.l_start : *start;
    }
    if (first == end)
        return 0;
    *start = first;
    return 1;
}

int look_holders(const struct look_manifest *m, struct look_holders *h)
{
    struct stat st;
    off_t at = 0, after = 0;
    memset(h, 0, sizeof(*h));
    int locked = next_locked(m->fd, &at, &after, 1);
    if (locked < 0 || fstat(m->fd, &st) < 0)
        return -1;
    h->attaching = locked;
    static struct shared_slot slots[MANIFEST_SLOTS];
    struct shared_header header;
    const int fd CLOSING = m->found == MANIFEST_VALID ? look_shared(&m->record, &header) : -1;
    const bool known =
        fd >= 0 && pread(fd, slots, sizeof(slots), SHARED_SLOTS_AT) == (ssize_t)sizeof(slots);
    for (at = 1; (locked = next_locked(m->fd, &at, &after, 1 + MANIFEST_SLOTS)) == 1; at = after) {
        /* A process that attaches tries to lock all slots together, for a moment. */
        if (after - at == MANIFEST_SLOTS) {
            h->attaching = true;
            continue;
        }
        for (; at < after; at++) {
            if (h->count < LOOK_HOLDERS) {
                struct look_holder *next = &h->first[h->count];
                next->slot = (unsigned)(at - 1);
                if (known && slots[next->slot].state != SLOT_FREE)
                    look_holder_find(next, slots[next->slot].pid, &st);
            }
            h->count++;
        }
    }
    /* The readers' byte is also locked for a moment by the first process that attaches. */
    at = PAIRING_READERS;
    int watched = locked < 0 ? 0 : next_locked(m->fd, &at, &after, PAIRING_READERS + 1);
    h->readers = watched == 1 && !h->attaching;
    return locked < 0 || watched < 0 ? -1 : 0;
}

const char *look_holder_name(char to[LOOK_NAME], const struct look_holder *h)
{
    if (h->pid)
        snprintf(to, LOOK_NAME, "pid %u (%s)", h->pid, h->command);
    else
        snprintf(to, LOOK_NAME, "a process that cannot be named");
    return to;
}

void look_holder_write(const struct look_holder *h, struct json *j)
{
    json_number(j, "slot", h->slot);
    json_known(j, "pid", h->pid, h->pid);
    json_string(j, "command", h->pid ? h->command : NULL);
}

void look_holders_write(const struct look_holders *h, struct json *j)
{
    json_list(j, "mapped_by");
    for (unsigned i = 0; i < h->count && i < LOOK_HOLDERS; i++) {
        json_object(j, NULL);
        look_holder_write(&h->first[i], j);
        json_end(j);
    }
    json_end(j);
}
