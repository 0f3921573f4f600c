/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/recovery/replay.h"

#include "reflection/format/layout.h"
#include "reflection/media/domain.h"
#include "reflection/media/fsops.h"
#include "reflection/media/heap.h"
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
#include <unistd.h>

/* ---- the files ---- */

static void release_file(const struct participants *n, struct participant *p)
{
    fault_unmap(p->map, p->bytes);
    fault_unmap(p->manifest, MANIFEST_BYTES);
    if (p->reflection >= 0)
        close(p->reflection);
    area_unmap(p->area);
    if (p->shared.header)
        shared_close(&p->shared, false);
    free(p->pages);
    if (!n->alone)
        locks_close(p->lock);
}

void participants_end(struct participants *n)
{
    KEEP_ERRNO();
    for (size_t k = 0; k < n->nfiles; k++)
        release_file(n, &n->files[k]);
    free(n->files);
}

/* ---- which files ---- */

/* Of participants, or their files. By id, which is the order of locks. Files with the same id, but another inode, are different
 * files. */
static int by_id(const void *a, const void *b)
{
    const struct journal_file *x = a, *y = b;
    int order = memcmp(x->id, y->id, sizeof(x->id));
    return order ? order : (x->inode > y->inode) - (x->inode < y->inode);
}

int participants_add(struct participants *n, const struct journal_file *file)
{
    struct participant *more = realloc(n->files, (n->nfiles + 1) * sizeof(*more));
    if (!more)
        return report_error(ENOMEM, "no memory to recover a file");
    n->files = more;
    struct participant *p = &more[n->nfiles++];
    *p = (struct participant){.file = *file, .lock = -1, .reflection = -1, .original = -1};
    snprintf(p->path, sizeof(p->path), "%s/%" PRIu64, n->own->folder.path, file->inode);
    snprintf(p->lanes, sizeof(p->lanes), "%s.manifest", p->path);
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
    return n->nfiles ? bsearch(file, n->files, n->nfiles, sizeof(*n->files), by_id) : NULL;
}

/* ---- one file ---- */

static int map_file(const struct participants *n, struct participant *p)
{
    const struct pairing_names names = pairing_names(p->file.inode);
    persist_init(&p->persist, p->record.domain);
    p->reflection = folder_open_file(&n->own->folder, names.reflection, O_RDWR,
                                     &n->own->identity.trust, "the reflection");
    if (p->reflection < 0)
        return errno != ENOENT
                   ? -1
                   : report_error(ESTALE,
                                  "the reflection %s, which has to be recovered, is missing",
                                  p->path);
    const off_t length = fsops_length(p->reflection);
    if (length < 0)
        return report_errno(errno, "cannot find the length of the reflection %s", p->path);
    p->bytes = (uint64_t)length;
    /* Without bytes: of a file without pages. */
    if (p->bytes && !(p->map = folder_map(p->reflection, O_RDWR, p->bytes, 0)))
        return report_errno(errno, "cannot map the reflection %s", p->path);
    if (p->map)
        fault_watch(p->map, p->bytes, &p->faults);
    p->manifest = area_map_manifest(p->lock, O_RDWR, p->path, &p->faults);
    return p->manifest ? 0 : -1;
}

