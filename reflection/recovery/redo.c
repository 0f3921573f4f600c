/* SPDX-License-Identifier: BSD-3-Clause */
#include "reflection/recovery/redo.h"

#include "reflection/media/fsops.h"
#include "reflection/media/locks.h"
#include "reflection/media/report.h"
#include "reflection/pairing/area.h"
#include "reflection/pairing/identity.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/falloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

void redo_name(char name[REDO_NAME_BYTES], uint64_t number)
{
    snprintf(name, REDO_NAME_BYTES, REDO_PREFIX "%012" PRIx64, number);
}

bool redo_name_of(const char *name, uint64_t *number)
{
    const size_t prefix = strlen(REDO_PREFIX);
    const bool begins = strncmp(name, REDO_PREFIX, prefix) == 0;
    const uint64_t found = begins ? strtoul(name + prefix, NULL, 16) : 0;
    char full[REDO_NAME_BYTES];
    redo_name(full, found);
    if (number)
        *number = found;
    /* A name with more than 12 digits belongs to a user's file. The sweep must not remove that file. */
    return found >> 48 == 0 && strcmp(name, full) == 0;
}

static void begin(struct redo *r, const struct folder *f, uint64_t number)
{
    memset(r, 0, sizeof(*r));
    r->lock = -1;
    r->number = number;
    redo_name(r->name, number);
    snprintf(r->path, sizeof(r->path), "%s/%s", f->path, r->name);
}

/* ---- the owner's ---- */

/* Makes an empty file, locked before it is filled: a process that clears away journals that no manifest names skips locked
 * ones. If the file was removed before it was locked, another one is made. */
static int make_file(struct redo *r, const struct folder *f)
{
    int named = 0;
    while (named == 0) {
        locks_close(r->lock);
        r->lock = fsops->create(f->fd, r->name, O_RDWR | O_EXCL, 0600);
        if (r->lock < 0)
            return -1;
        locks_keep(r->lock);
        if (locks_wait(r->lock, F_WRLCK, 0, 1) < 0)
            return -1;
        named = folder_names(f, r->name, r->lock);
    }
    return named < 0 ? -1 : 0;
}

/* Maps the journal by a descriptor of its own, as folder_map(), or as much more of it. Returns 0; -1 with errno. */
static int map(struct redo *r, uint64_t bytes, uint64_t room)
{
    const int own = folder_reopen(r->lock, O_RDWR);
    if (own < 0)
        return -1;
    r->map.fd = own;
    r->map.domain = PERSIST_PMEM;
    r->map.prot = PROT_READ | PROT_WRITE;
    const int mapped =
        r->map.base ? window_reach(&r->map, bytes) : window_open(&r->map, bytes, room, &r->faults);
    KEEP_ERRNO();
    close(own);
    return mapped;
}

static int fill(struct redo *r, const struct folder *f, const struct persist *p,
                const struct trust *like)
{
    if (fsops->fallocate(r->lock, 0, 0, (off_t)journal_bytes(0)) < 0 ||
        map(r, journal_bytes(0), journal_bytes(JOURNAL_MAX_WORDS)) < 0)
        return -1;
    journal_make(p, &r->journal, r->map.base, r->number);
    if (ownership_give(like, r->lock) < 0)
        return -1;
    /* persist-order J0 (reader: redo_open): content and name of the journal are durable before a manifest names it (N1). */
    return fsops_fsync(r->lock) < 0 ? -1 : folder_sync(f);
}

int redo_create(struct redo *r, const struct folder *f, const struct persist *p,
                const struct trust *like)
{
    uint64_t random;
    if (identity_random(&random, sizeof(random)) < 0)
        return -1;
    begin(r, f, (random >> 17) + 1); /* not 0, and within what a journal word holds */
    if (make_file(r, f) == 0 && fill(r, f, p, like) == 0)
        return 0;
    report_errno(errno,
                 "cannot make the journal %s: a large commit, or one of several files, needs a "
                 "journal, which takes %" PRIu64 " bytes in that folder",
                 r->path, journal_bytes(0));
    redo_close(r, f, r->lock >= 0);
    return -1;
}

int redo_grow(struct redo *r, uint64_t words)
{
    const uint64_t end = journal_length(&r->journal), more = journal_bytes(words) - end;
    /* persist-order J0 (reader: redo_open): the length is durable before a commit line that needs it: such a line in a shorter
     * file is damage. With MAP_SYNC the first store behind the old end does that, before the line is stored. In domain msync the
     * kernel may write the page of the line first.
     * explorer: drop fsync survives: its commits fit into the length before. */
    if (fsops->fallocate(r->lock, 0, (off_t)end, (off_t)more) < 0 ||
        (r->journal.domain == PERSIST_MSYNC && fsops_fsync(r->lock) < 0) ||
        map(r, end + more, 0) < 0)
        return report_errno(errno,
                            "cannot make the journal %s larger, which a commit of %" PRIu64
                            " words needs, by %" PRIu64 " bytes",
                            r->path, words, more);
    r->journal.large_bytes += more;
    return 0;
}

