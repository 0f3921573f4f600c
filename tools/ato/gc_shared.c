/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Shared memory that killed processes left.
 *
 * Whether a process has an object open or mapped, in any container, the kernel tells by a lease for writing: it is granted only
 * if there is no other open file of the object. An object's content is worth nothing without a process that has it open. The
 * object of a file that has a manifest below the folder is looked at with the attach lock, so that no process is just beginning to map the
 * file; of another file, a process that maps it at the very moment of the lease gets EAGAIN.
 *
 * The objects of ato_shared() are named by their file's inode, which tells no folder. So they are looked at with all objects only.
 */
#include "gc.h"

#include "look.h"

#include "lib/api/shared.h"
#include "lib/file/shared.h"
#include "lib/file/undo.h"
#include "lib/sqlite/mask.h"
#include "reflection/media/fsops.h"
#include "reflection/media/locks.h"
#include "reflection/media/report.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Ends the name of the table of an object's snapshots (undo.h). */
#define TABLE "-s"

/* Reads the id of ato-<id>-<generation>, and whether it is that of a table. Returns false if it is no such name. */
static bool parse(const char *name, uint8_t id[16], bool *table)
{
    char full[64];
    unsigned long long generation;
    if (strncmp(name, "ato-", 4) != 0 || strlen(name) < 38 || name[36] != '-')
        return false;
    for (unsigned i = 0; i < 16; i++)
        if (sscanf(name + 4 + 2 * i, "%2hhx", &id[i]) != 1)
            return false;
    if (sscanf(name + 37, "%llx", &generation) != 1)
        return false;
    shared_name(full, id, generation);
    const size_t n = strlen(full + 1);
    *table = strcmp(name + (strlen(name) < n ? strlen(name) : n), TABLE) == 0;
    return strncmp(full + 1, name, n) == 0 && (*table || !name[n]);
}

/* Whether it may be a name of ato_shared(). */
static bool is_users(const char *name)
{
    unsigned long long device, inode;
    unsigned user;
    int end = 0;
    return sscanf(name, "ato-%llx-%llu-%u%n", &device, &inode, &user, &end) == 3 && !name[end];
}

static const struct gc_id *find(const struct gc *gc, const uint8_t id[16])
{
    const struct gc_id *at = gc->ids;
    while (at && memcmp(at->id, id, 16) != 0)
        at = at->next;
    return at;
}

/* Returns true if no process has the manifest's file mapped, nor is mapping it: then the attach lock is held until *lock is
 * closed. */
