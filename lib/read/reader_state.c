/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/read/reader_state.h"

#include "lib/file/clock.h"
#include "lib/file/mutex.h"
#include "reflection/media/domain.h"
#include "reflection/media/locks.h"
#include "reflection/media/report.h"
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
    int fd = openat(pr->folder.fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return report_errno(errno, "cannot open %s/%s for reading", pr->folder.path, name);
    if (ownership_check(&pr->identity.trust, fd, pr->folder.path, name) == 0)
        return fd;
    KEEP_ERRNO();
    close(fd);
    return -1;
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
    f->r_bytes = layout_reflection_bytes(f->max_size);
    if (f->r)
        munmap(f->r, f->r_bytes);
    void *r = domain_map(f->persist.domain, NULL, f->r_bytes, PROT_READ, f->pairing.reflection, 0);
    f->r = r == MAP_FAILED ? NULL : r;
    if (!f->r)
        return report_errno(errno, "cannot map the reflection of %s", f->pairing.path);
    madvise(f->r, f->r_bytes, MADV_DONTFORK);
    return 0;
}

/* Maps the manifest through a descriptor of its own: a mapping of the locked one would keep the locks in a forked
 * child. The attach lock is held, so the name is still that of the locked manifest. No process that uses the library makes a
 * manifest shorter once its state was `clean`; another program that does so raises SIGBUS here, as it does with the file
 * itself in its mapping. */
static int map_manifest(struct file *f, const char *name)
{
    struct pairing *pr = &f->pairing;
    struct stat st;
    const int fd = open_in(pr, name);
    if (fd < 0)
        return -1;
    void *map = MAP_FAILED;
    if (fstat(fd, &st) == 0 && st.st_size >= MANIFEST_BYTES)
        map = domain_map(pr->record.domain, NULL, MANIFEST_BYTES, PROT_READ, fd, 0);
    const int saved = errno;
    close(fd);
    if (map == MAP_FAILED)
        return report_errno(saved, "cannot map the manifest %s/%s", pr->folder.path, name);
    madvise(map, MANIFEST_BYTES, MADV_DONTFORK);
    pr->manifest = map;
    return 0;
}

/* Begins to watch: a writer has the file mapped, or had a moment ago. Returns 1; NOT_THERE, with a sentence: the
 * writer's shared memory is not here, because the writer is just ending or has another /dev/shm; -1. */
enum { NOT_THERE = 2 };

static int watch(struct file *f)
{
    struct pairing *pr = &f->pairing;
    struct shared shared;
    uint8_t boot[16];
    identity_boot(boot);
    enum locks_answer writers = locks_ask(pr->lock, 1, MANIFEST_SLOTS);
    if (writers != LOCKS_TAKEN || memcmp(boot, pr->record.boot_id, sizeof(boot)) != 0)
        return writers == LOCKS_FAILED
                   ? report_errno(errno, "cannot ask for the locks of %s", pr->path)
                   : due(pr);
    if (locks_share(pr->lock, PAIRING_READERS, 1) != LOCKS_MINE)
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

int reader_state_manifest(const struct pairing *pr, struct manifest_record *record,
                          struct manifest_sizes *sizes)
{
    _Alignas(8) char bytes[MANIFEST_BYTES];
    int which;
    memset(bytes, 0, sizeof(bytes));
    if (pread(pr->lock, bytes, sizeof(bytes), 0) < 0)
        return report_errno(errno, "cannot read the manifest of %s", pr->path);
    if (manifest_read(bytes, record, &which) != MANIFEST_VALID || !manifest_sizes(bytes, sizes))
        return report_error(EUCLEAN, "the manifest of %s in %s is damaged", pr->path,
                            pr->folder.path);
    return 0;
}

/* Finds out the file's state. The caller holds the attach lock. Returns 1: known; 0: look again; NOT_THERE; -1. */
static int look_locked(struct file *f)
{
    struct reader *r = f->reader;
    struct pairing *pr = &f->pairing;
    struct manifest_sizes sizes;
    int named = folder_names(&pr->folder, pr->names.manifest, pr->lock);
    if (named != 1)
        return named;
    /* Read again now that the attach lock keeps processes from mapping and unmapping the file. */
    if (identity_of(pr->original, &pr->identity) < 0)
        return -1;
    if (reader_state_manifest(pr, &pr->record, &sizes) < 0)
        return -1;
    /* Left by a removal that was cut. */
    if (pr->record.state == MANIFEST_DEPLOYED)
        return due(pr);
    pr->reflection = open_in(pr, pr->names.reflection);
    if (pr->reflection < 0)
        return -1;
    persist_init(&f->persist, pr->record.domain);
    if (pr->record.state == MANIFEST_IN_USE)
        return watch(f);
    if (!identity_unwritten(&pr->identity, &pr->record))
        return report_error(ESTALE,
                            "%s was written by other means since it was unmapped, while its "
                            "reflection may hold parts of it",
                            pr->path);
    if (map_manifest(f, pr->names.manifest) < 0)
        return -1;
    f->settled = true;
    r->record = pr->record;
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
    int there = lookup_find(pr, r->name, &r->wish);
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
    /* A process that maps or unmaps the file is done with it in a moment. */
    enum locks_answer locked = locks_share(pr->lock, 0, 1);
    if (locked != LOCKS_MINE)
        return locked == LOCKS_TAKEN
                   ? 0
                   : report_errno(errno, "cannot lock the manifest of %s", pr->path);
    int known = look_locked(f);
    KEEP_ERRNO();
    (void)locks_drop(pr->lock, 0, 1);
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