/* Reads the locked manifest. Returns 1 if it is the one that is meant; 0 if not; -1. */
static int read_manifest(struct participant *p)
{
    char *bytes HEAP = calloc(1, MANIFEST_BYTES);
    int which;
    if (!bytes)
        return report_error(ENOMEM, "no memory to recover a file");
    if (pread(p->lock, bytes, MANIFEST_BYTES, 0) < 0)
        return report_errno(errno, "cannot read the manifest of %s", p->path);
    const enum manifest_finding found = manifest_read(bytes, &p->record, &which);
    if (found == MANIFEST_DAMAGED || found == MANIFEST_FOREIGN)
        return report_error(
            EUCLEAN,
            "the manifest of %s, which has to be recovered, is damaged or of another version",
            p->path);
    /* Another id: another pairing has the inode now, and the file that the lane names is gone. Another state:
     * a file that was unmapped cleanly had all its commits retired, so this is a copy; or the manifest is unborn. */
    return memcmp(p->record.id, p->file.id, 16) == 0 && p->record.state == MANIFEST_IN_USE;
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
    p->lock = n->alone
                  ? n->own->lock
                  : folder_lock_file(folder, names.manifest, O_RDWR, 0, &n->own->identity.trust,
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
        /* A process that waits would try again and again. */
        if (!n->alone && !n->journal)
            return report_error(
                ESTALE,
                "the manifest of %s was removed or overwritten by another program "
                "while the file was mapped: what a dead process held stays held. %s",
                n->own->path, pairing_way_out(n->own));
        report_log(REPORT_WARNING,
                   "a journal in %s names a file (inode %" PRIu64
                   ") that does not name the journal, or is gone: what it says of it is skipped",
                   n->own->folder.path, p->file.inode);
        release_file(n, p);
        memmove(p, p + 1, (--n->nfiles - k) * sizeof(*p));
    }
    return 0;
}

/* ---- words ---- */

struct target_word {
    const struct participant *to;
    uint64_t *word, value;
    bool is_size;
};

/* I5. Finds the place and value of a lane's i-th word. The word is copied and checked each time, since a user
 * that may write to the journal could change it now. Returns 1; 0 if its file is gone; -1 with a sentence. */
static int target_word(const struct journal_view *v, uint64_t i, const struct participants *n,
                       struct target_word *t)
{
    const struct journal_word w = *(const volatile struct journal_word *)&v->words[i];
    const unsigned file = journal_word_file(&w);
    const uint64_t offset = journal_word_offset(&w);
    uint64_t size;
    if (file >= v->nfiles) /* another process changed the lane meanwhile */
        return report_error(EUCLEAN, "another process changes a lane of a journal");
    t->to = participants_find(n, &v->files[file]);
    if (!t->to)
        return 0;
    t->value = w.value;
    t->is_size = journal_word_is_size(&w);
    if (!t->is_size && !layout_is_word(t->to->record.format, offset, t->to->bytes))
        return report_error(EUCLEAN,
                            "a journal names offset %" PRIu64 " of the reflection %s, which is "
                            "%" PRIu64 " bytes long and has no bitmap word there",
                            offset, t->to->path, t->to->bytes);
    if (t->is_size && (!manifest_decode_size(w.value, &size) ||
                       layout_reflection_bytes(t->to->record.format, size) > t->to->bytes))
        return report_error(EUCLEAN,
                            "a journal has the size word 0x%" PRIx64
                            " for the file of the reflection %s, which is %" PRIu64
                            " bytes long: that is not a valid size for it",
                            w.value, t->to->path, t->to->bytes);
    t->word = (uint64_t *)(t->is_size ? t->to->manifest + MANIFEST_SIZE_WORD : t->to->map + offset);
    return 1;
}

