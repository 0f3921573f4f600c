/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/api/files.h"

#include "lib/api/options.h"
#include "lib/commit/deploy.h"
#include "lib/commit/lanes.h"
#include "lib/commit/later.h"
#include "lib/commit/log.h"
#include "lib/file/attach.h"
#include "lib/file/clock.h"
#include "lib/file/mutex.h"
#include "lib/file/place.h"
#include "lib/file/views.h"
#include "lib/read/guard.h"
#include "lib/read/reader.h"
#include "lib/recovery/takeover.h"
#include "reflection/media/domain.h"
#include "reflection/media/fsops.h"
#include "reflection/media/locks.h"
#include "reflection/media/report.h"
#include "reflection/pairing/guard.h"
#include "reflection/pairing/length.h"
#include "reflection/pairing/meta.h"
#include "reflection/pairing/removal.h"
#include "reflection/recovery/pairing_open.h"

#include "ato_engine.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- the list of files ---- */

/* Guarded by MUTEX_FILES: one for the process, since mapping and unmapping are rare. No call that moves
 * data takes it. */
static struct file *all;

/* Returns the file with this inode, mapped for reading only or not; NULL if there is none. */
static struct file *find(const struct identity *identity, bool reader)
{
    struct file *f = all;
    while (f && (f->pairing.identity.inode != identity->inode ||
                 f->pairing.identity.device != identity->device || !f->reader == reader))
        f = f->next;
    return f;
}

static void remove_file(struct file *f)
{
    struct file **at = &all;
    while (*at != f)
        at = &(*at)->next;
    *at = f->next;
}

/* Frees a file that is not in the list (any more). Closing its descriptors drops its locks. Keeps errno. `remove_shared`: no
 * other process uses the shared memory. */
static void destroy(struct file *f, bool remove_shared)
{
    KEEP_ERRNO();
    views_unmap(f);
    shared_close(&f->shared, remove_shared);
    pairing_close(&f->pairing);
    free(f->reader);
    free(f);
}

void files_exit(void)
{
    /* The lock is taken if exit() was called within a call of the library, or another thread is in one.
     * Then the state is left as after a kill. */
    if (pthread_mutex_trylock(&mutexes[MUTEX_FILES]) != 0)
        return;
    /* Does not wait: if another process has the attach lock, the object stays, and the next map
     * removes it. */
    for (struct file *f = all; f; f = f->next) {
        if (__atomic_load_n(&f->later, __ATOMIC_RELAXED) != LATER_NONE)
            (void)fsops->fdatasync(f->pairing.reflection);
        if (f->reader || locks_try(f->pairing.lock, F_WRLCK, 0, 1) != LOCKS_MINE)
            continue;
        if (pairing_others(&f->pairing) == 0)
            (void)shared_unlink(&f->shared, f->shared.header);
        (void)locks_drop(f->pairing.lock, 0, 1);
    }
    mutex_unlock(MUTEX_FILES);
}

void files_forget(void)
{
    for (struct file *f = all, *next; f; f = next) {
        next = f->next;
        /* The child did not inherit the views, and unlocks nothing: that would drop the parent's locks. */
        f->o_window.base = f->r_window.base = f->log_window.base = NULL;
        f->shared.head.base = f->shared.states.base = f->shared.placed.base = NULL;
        if (f->shared.table.base)
            close(f->shared.table_fd);
        f->shared.undo.base = f->shared.table.base = NULL;
        f->pairing.manifest = NULL;
        close(f->pairing.lock); /* closed already by locks_forget(), unless its table was full */
        f->pairing.lock = -1;
        destroy(f, false);
    }
    all = NULL;
}

/* ---- opening ---- */

/* Makes all words durable as they are visible (R4, for the whole file). Meta pages that are holes have none. Returns 0; -1 with
 * errno. */
