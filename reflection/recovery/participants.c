/* SPDX-License-Identifier: BSD-3-Clause */
#include "reflection/recovery/participants.h"

#include "reflection/format/layout.h"
#include "reflection/format/manifest.h"
#include "reflection/media/domain.h"
#include "reflection/media/fsops.h"
#include "reflection/media/locks.h"
#include "reflection/media/report.h"
#include "reflection/recovery/pool.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/falloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static void release_file(struct participants_file *file)
{
    if (file->map)
        munmap(file->map, file->bytes);
    if (file->manifest)
        munmap(file->manifest, MANIFEST_BYTES);
    if (file->reflection >= 0)
        close(file->reflection);
    locks_close(file->lock);
    file->map = file->manifest = NULL;
    file->reflection = file->lock = -1;
}

void participants_end(struct participants *n)
{
    int saved = errno;
    for (size_t k = 0; k < n->nfiles; k++)
        release_file(&n->files[k]);
    free(n->files);
    errno = saved;
}

/* ---- which files ---- */

/* By id, which is the order of locks. Files with the same id, but another inode, are different
 * files. */
static int by_id(const void *a, const void *b)
{
    const struct journal_file *x = &((const struct participants_file *)a)->in_journal;
    const struct journal_file *y = &((const struct participants_file *)b)->in_journal;
    int order = memcmp(x->id, y->id, sizeof(x->id));
    return order ? order : (x->inode > y->inode) - (x->inode < y->inode);
}

int participants_add(struct participants *n, const struct journal_view *v)
{
    const size_t before = n->nfiles;
    for (unsigned i = 0; i < v->nfiles; i++) {
        if (n->nfiles == n->room) {
            size_t room = n->room ? 2 * n->room : 16;
            struct participants_file *more = realloc(n->files, room * sizeof(*more));
            if (!more)
                return report_error(ENOMEM, "no memory to replay a journal");
            n->files = more;
            n->room = room;
        }
        n->files[n->nfiles++] =
            (struct participants_file){.in_journal = v->files[i], .lock = -1, .reflection = -1};
    }
    for (uint64_t i = 0; i < v->nwords; i++) {
        struct journal_word w = v->words[i];
        if (journal_word_is_size(&w) && journal_word_file(&w) < v->nfiles)
            n->files[before + journal_word_file(&w)].sized = true;
    }
    return 0;
}

/* Sorts the files and drops duplicates. A forged journal may name very many files. */
static void sort_files(struct participants *n)
{
    size_t kept = 0;
    if (n->nfiles)
        qsort(n->files, n->nfiles, sizeof(*n->files), by_id);
    for (size_t k = 0; k < n->nfiles; k++) {
        if (kept == 0 || by_id(&n->files[kept - 1], &n->files[k]) != 0)
            n->files[kept++] = n->files[k];
        else if (n->files[k].sized)
            n->files[kept - 1].sized = true;
    }
    n->nfiles = kept;
}

struct participants_file *participants_find(const struct participants *n,
                                            const struct journal_file *in_journal)
{
    struct participants_file wanted = {.in_journal = *in_journal};
    return n->nfiles ? bsearch(&wanted, n->files, n->nfiles, sizeof(wanted), by_id) : NULL;
}

/* ---- one file ---- */

/* Reads the locked manifest. Returns 1 if it is the one that the lane means, 0 if it is another
 * one, -1 on error. */
static int read_manifest(const struct found_journal *j, struct participants_file *file,
                         const char *manifest, struct manifest_record *record)
{
    const struct folder *f = j->folder;
    int which;
    /* Zeros: an interrupted birth may have left a shorter manifest. */
    char *bytes = calloc(1, MANIFEST_BYTES);
    if (!bytes)
        return report_error(ENOMEM, "no memory to read %s/%s", f->path, manifest);
    if (pread(file->lock, bytes, MANIFEST_BYTES, 0) < 0) {
        int r = report_errno(errno, "cannot read %s/%s, which the journal %s needs", f->path,
                             manifest, j->name);
        free(bytes);
        return r;
    }
    enum manifest_finding found = manifest_read(bytes, record, &which);
    free(bytes);
    if (found == MANIFEST_UNBORN)
        return 0;
    if (found != MANIFEST_VALID)
        return report_error(EUCLEAN, "the manifest %s/%s, which the journal %s needs, is damaged",
                            f->path, manifest, j->name);
    /* Another id: another pairing has the inode now, and the file that the lane names is gone. Another state:
     * a file that was unmapped cleanly had all its commits retired, so this is a copy. */
    return memcmp(record->id, file->in_journal.id, 16) == 0 && record->state == MANIFEST_IN_USE;
}

