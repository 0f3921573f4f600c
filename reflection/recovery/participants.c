/* SPDX-License-Identifier: BSD-3-Clause */
#include "reflection/recovery/participants.h"

#include "reflection/media/locks.h"
#include "reflection/media/report.h"
#include "reflection/pairing/area.h"
#include "reflection/pairing/removal.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static void release_file(struct participant *p)
{
    if (p->map)
        munmap(p->map, p->bytes);
    if (p->manifest)
        munmap(p->manifest, MANIFEST_BYTES);
    if (p->reflection >= 0)
        close(p->reflection);
    area_unmap(p->area);
    if (!p->borrowed)
        locks_close(p->lock);
    p->map = p->manifest = p->area = NULL;
    p->reflection = p->lock = -1;
}

void participants_end(struct participants *n)
{
    KEEP_ERRNO();
    for (size_t k = 0; k < n->nfiles; k++)
        release_file(&n->files[k]);
    free(n->files);
}

/* ---- which files ---- */

/* By id, which is the order of locks. Files with the same id, but another inode, are different
 * files. */
static int by_id(const void *a, const void *b)
{
    const struct journal_file *x = &((const struct participant *)a)->file;
    const struct journal_file *y = &((const struct participant *)b)->file;
    int order = memcmp(x->id, y->id, sizeof(x->id));
    return order ? order : (x->inode > y->inode) - (x->inode < y->inode);
}

int participants_add(struct participants *n, const struct journal_file *file)
{
    if (n->nfiles == n->room) {
        const size_t room = n->room ? 2 * n->room : 4;
        struct participant *more = realloc(n->files, room * sizeof(*more));
        if (!more)
            return report_error(ENOMEM, "no memory to recover a file");
        n->files = more;
        n->room = room;
    }
    struct participant *p = &n->files[n->nfiles++];
    memset(p, 0, sizeof(*p));
    p->file = *file;
    p->lock = p->reflection = -1;
    snprintf(p->path, sizeof(p->path), "%s/%" PRIu64, n->own->folder.path, file->inode);
    return 0;
}

/* Sorts the files and drops duplicates. */
static void sort_files(struct participants *n)
{
    size_t kept = 0;
    qsort(n->files, n->nfiles, sizeof(*n->files), by_id);
    for (size_t k = 0; k < n->nfiles; k++)
        if (kept == 0 || by_id(&n->files[kept - 1], &n->files[k]) != 0)
            n->files[kept++] = n->files[k];
    n->nfiles = kept;
}

struct participant *participants_find(const struct participants *n, const struct journal_file *file)
{
    struct participant wanted = {.file = *file};
    return n->nfiles ? bsearch(&wanted, n->files, n->nfiles, sizeof(wanted), by_id) : NULL;
}

/* ---- one file ---- */

static int map_reflection(const struct participants *n, struct participant *p)
{
    const struct pairing_names names = pairing_names(p->file.inode);
    struct stat st;
    p->reflection = folder_open_file(&n->own->folder, names.reflection, O_RDWR,
                                     &n->own->identity.trust, "the reflection");
    if (p->reflection < 0)
        return errno != ENOENT
                   ? -1
                   : report_error(ESTALE,
                                  "the reflection %s, which has to be recovered, is missing",
                                  p->path);
    if (fstat(p->reflection, &st) < 0)
        return report_errno(errno, "cannot stat the reflection %s", p->path);
    p->bytes = (uint64_t)st.st_size;
    if (p->bytes == 0) /* of a file without pages */
        return 0;
    p->map = folder_map(p->reflection, O_RDWR, p->persist.domain, p->bytes, 0);
    return p->map ? 0 : report_errno(errno, "cannot map the reflection %s", p->path);
}

static int map_file(const struct participants *n, struct participant *p)
{
    persist_init(&p->persist, p->record.domain);
    if (map_reflection(n, p) < 0)
        return -1;
    p->manifest = area_map_manifest(p->lock, O_RDWR, p->persist.domain, p->path);
    return p->manifest ? 0 : -1;
}

int participants_acquire_locked(struct participants *n, const struct manifest_record *record,
                                int lock)
{
    struct participant *p = &n->files[0];
    p->lock = lock;
    p->record = *record;
    p->borrowed = true;
    return map_file(n, p);
}

/* Reads the locked manifest. Returns 1 if it is the one that is meant; 0 if not; -1. */
static int read_manifest(struct participant *p)
{
    _Alignas(8) char bytes[MANIFEST_BYTES] = {0};
    int which;
    if (pread(p->lock, bytes, sizeof(bytes), 0) < 0)
        return report_errno(errno, "cannot read the manifest of %s", p->path);
    switch (manifest_read(bytes, &p->record, &which)) {
    case MANIFEST_VALID:
        /* Another id: another pairing has the inode now, and the file that the lane names is gone. Another state:
         * a file that was unmapped cleanly had all its commits retired, so this is a copy. */
        return memcmp(p->record.id, p->file.id, 16) == 0 && p->record.state == MANIFEST_IN_USE;
    case MANIFEST_UNBORN:
        return 0;
    default:
        return report_error(EUCLEAN, "the manifest of %s, which has to be recovered, is damaged",
                            p->path);
    }
}

/* Locks and maps a file. Returns 1; 0 if it does not take part; -1. */
static int acquire_file(struct participants *n, struct participant *p)
{
    const struct pairing_names names = pairing_names(p->file.inode);
    const struct folder *folder = &n->own->folder;
    uint64_t number = n->journal;
    /* A journal may name several pairings of one inode, of which all but one are gone. They have the same
     * manifest file: waiting for its lock would be a deadlock. */
    for (const struct participant *held = n->files; held < p; held++)
        if (held->file.inode == p->file.inode)
            return 0;
    p->lock = folder_lock_file(folder, names.manifest, 0, &n->own->identity.trust,
                               "the manifest of a file of a dead process's commit,");
    if (p->lock < 0)
        return errno == ENOENT ? 0 : -1;
    const int meant = read_manifest(p);
    if (meant != 1)
        return meant;
    if (number) {
        const int slot = area_find_journal(p->lock, &number, p->path);
        if (slot < 0 || slot == MANIFEST_SLOTS)
            return slot < 0 ? -1 : 0;
        p->slot = (unsigned)slot;
    }
    if (p->file.inode != n->own->record.inode &&
        removal_is_set_aside(folder, &p->record)) /* and that was interrupted */
        return 0;
    return map_file(n, p) < 0 ? -1 : 1;
}

int participants_acquire(struct participants *n)
{
    sort_files(n);
    for (size_t k = 0; k < n->nfiles;) {
        struct participant *p = &n->files[k];
        const int got = acquire_file(n, p);
        if (got < 0)
            return -1;
        if (got) {
            k++;
            continue;
        }
        report_log(REPORT_WARNING,
                   "a journal in %s names a file (inode %" PRIu64
                   ") that does not name the journal, or is gone: what it says of it is skipped",
                   n->own->folder.path, p->file.inode);
        release_file(p);
        memmove(p, p + 1, (--n->nfiles - k) * sizeof(*p));
    }
    return 0;
}