static int flush_words(struct file *f)
{
    const uint32_t format = file_format(f);
    const uint64_t places = file_places(f, f->pairing.size), each = layout_chunk(format);
    if (places == UINT64_MAX)
        return -1;
    FOR_EACH_META(chunk, f->pairing.reflection, format, 0, (places + each - 1) / each)
    {
        if (persist_flush_any(&f->persist, f->r + layout_meta_page(format, chunk), PAGE_BYTES) < 0)
            return report_errno(errno, "cannot make the bitmaps of %s durable", f->pairing.path);
    }
    persist_fence(&f->persist);
    return 0;
}

/* For the first process that attaches: makes new shared memory, and removes that of dead processes.
 * With the attach lock. Returns 0; -1 with errno. */
static int attach_first(struct file *f, const struct ato_options *o)
{
    struct pairing *pr = &f->pairing;
    uint64_t generation = pr->record.shm_generation;
    /* A system call at the first touch of each page would cost far more. */
    const bool flushed = f->logged || f->sparse;
    if (flushed && !pr->settled && flush_words(f) < 0)
        return -1;
    if (!pr->record.guard.bytes &&
        guard_make(&pr->record.guard, o->guard_offset, o->guard_plain, o->guard_bytes) < 0)
        return -1;
    if (pr->newborn && pr->record.guard.bytes) {
        memcpy(pr->record.guarded, o->guard_plain, pr->record.guard.bytes);
        pr->record.guard.first = !!(o->flags & ATO_MASK_FIRST);
    }
    pr->record.domain = f->persist.domain;
    pr->record.device = pr->identity.device;
    identity_boot(pr->record.boot_id);
    /* The first record names the object that is made next, so that after a kill the next process removes that. */
    if (pr->newborn && pairing_use(pr, generation + 1) < 0)
        return -1;
    if (pr->before.inode && memcmp(pr->before.id, pr->record.id, 16) != 0 &&
        shared_remove(&pr->before, &pr->identity.trust) < 0)
        return -1;
    if (shared_create(&f->shared, &pr->record, &generation, f->max_size, pr->size,
                      &pr->identity.trust, &pr->faults) < 0)
        return -1;
    f->shared.header->settled = flushed || pr->settled;
    f->shared.header->written = !pr->settled; /* a process that died did not stamp what it wrote */
    if (place_build(f, pr->size) < 0 || (f->logged && log_attach(f) < 0) || attach_enter(f) < 0)
        return -1;
    return pr->newborn && generation == pr->record.shm_generation ? 0 : pairing_use(pr, generation);
}

/* Implements pairing_wish.join. */
static int attach_to_others(struct pairing *pr, void *arg)
{
    struct file *f = arg;
    const int r =
        shared_join(&f->shared, &pr->record, &pr->identity.trust, pr->path, O_RDWR, &pr->faults);
    f->logged = pr->record.format == LAYOUT_LOG;
    return r ? r : file_refresh_size(f) < 0 ? -1 : attach_enter(f);
}

/* Returns 0; -1 with EBUSY if this process has mapped another file with the same id: one is an image of the
 * other (a snapshot, a copied file system). Pages and locks are ordered by id, so two files must not share
 * it. */
static int check_not_mapped_twice(const struct file *f)
{
    for (const struct file *g = all; g; g = g->next)
        if (!g->reader && memcmp(g->pairing.record.id, f->pairing.record.id, 16) == 0)
            return report_error(
                EBUSY,
                "%s and %s, which this process has mapped, have the same id: one is an "
                "image of the other. Unmap that file first",
                f->pairing.path, g->pairing.path);
    return 0;
}

/* Closes a file that this process has never written to, in any state, as if this process had died; and frees f. Keeps errno. */
static void abandon(struct file *f)
{
    KEEP_ERRNO();
    const bool last = !f->reader && locks_wait(f->pairing.lock, F_WRLCK, 0, 1) == 0 &&
                      pairing_others(&f->pairing) == 0;
    /* Nothing is in its reflection if no other process had it mapped. */
    if (last && f->pairing.newborn && (!f->shared.header || f->shared.header->entered <= 1))
        removal_of_failed_birth(&f->pairing);
    attach_leave(f);
    destroy(f, last);
}

static_assert(ATO_FORMAT_SPARSE - ATO_FORMAT_DENSE == (int)LAYOUT_SPARSE &&
                  ATO_FORMAT_LOG - ATO_FORMAT_DENSE == (int)LAYOUT_LOG,
              "the formats of ato.h are those of the media, from 1 on");

