/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/read/reader_state.h"

#include "lib/file/clock.h"
#include "lib/file/mutex.h"
#include "lib/file/views.h"
#include "reflection/media/locks.h"
#include "reflection/media/report.h"
#include "reflection/pairing/area.h"
#include "reflection/pairing/lookup.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static int open_in(const struct pairing *pr, const char *name)
{
    return folder_open_file(&pr->folder, name, O_RDONLY, &pr->identity.trust, "for reading");
}

static int due(const struct pairing *pr)
{
    return report_error(EAGAIN,
                        "%s has to be recovered first, by a process that may write to it and maps "
                        "it: its last user died",
                        pr->path);
}

static int map_reflection(struct file *f)
{
    const uint64_t n = layout_reflection_bytes(f->max_size);
    if (f->r)
        munmap(f->r, n);
    f->r = views_map_one(f, f->pairing.reflection, n, PROT_READ, "the reflection of ");
    return f->r ? 0 : -1;
}

/* Begins to watch: a writer has the file mapped, or had a moment ago. Returns 1; NOT_THERE, with a sentence: the
 * writer's shared memory is not here, because the writer is just ending or has another /dev/shm; -1. */
enum { NOT_THERE = 2 };

static int watch(struct file *f)
{
    struct pairing *pr = &f->pairing;
    struct shared shared;
    enum locks_answer writers = locks_ask(pr->lock, 1, MANIFEST_SLOTS);
    if (writers != LOCKS_TAKEN || identity_restarted(&pr->record))
        return writers == LOCKS_FAILED
                   ? report_errno(errno, "cannot ask for the locks of %s", pr->path)
                   : due(pr);
    if (locks_try(pr->lock, F_RDLCK, PAIRING_READERS, 1) != LOCKS_MINE)
        return report_errno(errno, "cannot lock the manifest of %s for reading", pr->path);
    int r = shared_join(&shared, &pr->record, &pr->identity.trust, pr->path, O_RDONLY);
    if (r == 0 && f->max_size > shared.capacity * PAGE_BYTES)
        r = report_error(EFBIG, "%s is mapped by others with room for %llu bytes in all", pr->path,
                         (unsigned long long)shared.capacity * PAGE_BYTES);
    if (r == 0)
        r = map_reflection(f);
    if (r != 0) {
        KEEP_ERRNO();
        (void)locks_drop(pr->lock, PAIRING_READERS, 1);
        shared_close(&shared, false);
        return r < 0 ? -1 : NOT_THERE;
    }
    f->settled = shared.header->settled;
    memcpy(&f->shared.slots, &shared.slots, sizeof(shared) - offsetof(struct shared, slots));
    /* Release: a thread that sees the header sees the other fields. */
    __atomic_store_n(&f->shared.header, shared.header, __ATOMIC_RELEASE);
    __atomic_store_n(&f->reader->state, READER_WATCHING, __ATOMIC_RELEASE);
    return 1;
}

/* Finds out the file's state. The caller holds the attach lock. Returns 1: known; 0: look again; NOT_THERE; -1. */
static int look_locked(struct file *f)
{
    struct reader *r = f->reader;
    struct pairing *pr = &f->pairing;
    struct manifest_sizes sizes;
    int which, named = folder_names(&pr->folder, pr->names.manifest, pr->lock);
    if (named != 1)
        return named;
    /* Read again now that the attach lock keeps processes from mapping and unmapping the file. */
    if (identity_of(pr->original, &pr->identity) < 0)
        return -1;
    /* The attach lock is held, so this is the manifest of that name. No process that uses the library makes a manifest shorter;
     * another program that does so raises SIGBUS here, as it does with the file itself in its mapping. */
    pr->manifest = area_map_manifest(pr->lock, O_RDONLY, pr->path);
    if (!pr->manifest)
        return -1;
    const enum manifest_finding found = manifest_read(pr->manifest, &pr->record, &which);
    if (found == MANIFEST_FOREIGN)
        return report_error(EUCLEAN, "the manifest of %s in %s is of version %u and format %u; %s",
                            pr->path, pr->folder.path, pr->record.version, pr->record.format,
                            manifest_advice(pr->record.version, MANIFEST_VERSION));
    if (found != MANIFEST_VALID || !manifest_sizes(pr->manifest, &sizes))
        return report_error(EUCLEAN, "the manifest of %s in %s is damaged", pr->path,
                            pr->folder.path);
    /* Left by a removal that was cut. */
    if (pr->record.state == MANIFEST_DEPLOYED)
        return due(pr);
    pr->reflection = open_in(pr, pr->names.reflection);
    if (pr->reflection < 0)
        return errno == ENOENT
                   ? folder_error(&pr->folder, pr->names.reflection, "cannot open for reading")
                   : -1;
    persist_init(&f->persist, pr->record.domain);
    if (pr->record.state == MANIFEST_IN_USE)
        return watch(f);
    if (!identity_unwritten(&pr->identity, &pr->record))
        return report_error(ESTALE,
                            "%s was written by other means since it was unmapped, while its "
                            "reflection may hold parts of it",
                            pr->path);
    f->settled = true;
    r->own.size = sizes.size;
    r->state = READER_QUIET;
    return 1;
}

static int look_once(struct file *f)
{
    struct reader *r = f->reader;
    struct pairing *pr = &f->pairing;
    pairing_let_go(pr);
    folder_close(&pr->folder);
    if (identity_of(pr->original, &pr->identity) < 0)
        return -1;
    int there = lookup(pr, r->name, &r->wish);
    if (there < 0)
        return -1;
    if (there == 0 && !pr->has_attributes)
        return report_error(EAGAIN,
                            "%s has no reflection, and its file system no attributes by which one "
                            "would be noticed: a process that may write to it has to map it first",
                            pr->path);
    if (there == 0) {
        r->own.size = pr->identity.size;
        r->state = READER_PLAIN;
        return 1;
    }
    pr->lock = open_in(pr, pr->names.manifest);
    if (pr->lock < 0)
        return errno == ENOENT ? 0 : -1;
    locks_keep(pr->lock);
    /* A process that maps or unmaps the file is done with it in a moment. */
    enum locks_answer locked = locks_try(pr->lock, F_RDLCK, 0, 1);
    if (locked != LOCKS_MINE)
        return locked == LOCKS_TAKEN
                   ? 0
                   : report_errno(errno, "cannot lock the manifest of %s", pr->path);
    int known = look_locked(f);
    KEEP_ERRNO();
    if (known == 1)
        (void)locks_drop(pr->lock, 0, 1);
    else
        pairing_let_go(pr); /* without a manifest the file does not count as quiet */
    return known;
}

int reader_state_find(struct file *f)
{
    enum { PATIENCE_MS = 30000, ENDING_MS = 1000 };
    int known = 0;
    unsigned ends = 0;
    for (unsigned i = 0; i < PATIENCE_MS && (known == 0 || known == NOT_THERE); i++) {
        /* Otherwise a forked child could inherit the descriptor of a manifest that is not noted anywhere, and with it
         * a lock. */
        mutex_lock(MUTEX_LOOKING);
        known = look_once(f);
        mutex_unlock(MUTEX_LOOKING);
        if (known == NOT_THERE && ends++ == ENDING_MS)
            return -1;
        if (known == 0 || known == NOT_THERE)
            clock_nap(1000 * 1000);
    }
    if (known == 0)
        report_error(EBUSY, "%s is being mapped or unmapped all the time", f->pairing.path);
    return known == 1 ? 0 : -1;
}
