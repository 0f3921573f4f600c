/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/read/reader_state.h"

#include "lib/file/mutex.h"
#include "lib/file/views.h"
#include "reflection/media/locks.h"
#include "reflection/media/report.h"
#include "reflection/recovery/pairing_open.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <string.h>

int reader_state_watch(struct pairing *pr, void *arg)
{
    struct file *f = arg;
    struct shared shared;
    pr->slot = MANIFEST_SLOTS; /* none */
    f->persist = pr->persist;
    if (locks_try(pr->lock, F_RDLCK, PAIRING_READERS, 1) != LOCKS_MINE)
        return report_errno(errno, "cannot lock the manifest of %s for reading", pr->path);
    int r = shared_join(&shared, &pr->record, &pr->identity.trust, pr->path, O_RDONLY);
    if (r == 0 && (views_fit(f, &shared) < 0 || views_map(f) < 0))
        r = -1;
    if (r != 0) {
        views_unmap(f);
        shared_close(&shared, false);
        return r < 0 ? -1 : PAIRING_NOT_YET;
    }
    f->settled = shared.header->settled;
    memcpy(&f->shared.slots, &shared.slots, sizeof(shared) - offsetof(struct shared, slots));
    /* Release: a thread that sees the header sees the other fields. From now on the reader watches. */
    __atomic_store_n(&f->shared.header, shared.header, __ATOMIC_RELEASE);
    return 0;
}

/* Returns true if a change after it was asked for might have left the ctime as it is: within the same tick of the clock by
 * which the kernel stamps files, or, on file systems that keep whole seconds, for two seconds. */
static bool is_young(const struct identity *file)
{
    const struct timespec *now = &file->asked, *changed = &file->ctime;
    struct timespec tick;
    const int64_t age =
        (int64_t)(now->tv_sec - changed->tv_sec) * 1000000000 + (now->tv_nsec - changed->tv_nsec);
    return clock_getres(CLOCK_REALTIME_COARSE, &tick) < 0 ||
           (age >= 0 && age < (changed->tv_nsec ? tick.tv_nsec : 2000000000));
}

int reader_state_find(struct file *f)
{
    struct reader *r = f->reader;
    struct pairing *pr = &f->pairing;
    r->sure = false;
    /* Otherwise a forked child could inherit the descriptor of a manifest that is not noted anywhere, and with it
     * a lock. */
    mutex_lock(MUTEX_LOOKING);
    int found = pairing_find(pr, &r->wish);
    mutex_unlock(MUTEX_LOOKING);
    return found < 0 ? -1 : reader_state_note(f);
}

int reader_state_note(struct file *f)
{
    struct reader *r = f->reader;
    struct pairing *pr = &f->pairing;
    if (!reader_state_watches(f)) {
        f->settled = true;
        r->own.size = pr->manifest ? pr->size : pr->identity.size;
        r->sure = !is_young(&pr->identity);
    }
    if (!pr->manifest)
        return 0;
    f->persist = pr->persist;
    return pairing_unlock_attach(pr);
}