/* Opens a file for writing: fills in *f. Returns 0; -1 with errno, and the caller closes what is open. */
static int make_writer(struct file *f, int fd, const struct identity *identity,
                       const struct file_wish *wish)
{
    pthread_mutex_init(&f->medium, NULL);
    pthread_mutex_init(&f->attach, NULL);
    const int domain = options_domain(wish->options);
    struct pairing_wish pw = {.folder = wish->options->reflection_dir,
                              .for_log = wish->options->log_dir,
                              .log_bytes = wish->options->log_bytes,
                              .domain = domain,
                              .format = wish->options->format - ATO_FORMAT_DENSE,
                              .borrow = wish->options->flags & ATO_BORROW_FD,
                              .any_file_system = wish->options->flags & ATO_ANY_FILE_SYSTEM,
                              .prefer_file = wish->options->flags & ATO_PREFER_FILE,
                              .prefer_reflection = wish->options->flags & ATO_PREFER_REFLECTION,
                              .is_used = shared_is_used,
                              .join = attach_to_others,
                              .arg = f};
    if (domain < 0 || pairing_open(&f->pairing, fd, identity, &pw) < 0)
        return -1;
    f->persist = f->pairing.persist;
    f->sparse = f->pairing.record.format == LAYOUT_SPARSE;
    f->logged = f->pairing.record.format == LAYOUT_LOG;
    file_set_limit(f, f->pairing.size, wish);
    f->relaxed_ms = wish->options->relaxed_ms;
    f->snapshot_bytes = wish->options->snapshot_bytes;
    f->holes_fault = domain_is_memory(f->pairing.original) != 0;
    f->r_holes_fault = domain_is_memory(f->pairing.reflection) != 0;
    if (check_not_mapped_twice(f) < 0 || views_map(f, &f->shared, f->pairing.size) < 0 ||
        (!f->pairing.joined && attach_first(f, wish->options) < 0) || file_check(f) < 0 ||
        pairing_unlock_attach(&f->pairing) < 0)
        return -1;
    if (f->pairing.joined)
        (void)takeover_all(f); /* if it fails, the calls that need it report the error */
    return 0;
}

static struct file *make(int fd, const struct identity *identity, const struct file_wish *wish)
{
    struct file *f = calloc(1, sizeof(*f));
    if (!f)
        return report_null(ENOMEM, "no memory to map a file");
    struct pairing *pr = &f->pairing;
    pr->original = pr->reflection = pr->lock = pr->folder.fd = f->shared.fd = -1;
    const int r = wish->access == O_RDWR ? make_writer(f, fd, identity, wish)
                                         : reader_open(f, fd, identity, wish);
    if (r < 0) {
        /* The entries of a sparse reflection are checked only now: pairing_open() has not set it aside. */
        const bool anew = errno == EUCLEAN && (wish->options->flags & ATO_PREFER_FILE) &&
                          f->sparse && !pr->joined && removal_forget(pr) == 0;
        abandon(f);
        return anew ? make(fd, identity, wish) : NULL;
    }
    f->next = all;
    all = f;
    return f;
}

static int fits(const struct file *f, const struct file_wish *wish)
{
    const struct ato_options *o = wish->options;
    const bool plain = f->reader && f->reader->plain;
    if (plain != (o->flags & ATO_PLAIN ? true : false))
        return report_error(EBUSY, "this process has %s mapped already, with%s ATO_PLAIN",
                            f->pairing.path, plain ? "" : "out");
    if (f->pairing.borrowed || (o->flags & ATO_BORROW_FD))
        return report_error(EBUSY,
                            "this process has %s mapped already, and with ATO_BORROW_FD a file can "
                            "be mapped only once",
                            f->pairing.path);
    if (domain_check(f->persist.domain, o->domain, f->pairing.path) < 0)
        return -1;
    if (o->max_size > f->limit || wish->end > f->max_size)
        return report_error(
            EFBIG,
            "%s is mapped with a max_size of %llu bytes; a mapping up to byte %llu does not fit. "
            "Unmap it, then map it with a larger max_size",
            f->pairing.path, (unsigned long long)f->limit,
            (unsigned long long)(o->max_size > wish->end ? o->max_size : wish->end));
    return file_check(f);
}