static bool is_unmapped(const char *manifest, int *lock)
{
    *lock = open(manifest, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (*lock < 0)
        return false;
    locks_keep(*lock);
    return locks_try(*lock, F_WRLCK, 0, 1) == LOCKS_MINE &&
           locks_ask(*lock, 1, PAIRING_LIVES) == LOCKS_FREE;
}

/* Returns whether the object that is open for writing may be removed: libato has made it, if `is_own` says so by its content, and no
 * process has it open. Else sets *why. `magic`: that it begins with; 0: it is not complete. */
static bool is_left(int fd, bool is_own, uint64_t magic, const char **why)
{
    struct stat st;
    *why = NULL;
    if (fcntl(fd, F_SETLEASE, F_WRLCK) < 0)
        *why = errno == EAGAIN ? "a process has it open"
                               : "the kernel does not tell whether a process has it open";
    /* I5: only the name says so far that it is libato's. */
    else if (fstat(fd, &st) < 0 || st.st_nlink != 1 || (magic && !is_own))
        *why = "it is not libato's, by its content";
    else if (!magic && !look_is_old(&st))
        *why = "it is less than a minute old: a process may be making it";
    return !*why;
}

/* Checks an object of ato_shared(). Returns its fate, with *why. */
static enum gc_fate judge_users(int fd, const char *name, const char **why)
{
    struct shared_memory h = {0};
    char full[64];
    const bool read = pread(fd, &h, sizeof(h), 0) >= 0;
    shared_memory_name(full, (dev_t)h.device, (ino_t)h.inode, h.user);
    if (!is_left(fd, read && h.magic == SHARED_MEMORY_MAGIC && strcmp(full + 1, name) == 0, h.magic,
                 why))
        return GC_KEPT;
    *why = "the processes that shared it are dead";
    return GC_USELESS;
}

/* Checks an object of a mapped file. Returns its fate, with *why. */
static enum gc_fate judge(int fd, const uint8_t id[16], const char *manifest, const char **why)
{
    struct shared_header h = {0};
    uint8_t boot[16];
    identity_boot(boot);
    const bool read = pread(fd, &h, sizeof(h), 0) >= 0;
    if (!is_left(fd, read && h.magic == SHARED_MAGIC && memcmp(h.id, id, 16) == 0, h.magic, why))
        return GC_KEPT;
    *why = !h.magic   ? "a process died while it made this"
           : manifest ? "its processes ended without unmapping their file"
           : memcmp(h.boot_id, boot, 16) != 0
               ? "no process has it open, and its machine was restarted since"
               : "no process has it open, and no manifest here names it: its file was removed, "
                 "replaced, or is elsewhere and not mapped";
    return GC_USELESS;
}

/* Checks a table of snapshots whose object is gone. Returns its fate, with *why. */
static enum gc_fate judge_table(int fd, const char **why)
{
    struct stat st;
    if (!is_left(fd, fstat(fd, &st) == 0 && st.st_size == UNDO_TABLE_BYTES, 1, why))
        return GC_KEPT;
    *why = "the shared memory that it belongs to is gone";
    return GC_USELESS;
}

/* id: NULL: an object of ato_shared(). A table goes with its object. */
static void look_at_object(struct gc *gc, const char *name, const uint8_t *id, bool table)
{
    const struct gc_id *known = id ? find(gc, id) : NULL;
    const char *manifest = known && known->stays ? known->manifest : NULL, *why;
    char object[NAME_MAX + 2], path[NAME_MAX + 16], beside[NAME_MAX + 18];
    enum gc_fate fate = GC_KEPT;
    struct stat st;
    int fd, lock = -1, removed = 0;
    if (!known && !gc->all_shared)
        return;
    snprintf(object, sizeof(object), "/%s", name);
    snprintf(path, sizeof(path), "/dev/shm/%s", name);
    if (lstat(path, &st) < 0 || !S_ISREG(st.st_mode))
        return; /* gone meanwhile, or a user's */
    uint64_t bytes = (uint64_t)st.st_blocks * 512;
    /* The object of a table, or the table of an object. */
    const size_t n = strlen(path);
    snprintf(beside, sizeof(beside), "%.*s%s", (int)(table ? n - strlen(TABLE) : n), path,
             table ? "" : TABLE);
    if (id && lstat(beside, &st) == 0) {
        if (table)
            return;
        bytes += (uint64_t)st.st_blocks * 512;
    }
    if (manifest && !is_unmapped(manifest, &lock)) {
        why = lock < 0 ? "this user may not lock the manifest of its file"
                       : "its file is mapped, or just being mapped";
        gc_add(gc, GC_KEPT, "shared memory", path, bytes, "%s", why);
    } else if ((fd = fsops->shm_open(object, O_RDWR | O_NONBLOCK | O_CLOEXEC, 0)) >= 0) {
        fate = table ? judge_table(fd, &why)
               : id  ? judge(fd, id, manifest, &why)
                     : judge_users(fd, name, &why);
        if (gc_wanted(gc, fate))
            removed = fsops->shm_unlink(object);
        gc_settle(gc, fate, "shared memory", path, bytes, removed, why);
        if (gc_wanted(gc, fate) && removed == 0 && id && !table)
            (void)fsops->shm_unlink(beside + strlen("/dev/shm"));
        close(fd); /* ends the lease */
    } else if (errno != ENOENT) {
        gc_add(gc, GC_KEPT, "shared memory", path, bytes, "this user may not look at it");
    }
    locks_close(lock);
}

void gc_shared(struct gc *gc)
{
    struct dirent **names;
    uint8_t id[16];
    /* A process that opens an object under the lease would end this one. */
    signal(SIGIO, SIG_IGN);
    int n = scandir("/dev/shm", &names, NULL, alphasort);
    if (n < 0)
        gc_add(gc, GC_BLIND, "folder", "/dev/shm", 0, "cannot list it: %s", report_reason(errno));
    for (int i = 0; i < n; i++) {
        bool table = false;
        const bool is_users_own = is_users(names[i]->d_name);
        if (is_users_own || parse(names[i]->d_name, id, &table))
            look_at_object(gc, names[i]->d_name, is_users_own ? NULL : id, table);
        free(names[i]);
    }
    if (n >= 0)
        free(names);
}

void gc_shared_locks(int database)
{
    char object[NAME_MAX + 2], first[64];
    const char *why;
    struct stat st;
    if (fstat(database, &st) < 0)
        return;
    DIR *folder = opendir("/dev/shm");
    shared_memory_name(first, st.st_dev, st.st_ino, 0);
    *strrchr(first, '0') = 0; /* that of any user */
    signal(SIGIO, SIG_IGN);
    for (const struct dirent *e; folder && (e = readdir(folder));) {
        /* While it has this lock, no process begins or ends to use the memory. */
        if (strncmp(e->d_name, first + 1, strlen(first + 1)) != 0 || !is_users(e->d_name) ||
            mask_lock(database, F_WRLCK) < 0)
            continue;
        snprintf(object, sizeof(object), "/%s", e->d_name);
        /* Its close ends the lease. */
        const int fd CLOSING = fsops->shm_open(object, O_RDWR | O_NONBLOCK | O_CLOEXEC, 0);
        if (fd >= 0 && judge_users(fd, e->d_name, &why) == GC_USELESS)
            (void)fsops->shm_unlink(object);
    }
    (void)mask_lock(database, F_UNLCK);
    if (folder)
        closedir(folder);
}