/* For the size word. Through a descriptor of its own: a mapping of the locked one would keep the lock in a
 * child that is being forked. */
static int map_manifest(const struct folder *f, struct participants_file *file,
                        const char *manifest)
{
    struct stat st;
    int fd = folder_reopen(file->lock);
    void *map = MAP_FAILED;
    if (fd >= 0 && fstat(fd, &st) == 0 && st.st_size < MANIFEST_BYTES) {
        close(fd);
        return report_error(EUCLEAN, "the manifest %s/%s is too short for a size word", f->path,
                            manifest);
    }
    if (fd >= 0)
        map = domain_map(file->persist.domain, NULL, MANIFEST_BYTES, PROT_READ | PROT_WRITE, fd, 0);
    int saved = errno;
    if (fd >= 0)
        close(fd);
    if (map == MAP_FAILED)
        return report_errno(saved, "cannot map the manifest %s/%s", f->path, manifest);
    file->manifest = map;
    return 0;
}

static int map_reflection(const struct found_journal *j, struct participants_file *file,
                          const struct trust *owner)
{
    const struct folder *f = j->folder;
    struct stat st;
    int fd = openat(f->fd, file->name, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    file->reflection = fd;
    if (fd < 0 || fstat(fd, &st) < 0)
        return report_errno(errno, "cannot open the reflection %s/%s, which the journal %s needs",
                            f->path, file->name, j->name);
    if (ownership_check(owner, fd, f->path, file->name) < 0)
        return -1;
    file->bytes = (uint64_t)st.st_size;
    if (!file->bytes)
        return report_error(EUCLEAN, "the reflection %s/%s is empty", f->path, file->name);
    void *map = domain_map(file->persist.domain, NULL, file->bytes, PROT_READ | PROT_WRITE, fd, 0);
    if (map == MAP_FAILED)
        return report_errno(errno, "cannot map the reflection %s/%s", f->path, file->name);
    file->map = map;
    return 0;
}

/* Returns true if the lock of the open manifest is held already. A journal may name several pairings of
 * one inode, of which all but one are gone. They have the same manifest file: waiting for its lock would
 * be a deadlock. */
static bool is_held(const struct participants *n, struct participants_file *file,
                    const struct stat *manifest)
{
    const struct participants_file *same = n->held;
    file->device = manifest->st_dev;
    file->inode = manifest->st_ino;
    while (same && (same->inode != file->inode || same->device != file->device))
        same = same->next;
    return same;
}

/* Locks and maps a file. Returns 1; 0 if the pairing is gone: nothing to replay; -1. */
static int acquire_file(struct participants *n, struct participants_file *file)
{
    const struct found_journal *j = n->journal;
    const struct folder *f = j->folder;
    char manifest[40];
    struct stat st;
    struct trust maker = ownership_of(&j->st);
    snprintf(file->name, sizeof(file->name), "%" PRIu64, file->in_journal.inode);
    snprintf(manifest, sizeof(manifest), "%" PRIu64 ".manifest", file->in_journal.inode);
    file->lock = openat(f->fd, manifest, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (file->lock < 0 && errno == ENOENT)
        return 0;
    if (file->lock < 0 || fstat(file->lock, &st) < 0)
        return report_errno(errno, "cannot open %s/%s, which the journal %s needs", f->path,
                            manifest, j->name);
    locks_keep(file->lock);
    if (is_held(n, file, &st))
        return 0;
    file->owner = ownership_of(&st);
    if (!ownership_maker(&file->owner, &j->st))
        return report_error(EACCES,
                            "the journal %s/%s of user %u names a file of user %u (inode %" PRIu64
                            ", in %s) that the owner of the journal may not write to: give that "
                            "permission back; the journal stays until then",
                            j->folder->path, j->name, (unsigned)j->st.st_uid, (unsigned)st.st_uid,
                            file->in_journal.inode, f->path);
    if (ownership_check(&maker, file->lock, f->path, manifest) < 0)
        return -1;
    if (locks_wait(file->lock, 0, 1) < 0)
        return report_errno(errno, "cannot lock %s/%s", f->path, manifest);
    int result = folder_names(f, manifest, file->lock);
    if (result == 1)
        result = read_manifest(j, file, manifest, &file->record);
    if (result != 1) /* 0: removed or set aside meanwhile, or another file's */
        return result;
    persist_init(&file->persist, file->record.domain);
    if (map_reflection(j, file, &file->owner) < 0 ||
        (file->sized && map_manifest(f, file, manifest) < 0))
        return -1;
    return 1;
}

int participants_acquire(struct participants *n)
{
    sort_files(n);
    for (size_t k = 0; k < n->nfiles; k++) {
        struct participants_file *file = &n->files[k];
        int got = acquire_file(n, file);
        if (got < 0)
            return -1;
        if (got == 1) {
            file->next = n->held;
            n->held = file;
            continue;
        }
        release_file(file);
        report_log(REPORT_WARNING,
                   "the journal %s/%s names a file (inode %" PRIu64
                   ", in %s) whose reflection is gone: the commit to this file is skipped",
                   n->journal->folder->path, n->journal->name, file->in_journal.inode,
                   n->journal->folder->path);
    }
    return 0;
}

/* ---- their words ---- */

/* Allocates space under the words: a copied reflection may have a hole instead of a meta page of zeros. */
static int make_space(const struct participants *n, const struct journal_view *v,
                      struct participants_file *const *files)
{
    uint64_t last = UINT64_MAX;
    const struct participants_file *of = NULL;
    for (uint64_t k = 0; k < v->nwords; k++) {
        struct journal_word w = v->words[k];
        uint64_t page = journal_word_offset(&w) & ~4095ull;
        if (journal_word_is_size(&w) || journal_word_file(&w) >= v->nfiles)
            continue;
        const struct participants_file *file = files[journal_word_file(&w)];
        if ((page == last && file == of) || !file->map || page >= file->bytes)
            continue;
        last = page;
        of = file;
        const bool hole = lseek(file->reflection, (off_t)page, SEEK_HOLE) < (off_t)page + 4096;
        if ((hole &&
             fsops->fallocate(file->reflection, FALLOC_FL_KEEP_SIZE, (off_t)page, 4096) < 0) ||
            domain_make_storable(file->persist.domain, file->map + page, 4096) < 0)
            return report_errno(errno, "cannot allocate the bitmaps in %s/%s",
                                n->journal->folder->path, file->name);
    }
    return 0;
}

int participants_targets(struct participants *n, const struct journal_view *v,
                         struct participants_target *targets)
{
    struct participants_file **files = calloc(v->nfiles, sizeof(*files));
    int result = files ? 0 : report_error(ENOMEM, "no memory to replay a journal");
    for (unsigned i = 0; result == 0 && i < v->nfiles; i++) {
        struct participants_file *file = files[i] = participants_find(n, &v->files[i]);
        if (!file) /* another process changed the lane meanwhile */
            result = report_error(EUCLEAN, "another process changes the journal %s/%s",
                                  n->journal->folder->path, n->journal->name);
        else
            targets[i] = (struct participants_target){
                .persist = file->persist,
                .reflection = file->map,
                .bytes = file->bytes,
                .size = file->manifest ? (uint64_t *)(file->manifest + MANIFEST_SIZE_WORD) : NULL,
                .folder = n->journal->folder->path,
                .name = file->name,
                .fd = file->reflection};
    }
    if (result == 0)
        result = make_space(n, v, files);
    free(files);
    return result;
}