/* Adds n, and returns how many mappings of the file there are. */
static unsigned count_mappings(struct file *f, int n)
{
    f->mappings += (unsigned)n;
    if (!f->reader)
        f->shared.slots[f->pairing.slot].mappings = (uint16_t)f->mappings;
    return f->mappings;
}

struct file *files_open(int fd, const struct file_wish *wish)
{
    struct identity identity;
    if (identity_of(fd, &identity) < 0)
        return NULL;
    /* Prefers a file that was opened for writing, even if this descriptor is read-only. */
    struct file *f = find(&identity, false);
    if (!f && wish->access != O_RDWR)
        f = find(&identity, true);
    if (!f)
        f = make(fd, &identity, wish);
    else if (fits(f, wish) < 0)
        return NULL;
    if (f)
        count_mappings(f, 1);
    return f;
}

void files_undo(struct file *f)
{
    if (count_mappings(f, -1))
        return;
    remove_file(f);
    abandon(f);
}

/* ---- leaving, with the last mapping ---- */

/* The state of files_leave() for the last mapping of this process. */
struct leaving {
    struct plain_job job;
    bool plain;
    bool complete; /* pairing_is_complete(), before anything was deployed */
    /* A commit is, or may be, in doubt, or there are no views: the file stays `in use`, and the next map recovers it. */
    bool doubt;
    unsigned deaths;
    uint64_t entered; /* shared_header.entered at the last make_ready() */
};

/* Checks, before slices come home, that no other program changed the length of one of the files, or overwrote the original: both
 * sides stay as they are. Such changes count where the reflection holds nothing. With the attach lock. Returns 0; -1 with ESTALE. */
static int check_unchanged(struct file *f, struct leaving *l)
{
    struct pairing *pr = &f->pairing;
    struct report_kept why;
    const off_t r = fsops_length(pr->reflection);
    if (r < 0)
        return report_errno(errno, "cannot find the length of the reflection of %s", pr->path);
    if (file_size(f) !=
        pr->size) /* I5: a process that may write to it may have stored anything there */
        return report_error(EUCLEAN,
                            "the shared memory of %s is damaged: it tells a size of %" PRIu64
                            ", and the manifest %" PRIu64,
                            pr->path, file_size(f), pr->size);
    if ((uint64_t)r < layout_reflection_bytes(file_format(f), pr->size))
        return report_error(ESTALE,
                            "another program truncated the reflection of %s while the file was "
                            "mapped: the file cannot be made plain",
                            pr->path);
    if ((growth_settle(pr) == 0 && guard_check(pr, &pr->record.guard, pr->size) == 0) ||
        l->complete)
        return 0;
    report_keep(&why);
    if (errno == ESTALE && l->job.next == 0) {
        const int complete = pairing_is_complete(pr);
        l->complete = complete == 1;
        if (complete)
            return complete < 0 ? -1 : 0;
    }
    return report_again(&why);
}

/* Does what has to be done before the last process detaches, or a part of it. With the attach lock. `freed`: the pages that dead
 * processes held. Returns 0: all is done; 1: call again, after other processes could take the lock; -1 with errno. */
