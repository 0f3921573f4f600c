/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/read/reader.h"

#include "lib/file/clock.h"
#include "lib/file/mutex.h"
#include "lib/file/page.h"
#include "lib/file/views.h"
#include "lib/page/reservation.h"
#include "lib/read/read.h"
#include "lib/recovery/takeover.h"
#include "reflection/media/domain.h"
#include "reflection/media/locks.h"
#include "reflection/media/report.h"
#include "reflection/pairing/lookup.h"
#include "reflection/recovery/pairing_open.h"

#include "ato_engine.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

/* How long a read waits: for pages that are written to all the time, or that a living process is about to free after
 * another one died. While the file is plain, each wait ends (is_young()), so it may be longer. */
enum { PLAIN_PATIENCE_MS = 2000 };
unsigned reader_patience_ms = 1000; /* a test's may be shorter */

static uint64_t ms_since(uint64_t ns)
{
    return (clock_ns() - ns) / 1000000;
}

/* ---- in which state the file is ---- */

/* Implements pairing_wish.join; arg: the struct file. */
static int watch(struct pairing *pr, void *arg)
{
    struct file *f = arg;
    struct shared shared;
    pr->slot = MANIFEST_SLOTS; /* none */
    f->persist = pr->persist;
    f->sparse = pr->record.format == LAYOUT_SPARSE;
    f->logged = pr->record.format == LAYOUT_LOG;
    if (locks_try(pr->lock, F_RDLCK, PAIRING_READERS, 1) != LOCKS_MINE)
        return report_errno(errno, "cannot lock the manifest of %s for reading", pr->path);
    int r = shared_join(&shared, &pr->record, &pr->identity.trust, pr->path, O_RDONLY, &pr->faults);
    if (r == 0 && views_map(f, &shared, pr->size) < 0)
        r = -1;
    if (r != 0) {
        views_unmap(f);
        f->viewed = f->max_size;
        shared_close(&shared, false);
        return r;
    }
    memcpy(&f->shared.ready, &shared.ready, sizeof(shared) - offsetof(struct shared, ready));
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

static int find(struct file *f)
{
    /* Otherwise a forked child could inherit the descriptor of a manifest that is not noted anywhere, and with it
     * a lock. */
    mutex_lock(MUTEX_LOOKING);
    const int found = pairing_find(&f->pairing, &f->reader->wish);
    mutex_unlock(MUTEX_LOOKING);
    return found;
}

/* Finds out how the file is now, notes that, and gives up the attach lock. `found`: the result of the first find(), or of pairing_open(). A process that maps or unmaps the file is done with it in
 * a moment. The caller holds the reader's lock, or is the only one that knows the file. Returns 0; -1: that cannot be told; EAGAIN:
 * recovery is necessary. */
static int find_again(struct file *f, int found)
{
    enum { PATIENCE_MS = 30000, ENDING_MS = 1000 };
    struct reader *r = f->reader;
    struct pairing *pr = &f->pairing;
    unsigned ends = 0;
    for (unsigned i = 0; found > 0 && i < PATIENCE_MS && ends <= ENDING_MS; i++) {
        clock_nap(1000 * 1000);
        found = find(f);
        ends += found == PAIRING_NOT_YET;
    }
    if (found)
        return found < 0 ? -1 : report_aloud();
    if (pr->manifest)
        return pairing_unlock_attach(pr);
    pr->faults = (struct fault_target){.poisoned = &r->own.poisoned};
    r->own.size = pr->identity.size;
    r->sure = !is_young(&pr->identity);
    r->stamp = pr->has_attributes ? 0 : lookup_stamp(pr, r->wish.folder);
    return 0;
}

/* ---- while the file is plain ---- */

/* Returns true if the file is still plain, and no process has written to it in any way. With the reader's lock, after a copy. */
static bool is_unchanged(const struct file *f)
{
    const struct pairing *pr = &f->pairing;
    const struct timespec *known = &pr->identity.ctime;
    struct attribute a;
    struct stat st;
    if (!f->reader->sure || fstat(pr->original, &st) < 0 || st.st_ctim.tv_sec != known->tv_sec ||
        st.st_ctim.tv_nsec != known->tv_nsec)
        return false;
    if (!pr->has_attributes)
        return f->reader->stamp && lookup_stamp(pr, f->reader->wish.folder) == f->reader->stamp;
    return attribute_read(pr->original, pr->path, &a) == ATTRIBUTE_NONE;
}

/* With the reader's lock: copies the range from the file. Returns 1, which counts if the file is unchanged after that;
 * 0: a process has begun to write, or may just have done so; -1 with errno. */
static int copy_plain(struct file *f, uint64_t offset, char *dst, uint64_t n)
{
    if (offset + n > f->reader->own.size)
        return is_unchanged(f) ? reservation_beyond(f, offset + n) : 0;
    FOR_EACH_PAGE(page, begin, bytes, offset, n)
    {
        seam_point(SEAM_VERSION, f);
        if (read_by_word(f, page, (unsigned)begin, (unsigned)bytes, dst) < 0)
            return -1;
        dst += bytes;
    }
    return 1;
}

/* ---- reading ---- */

/* Reports that a page or the size is marked, or is written to all the time. Returns -1 with EAGAIN. */
static int give_up(struct file *f, uint32_t marked)
{
    if (marked && takeover(f, marked) < 0)
        return -1;
    return report_error(EAGAIN, "%s is written to all the time where it is read", f->pairing.path);
}

/* A range that reader_read() copies. */
struct wanted {
    struct file *f;
    uint64_t offset, n;
    char *dst;
    uint64_t *versions;
};

/* Implements reader_pass. */
static int copy_wanted(void *arg, bool watches, uint32_t *marked)
{
    const struct wanted *w = arg;
    return watches ? read_pass(w->f, w->offset, w->dst, w->n, w->versions, marked, false)
                   : copy_plain(w->f, w->offset, w->dst, w->n);
}

/* Returns 1; 0: try again; -1. */
static int try_once(struct file *f, reader_pass *pass, void *arg, uint32_t *marked)
{
    struct reader *r = f->reader;
    int done = 0;
    if (r->plain)
        return pass(arg, false, marked);
    if (reader_watches(f)) {
        *marked = 0;
        done = pass(arg, true, marked);
        /* After the versions: a takeover that fails poisons the file before it removes a mark. */
        return file_check(f) < 0 ? -1 : done;
    }
    pthread_mutex_lock(&r->lock);
    if (!reader_watches(f)) {
        if (r->sure)
            done = pass(arg, false, marked);
        const int error = errno;
        if (done != 0 &&
            !is_unchanged(f)) /* then what was found does not count, nor what was missing */
            done = 0;
        errno = error;
        if (done == 0) {
            r->sure = false;
            done = find_again(f, find(f));
        }
    }
    pthread_mutex_unlock(&r->lock);
    return done;
}

int reader_run(struct file *f, reader_pass *pass, void *arg)
{
    const uint64_t began = clock_ns();
    unsigned tries = 0;
    uint32_t marked = 0;
    int r;
    while ((r = try_once(f, pass, arg, &marked)) <= 0) {
        /* Five tries at least: to copy some GiB may take longer than the wait. */
        const uint64_t waited = ++tries < 5 ? 0 : ms_since(began);
        if (r < 0 && (errno != EAGAIN || waited >= reader_patience_ms))
            return -1;
        if (waited >= reader_patience_ms + (reader_watches(f) ? 0 : PLAIN_PATIENCE_MS))
            return give_up(f, marked);
        seam_point(SEAM_WAIT, f);
        if (r < 0 || !reader_watches(f) || (marked && waited >= 10))
            clock_nap(1000 * 1000);
        else if (marked)
            page_pause(tries);
    }
    return (int)tries;
}

int reader_read(struct mapping *m, uint64_t offset, char *dst, uint64_t n)
{
    struct file *f = m->file;
    struct read_versions v;
    if (f->reader->plain && reader_read_plain(m, offset, dst, n))
        return 0;
    if (file_check(f) < 0)
        return -1;
    if (read_versions_init(&v, page_span_count(offset, n)) < 0)
        return -1;
    struct wanted w = {.f = f, .offset = offset, .n = n, .dst = dst, .versions = v.of};
    const int tries = reader_run(f, copy_wanted, &w);
    read_versions_free(&v);
    if (tries < 0)
        return -1;
    if (reader_watches(f))
        mapping_read_quickly(m);
    if (tries > 1)
        count(m->file, COUNT_READ_RETRIES, (uint64_t)tries - 1);
    return 0;
}

int reader_refresh(struct file *f)
{
    struct wanted nothing = {.f = f};
    uint32_t marked;
    return reader_watches(f) || try_once(f, copy_wanted, &nothing, &marked) >= 0 ? 0 : -1;
}

int reader_size(struct file *f, uint64_t *size)
{
    (void)reader_refresh(f);
    const struct page_state *sizing = &f->shared.header->sizing;
    const uint64_t began = clock_ns();
    while (reader_watches(f) && !(__atomic_load_n(&sizing->version, __ATOMIC_ACQUIRE) & 1)) {
        if (ms_since(began) >= reader_patience_ms)
            return give_up(f, __atomic_load_n(&sizing->holder, __ATOMIC_RELAXED));
        clock_nap(1000 * 1000);
    }
    *size = file_end(f);
    return 0;
}

/* ---- opening ---- */

int reader_open(struct file *f, int fd, const struct identity *identity,
                const struct file_wish *wish)
{
    const char *folder = wish->options->reflection_dir;
    const size_t length = folder ? strlen(folder) + 1 : 0;
    struct reader *r = calloc(1, sizeof(*r) + length);
    if (!r)
        return report_error(ENOMEM, "no memory to map a file");
    pthread_mutex_init(&r->lock, NULL);
    f->reader = r;
    r->wish = (struct pairing_wish){.folder = folder ? memcpy(r->folder, folder, length) : NULL,
                                    .domain = wish->options->domain,
                                    .borrow = wish->options->flags & ATO_BORROW_FD,
                                    .only_looks = true,
                                    .any_file_system = wish->options->flags & ATO_ANY_FILE_SYSTEM,
                                    .join = watch,
                                    .arg = f};
    f->shared.header = &r->own;
    f->threads = r->threads;
    r->own.cut = UINT64_MAX;
    persist_init(&f->persist, domain_of(fd));
    file_set_limit(f, identity->size, wish);
    f->viewed = f->max_size; /* it has no views before it watches */
    const int opened = find_again(f, pairing_open(&f->pairing, fd, identity, &r->wish));
    r->wish.domain = PERSIST_AUTO; /* whichever a process maps it in later */
    r->plain = wish->options->flags & ATO_PLAIN;
    if (opened == 0 && r->plain && f->pairing.manifest)
        return report_error(EBUSY, "%s is not plain, as ATO_PLAIN expects", f->pairing.path);
    return opened;
}
