/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/api/leave.h"

#include "lib/api/files.h"
#include "lib/api/open.h"
#include "lib/commit/journals.h"
#include "lib/commit/plain.h"
#include "lib/file/attach.h"
#include "lib/file/clock.h"
#include "lib/file/views.h"
#include "lib/recovery/peers.h"
#include "reflection/media/fsops.h"
#include "reflection/media/report.h"
#include "reflection/pairing/removal.h"
#include "reflection/recovery/pairing_open.h"
#include "reflection/recovery/sweep.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/stat.h>

/* Returns 0; -1 with ESTALE if another program truncated one of the files: then bytes of the original
 * to deploy to, or bitmap words, may be missing. */
static int check_length(const struct file *f)
{
    struct stat st;
    uint64_t size = file_size(f);
    if (fstat(f->pairing.reflection, &st) < 0)
        return report_errno(errno, "cannot stat the reflection of %s", f->pairing.path);
    if ((uint64_t)st.st_size < layout_reflection_bytes(size))
        return report_error(ESTALE,
                            "another program truncated the reflection of %s while the file was "
                            "mapped: the file cannot be made plain",
                            f->pairing.path);
    if (fstat(f->pairing.original, &st) < 0)
        return report_errno(errno, "cannot stat %s", f->pairing.path);
    if ((uint64_t)st.st_size < size)
        return report_error(ESTALE,
                            "another program truncated %s while it was mapped, to %lld bytes of "
                            "%llu: make it that long again, then unmap it",
                            f->pairing.path, (long long)st.st_size, (unsigned long long)size);
    return 0;
}

/* The state of leave_file() for the last mapping of this process. */
struct leaving {
    struct plain_job job;
    bool plain;
    /* A commit is, or may be, in doubt: the file stays `in use`, and the next map recovers it. */
    bool doubt;
    uint64_t entered; /* shared_header.entered at the last make_ready() */
};

/* Does what has to be done before the last process detaches, or a part of it. With the attach lock. Returns 0: all is
 * done; 1: call again, after other processes could take the lock; -1 with errno. */
static int make_ready(struct file *f, struct leaving *l)
{
    if (l->doubt)
        return 0;
    /* persist-order R4 (reader: W5 in plain.c): words that were not touched since a process died become durable
     * as they are visible. Also before the record of state `clean` is stored, which says so, and not together with
     * it: if that record becomes visible and its writer dies, the process that finds it flushes no words. */
    if (views_lengthen(f, f->pairing.size) < 0 || open_flush_words(f) < 0)
        return -1;
    if (!l->plain)
        return 0;
    /* Other processes may have written to chunks that were deployed. */
    if (l->entered != f->shared.header->entered)
        l->job.next = 0;
    l->entered = f->shared.header->entered;
    return check_length(f) < 0 ? -1 : plain_make(f, &l->job);
}

/* Takes the attach lock and checks whether this is the last process that has the file mapped. Returns 1 if
 * so: the pages that dead processes held are freed, or l->doubt is set; 0 if not; -1 with errno and
 * without the lock. */
static int lock_and_look(struct file *f, struct leaving *l)
{
    struct pairing *pr = &f->pairing;
    /* A process may die between the recovery and the lock: try again. */
    for (int i = 0; i < 100; i++) {
        struct report_kept why = {0};
        if (peers_recover_all(f) < 0)
            report_keep(&why);
        if (attach_lock(f) < 0)
            return -1;
        int others = pairing_others(pr);
        if (others > 0)
            return 0;
        if (others == 0 && (why.error || !peers_any_dead(f))) {
            int r = pairing_refresh(pr);
            if (r == 0)
                r = pairing_refresh_size(pr);
            if (r == 0 && why.error)
                report_again(&why);
            l->doubt = r < 0 || why.error || file_is_poisoned(f);
            return 1;
        }
        (void)attach_unlock(f);
        if (others < 0)
            return -1;
    }
    return report_error(EBUSY,
                        "other processes that have %s mapped died again and again while this one "
                        "unmapped it: try again",
                        pr->path);
}

/* Detaches from a file that no other process has mapped. With the attach lock. The mapping is gone even on
 * failure: the media are consistent, and if the new state could not be written, the next map recovers the
 * file. Returns 0; -1 with errno. */
static int detach_last(struct file *f, const struct leaving *l)
{
    struct pairing *pr = &f->pairing;
    const bool written = f->shared.header->written;
    const bool doubt = l->doubt || file_is_poisoned(f);
    views_unmap(f); /* before mtime is recorded: the kernel moves it for stores through a mapping */
    char shared[sizeof(f->shared.name)];
    memcpy(shared, f->shared.name, sizeof(shared));
    /* Removed as long as the manifest contains its name. */
    bool removed = shared_close(&f->shared, true);
    int r = 0;
    if (l->plain && l->job.options->guard_plain) /* `deployed` has them */
        memcpy(pr->record.guard.plain, l->job.options->guard_plain, pr->record.guard.bytes);
    if (doubt && l->plain)
        r = report_error(EIO,
                         "%s is unmapped, but not plain: a commit is in doubt, which the next map "
                         "of the file finishes or drops",
                         pr->path);
    else if (!doubt)
        r = l->plain ? pairing_remove(pr) : pairing_clean(pr, written);
    /* A journal that a power cut brought back, or whose maker died before a manifest named it. */
    if (r == 0 && l->plain)
        sweep_journals(&pr->folder);
    KEEP_ERRNO();
    if (!removed) /* try again: after this no manifest contains the name */
        (void)fsops->shm_unlink(shared);
    files_destroy(f, true);
    return r;
}

int leave_file(struct file *f, const struct ato_unmap_options *options, bool *kept)
{
    struct leaving l = {.job.options = options,
                        .plain = options->mode == ATO_UNMAP_SPATIAL || !f->pairing.has_attributes};
    *kept = f->mappings == 1 && !f->reader;
    if (!*kept) {
        open_undo(f);
        return 0;
    }
    int last = lock_and_look(f, &l);
    for (int r; last > 0 && (r = make_ready(f, &l)) != 0;) {
        if (attach_unlock(f) < 0 || r < 0)
            return -1;
        clock_nap(5 * 1000 * 1000); /* long enough for a process in locks_wait() to get the lock */
        last = lock_and_look(f, &l);
    }
    if (last < 0)
        return -1;
    pthread_mutex_unlock(&f->attach); /* no other thread is in a call on the file */
    *kept = false;
    files_remove(f);
    journals_detach(f);
    if (last)
        return detach_last(f, &l);
    shared_forget_holder(&f->shared, f->holder);
    attach_leave(f);
    files_destroy(f, false); /* closing its descriptor drops the locks */
    return 0;
}