static int make_ready(struct file *f, struct leaving *l, bool freed)
{
    const bool dead = takeover_is_due(f);
    if (freed && dead && l->deaths++ < 100) /* one has died since */
        return 1;
    l->doubt = dead || pairing_refresh(&f->pairing) < 0 || file_refresh_size(f) < 0 ||
               views_lengthen(f, f->pairing.size) < 0 || file_is_poisoned(f);
    if (l->doubt)
        return 0;
    /* persist-order R4 (reader: W5 in plain.c): words that were not touched since a process died become durable
     * as they are visible. Also before the record of state `clean` is stored, which says so, and not together with
     * it: if that record becomes visible and its writer dies, the process that finds it flushes no words.
     * Sparse: so do page numbers that a dead process stored and did not flush (E2). No page had these places, but the next map
     * would give them to those pages. */
    const bool numbers = f->sparse && f->shared.header->died;
    if ((!f->shared.header->settled || numbers) && flush_words(f) < 0)
        return -1;
    f->shared.header->settled = true;
    /* Other processes may have written to chunks that are done. */
    if (l->entered != f->shared.header->entered) {
        l->job.next = 0;
        l->complete = false;
    }
    l->entered = f->shared.header->entered;
    /* Another program overwrote the file, or gave it another length: what the log has is kept beside it. */
    if (f->logged && !log_is_empty(f) &&
        (guard_check(&f->pairing, &f->pairing.record.guard, f->pairing.size) < 0 ||
         growth_check(&f->pairing) < 0)) {
        l->doubt = !l->plain;
        return l->plain ? -1 : 0;
    }
    if (f->logged && (l->plain ? log_bring_home(f) : log_checkpoint(f)) < 0)
        return -1;
    if (!l->plain)
        return 0;
    return check_unchanged(f, l) < 0 ? -1 : plain_make(f, &l->job);
}

/* Detaches from a file that no other process has mapped. With the attach lock. The mapping is gone even on
 * failure: the media are consistent, and if the new state could not be written, the next map recovers the
 * file. Returns 0; -1 with errno. */
static int detach_last(struct file *f, const struct leaving *l)
{
    struct pairing *pr = &f->pairing;
    const bool written = f->shared.header->written;
    const bool doubt = l->doubt || file_is_poisoned(f);
    const char *cut = doubt ? file_what_is_cut(f) : NULL;
    views_unmap(f); /* before mtime is recorded: the kernel moves it for stores through a mapping */
    shared_close(&f->shared, true); /* as long as the manifest contains its name */
    int r = 0;
    if (l->plain && l->job.options->guard_plain) /* `deployed` has them */
        memcpy(pr->record.guard.plain, l->job.options->guard_plain, pr->record.guard.bytes);
    if (cut && l->plain)
        r = report_error(
            EIO,
            "%s is unmapped, but not plain: another program made %s%s shorter while it "
            "was mapped",
            pr->path, cut, pr->path);
    else if (cut)
        report_log(REPORT_WARNING,
                   "%s is unmapped, and stays 'in use': another program made %s%s shorter while it "
                   "was mapped",
                   pr->path, cut, pr->path);
    else if (doubt && l->plain)
        r = report_error(EIO,
                         "%s is unmapped, but not plain: a commit may be in doubt, which the next "
                         "map of the file finishes or drops",
                         pr->path);
    else if (!doubt && !l->plain)
        r = pairing_clean(pr, written);
    else if (!doubt) {
        if (written)
            pairing_stamp(pr);
        r = pairing_remove(pr, l->complete);
    }
    if (r == 0 && l->plain)
        folder_sweep(&pr->folder);
    destroy(f, true);
    return r;
}

int files_leave(struct file *f, const struct ato_unmap_options *options, bool *kept)
{
    struct leaving l = {.job.options = options,
                        .plain = options->mode == ATO_UNMAP_SPATIAL || !f->pairing.has_attributes};
    *kept = f->mappings == 1 && !f->reader;
    if (!*kept) {
        files_undo(f);
        return 0;
    }
    int others, r;
    later_end(f);
    for (;;) {
        const bool freed = takeover_all(f) == 0;
        if (attach_lock(f) < 0)
            return -1;
        others = pairing_others(&f->pairing);
        r = others ? others : make_ready(f, &l, freed);
        if (r == 0 || others > 0)
            break;
        if (attach_unlock(f) < 0 || r < 0)
            return -1;
        clock_nap(5 * 1000 * 1000); /* long enough for a process in locks_wait() to get the lock */
    }
    pthread_mutex_unlock(&f->attach); /* no other thread is in a call on the file */
    *kept = false;
    remove_file(f);
    lanes_detach(f);
    if (!others)
        return detach_last(f, &l);
    attach_leave(f);
    destroy(f, false); /* closing its descriptor drops the locks */
    return 0;
}