/* ---- a dead process's ---- */

/* I5. */
static int open_locked(struct redo *r)
{
    char header[sizeof(struct journal_header)] = {0};
    struct stat st;
    if (fstat(r->lock, &st) < 0 || pread(r->lock, header, sizeof(header), 0) < 0)
        return report_errno(errno, "cannot read the journal %s", r->path);
    if (journal_take(&r->journal, header, (uint64_t)st.st_size, r->number, r->path) < 0)
        return -1;
    const uint64_t bytes = journal_length(&r->journal);
    /* A copy of the file may have holes instead of zeros; on a full tmpfs even a load from a hole is SIGBUS. */
    if ((uint64_t)st.st_blocks * 512 < bytes &&
        fsops->fallocate(r->lock, FALLOC_FL_KEEP_SIZE, 0, (off_t)bytes) < 0 && errno != EOPNOTSUPP)
        return report_errno(errno, "cannot allocate the journal %s, %" PRIu64 " bytes", r->path,
                            bytes);
    if (map(r, bytes, bytes) < 0)
        return report_errno(errno, "cannot map the journal %s", r->path);
    r->journal.lanes_at = r->map.base + JOURNAL_HEADER_BYTES;
    return 0;
}

int redo_open(struct redo *r, const struct folder *f, uint64_t number, const struct trust *file)
{
    begin(r, f, number);
    r->lock = folder_lock_file(f, r->name, O_RDWR, 1, file, "the journal");
    if (r->lock < 0)
        return -1;
    const int opened = open_locked(r);
    if (opened < 0)
        redo_close(r, f, false);
    return opened;
}

void redo_close(struct redo *r, const struct folder *f, bool remove)
{
    KEEP_ERRNO();
    /* Not synced: if a power cut brings the file back, no manifest names it. */
    if (remove && fsops->unlinkat(f->fd, r->name, 0) < 0 && errno != ENOENT)
        folder_error(f, r->name, "cannot remove the journal");
    window_close(&r->map);
    locks_close(r->lock);
    r->lock = -1;
}

/* ---- what dead processes left ---- */

struct wanted {
    const struct folder *folder;
    uint64_t number;
};

/* Returns 1 if a slot of the manifest names the journal, or may do so, also after a power cut; 0 if not. */
static int is_named_in(void *arg, const char *name)
{
    const struct wanted *w = arg;
    uint64_t number = w->number;
    if (strcmp(name + strspn(name, "0123456789"), ".manifest") != 0)
        return 0;
    int fd = openat(w->folder->fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return errno != ENOENT;
    int slot = area_find_journal(fd, &number, name);
    /* persist-order N2 (writer: area_set_journal): a dead process may have cleared its journal word and not made that
     * durable. After a power cut the manifest would name a journal that is gone. */
    if (slot == MANIFEST_SLOTS && area_next(fd, 0) < MANIFEST_SLOTS && fsops_fsync(fd) < 0)
        slot = -1;
    close(fd);
    return slot < MANIFEST_SLOTS;
}

/* Of manifests: a living maker of an unfinished one finds that its file is gone, and starts again.
 * Of journals: a living process has the journal locked, or is about to lock it: then it finds that the name is gone, and starts
 * again. A dead process names no journal any more, so no lock is needed to look at the manifests. */
static int sweep(void *arg, const char *name)
{
    struct wanted w = {.folder = arg};
    if (folder_is_unfinished(name + strspn(name, "0123456789"), ".manifest"))
        (void)fsops->unlinkat(w.folder->fd, name, 0);
    if (!redo_name_of(name, &w.number))
        return 0;
    int fd = openat(w.folder->fd, name, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return 0;
    locks_keep(fd);
    if (locks_try(fd, F_WRLCK, 0, 1) == LOCKS_MINE && folder_names(w.folder, name, fd) == 1 &&
        folder_each_name(w.folder, is_named_in, &w) == 0 &&
        fsops->unlinkat(w.folder->fd, name, 0) == 0)
        report_log(REPORT_INFO, "removed the journal %s/%s, which no file needs", w.folder->path,
                   name);
    locks_close(fd);
    return 0;
}

void redo_sweep(const struct folder *f)
{
    (void)folder_each_name(f, sweep, (void *)(uintptr_t)f);
}