int replay_apply(const struct journal_view *v, const struct participants *n)
{
    const struct persist *last = NULL;
    struct target_word t = {0};
    char *page = NULL;
    int apply;
    for (uint64_t i = 0; i < v->nwords; i++) {
        if ((apply = target_word(v, i, n, &t)) < 0)
            return -1;
        char *at = (char *)((uintptr_t)t.word & ~(uintptr_t)(PAGE_BYTES - 1));
        if (!apply || at == page)
            continue;
        /* In a copied reflection a meta page of zeros may be a hole. */
        page = at;
        if (domain_make_storable(PERSIST_MSYNC, page, PAGE_BYTES) < 0)
            return report_errno(errno, "cannot allocate the bitmaps in %s", t.to->path);
    }
    /* persist-order R1 (writer: W1 in lib/commit/commit.h): the bytes that these words make valid were durable
     * before the commit line existed, so the words may be stored in any order. I1.
     * explorer: tear word survives: the lane is committed until it is retired, and a process that finds
     * half of a word stores it again. */
    for (uint64_t i = 0; i < v->nwords; i++) {
        if ((apply = target_word(v, i, n, &t)) < 0)
            return -1;
        if (!apply)
            continue;
        last = &t.to->persist;
        persist_store_word(last, t.word, t.value);
        /* In domain msync one fsync() follows for all bitmaps of a file: for words in many pages each msync() would take as
         * long. It also syncs other stores there; the slices of this commit are durable already. */
        if ((t.is_size || last->domain != PERSIST_MSYNC) && persist_flush_word(last, t.word) < 0)
            return report_errno(errno, "cannot make the replayed words of %s durable", t.to->path);
    }
    for (unsigned i = 0; i < v->nfiles; i++) {
        const struct participant *to = participants_find(n, &v->files[i]);
        if (to && to->persist.domain == PERSIST_MSYNC && fsops_fsync(to->reflection) < 0)
            return report_errno(errno, "cannot make the replayed words of %s durable", to->path);
    }
    if (last)
        persist_fence(last);
    return 0;
}

/* ---- lanes ---- */

int replay_lanes(const struct journal *j, enum replay_step step, struct participants *n,
                 const char *path)
{
    struct persist p;
    struct journal_view v;
    persist_init(&p, j->domain);
    for (unsigned lane = 0; lane < j->lanes; lane++) {
        if (step == REPLAY_COLLECT && journal_settle(j, &p, lane) < 0)
            return report_errno(errno, "cannot make %s durable", path);
        enum journal_finding found = journal_look(j, lane, &v);
        if (found == JOURNAL_DAMAGED)
            return report_error(EUCLEAN, "lane %u of %s is damaged. " PAIRING_BRING_BACK, lane,
                                path);
        const bool committed = found == JOURNAL_COMMITTED;
        for (unsigned i = 0; committed && step == REPLAY_COLLECT && n && i < v.nfiles; i++)
            if (participants_add(n, &v.files[i]) < 0)
                return -1;
        if (committed && step == REPLAY_APPLY && replay_apply(&v, n) < 0)
            return -1;
        struct journal_writer w = {.persist = &p, .lane = v.lane, .line = {.sequence = v.sequence}};
        if (found != JOURNAL_IDLE && step == REPLAY_RETIRE && journal_retire(&w) < 0)
            return report_errno(errno, "cannot make the replayed journal %s durable", path);
    }
    /* persist-order R2 (writers: J2, J3): a killed writer may have stored its commit line or its `retired` and not fenced
     * it. A recovery after a power cut must find the same lanes as this one. */
    if (step == REPLAY_COLLECT)
        persist_fence(&p);
    return 0;
}

int replay_slots(struct participants *n, struct participant *p)
{
    unsigned slot = p->slot;
    const unsigned end = n->alone ? MANIFEST_SLOTS : slot + 1;
    for (; (slot = area_next(p->lock, slot)) < end; slot++) {
        area_unmap(p->area);
        p->area = area_map(p->lock, slot, p->path, &p->faults);
        if (!p->area)
            return -1;
        /* persist-order N2 (writer: area_set_journal): a dead process may have cleared its journal word and not flushed it. */
        if (persist_flush_any(&p->persist, p->area, MANIFEST_AREA_LANES) < 0)
            return report_errno(errno, "cannot make %s durable", p->lanes);
        const struct journal j = journal_of_slot(p->area + MANIFEST_AREA_LANES, p->persist.domain);
        if (replay_lanes(&j, REPLAY_COLLECT, NULL, p->lanes) < 0 ||
            replay_lanes(&j, REPLAY_APPLY, n, p->lanes) < 0 ||
            replay_lanes(&j, REPLAY_RETIRE, n, p->lanes) < 0)
            return -1;
    }
    return 0;
}
