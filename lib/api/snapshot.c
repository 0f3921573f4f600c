/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The public calls on snapshots. undo.h explains how a snapshot and the commits find each other.
 *
 * A caller's handle is a number, as that of a transaction is (handle.h): the snapshot's place in a table, and how often that place
 * was used before.
 *
 * A process that may only read a file whose pages nobody has in memory reads the file itself: then a snapshot lasts until the file
 * changes, which its ctime tells (reader.h).
 */
#include "lib/api/snapshot.h"

#include "ato_engine.h"

#include "lib/commit/number.h"
#include "lib/file/calls.h"
#include "lib/file/clock.h"
#include "lib/file/mutex.h"
#include "lib/file/space.h"
#include "lib/file/undo.h"
#include "lib/file/views.h"
#include "lib/page/reservation.h"
#include "lib/read/guard.h"
#include "lib/read/range.h"
#include "lib/read/read.h"
#include "lib/read/reader.h"
#include "lib/recovery/takeover.h"
#include "reflection/media/report.h"
#include "reflection/pairing/guard.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

struct snapshot {
    uint64_t handle; /* 0: not open */
    uint64_t generation;
    struct mapping *m;
    uint64_t size;
    uint64_t *entry; /* in the table; NULL: `changed` counts */
    uint64_t number;
    bool newest;             /* it begins with what may not be durable */
    struct timespec changed; /* ctime of the plain file */
    /* ato_snapshot_seek() */
    uint64_t sought;
    struct space_words words;
};

/* Place 0 is never used. Guarded by MUTEX_SNAPSHOTS; those that are made stay. */
struct snapshot *snapshot_places[SNAPSHOT_PLACES];

/* ---- handles ---- */

/* In a forked child all snapshots are the parent's: it has none of their mappings. */
static struct snapshot *find(const ato_snapshot *handle)
{
    const uint64_t h = (uint64_t)(uintptr_t)handle;
    struct snapshot *s = __atomic_load_n(&snapshot_places[h % SNAPSHOT_PLACES], __ATOMIC_ACQUIRE);
    if (s && h && __atomic_load_n(&s->handle, __ATOMIC_ACQUIRE) == h)
        return s;
    return report_null(EINVAL, "%p is no open snapshot of this process", (const void *)handle);
}

/* Returns a snapshot that is not open; NULL with EAGAIN, ENOMEM. With MUTEX_SNAPSHOTS. */
static struct snapshot *take_place(void)
{
    unsigned i = 1;
    while (i < SNAPSHOT_PLACES && snapshot_places[i] && snapshot_places[i]->m)
        i++;
    if (i == SNAPSHOT_PLACES)
        return report_null(EAGAIN, "%d snapshots are open in this process", SNAPSHOT_PLACES - 1);
    struct snapshot *s = snapshot_places[i] ? snapshot_places[i] : calloc(1, sizeof(*s));
    if (!s)
        return report_null(ENOMEM, "no memory for a snapshot");
    *s = (struct snapshot){.generation = (s->generation ? s->generation : i) + SNAPSHOT_PLACES};
    __atomic_store_n(&snapshot_places[i], s, __ATOMIC_RELEASE);
    return s;
}

void snapshot_forget_all(void)
{
    for (unsigned i = 1; i < SNAPSHOT_PLACES && snapshot_places[i]; i++)
        snapshot_places[i]->handle = 0, snapshot_places[i]->m = NULL;
}

/* ---- commits get numbers ---- */

/* A process that may only read the memory of the pages: does its user have the right to write to the file? */
static int number_by_writing(const struct file *f)
{
    const int fd CLOSING = folder_reopen(f->pairing.original, O_RDWR);
    if (fd < 0)
        return report_error(EACCES,
                            "no snapshots of %s are taken yet: the first one has to be taken by a "
                            "process that may write to the file and has mapped it",
                            f->pairing.path);
    void *base = ato_mmap(NULL, PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    int r = base == MAP_FAILED || number_commits(table_find(base)->file) < 0 ? -1 : 0;
    KEEP_ERRNO();
    if (base != MAP_FAILED && ato_munmap(base, PAGE_BYTES, ATO_UNMAP_FAST) < 0)
        r = -1;
    return r;
}

/* ---- begin ---- */

/* Pauses in iteration i of a wait for a page of a commit that becomes visible. Returns 0; -1 with errno. */
static int pause_for(struct file *f, const struct page_state *s, unsigned i, uint64_t *began)
{
    enum { ROUNDS = 1024 };
    const struct page_state *showing = &f->shared.header->undo.showing;
    page_pause(i);
    if (i % ROUNDS != ROUNDS - 1)
        return 0;
    if (file_check(f) < 0)
        return -1;
    const uint64_t now = clock_ns(),
                   patience = f->reader ? reader_patience_ms : reservation_patience_ms();
    *began = *began ? *began : now;
    if (!f->reader || now - *began >= patience * 1000000)
        if (takeover(f, __atomic_load_n(&s->holder, __ATOMIC_RELAXED)) < 0 ||
            takeover(f, __atomic_load_n(&showing->holder, __ATOMIC_RELAXED)) < 0)
            return -1;
    return now - *began < patience * 1000000
               ? 0
               : report_error(f->reader ? EAGAIN : ETIMEDOUT,
                              "a commit to %s does not end: its process may be stopped",
                              f->pairing.path);
}

/* Returns 1: the snapshot begins; 0: try again; -1. */
static int try_to_begin(struct snapshot *s, struct file *f, unsigned i, uint64_t *began)
{
    const struct shared_header *h = f->shared.header;
    const struct shared_undo *u = &h->undo;
    const uint64_t *from = s->newest ? &u->shown : &u->moment;
    uint64_t own = UNDO_BEGINNING | __atomic_load_n(from, __ATOMIC_ACQUIRE);
    __atomic_store_n(s->entry, own, __ATOMIC_RELEASE);
    /* Before the look at `begun`: pairs with the one in undo_begin(). */
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    const uint64_t begun = __atomic_load_n(&u->begun, __ATOMIC_ACQUIRE);
    /* If nobody has `showing`, it is visible by now; or its takeover failed: then it is not, and the next one that takes `showing` sees the entry. */
    for (; __atomic_load_n(from, __ATOMIC_ACQUIRE) < begun &&
           __atomic_load_n(&u->showing.holder, __ATOMIC_ACQUIRE);
         i++)
        if (pause_for(f, &u->showing, i, began) < 0)
            return -1;
    s->number = __atomic_load_n(from, __ATOMIC_ACQUIRE);
    /* The size, if no later commit has changed it, or is about to. */
    const uint64_t version = __atomic_load_n(&h->sizing.version, __ATOMIC_ACQUIRE);
    s->size = __atomic_load_n(&h->size, __ATOMIC_ACQUIRE);
    if (!(version & 1) || page_content(version) > s->number ||
        __atomic_load_n(&h->sizing.version, __ATOMIC_ACQUIRE) != version)
        return 0;
    /* It may have been given up meanwhile. */
    return __atomic_compare_exchange_n(s->entry, &own, s->number, false, __ATOMIC_ACQ_REL,
                                       __ATOMIC_RELAXED);
}

static int begin_numbered(struct snapshot *s, struct file *f)
{
    uint64_t began = 0;
    int r;
    if (!number_is_ready(f) && (f->reader ? number_by_writing(f) : number_commits(f)) < 0)
        return -1;
    if (undo_map(f) < 0)
        return -1;
    mutex_lock(MUTEX_SNAPSHOTS);
    s->entry = undo_take_entry(f);
    mutex_unlock(MUTEX_SNAPSHOTS);
    if (!s->entry)
        return -1;
    for (unsigned i = 0; (r = try_to_begin(s, f, i, &began)) == 0; i++)
        if (pause_for(f, &f->shared.header->sizing, i, &began) < 0)
            return -1;
    return r;
}

/* Implements reader_pass. */
static int begin_plain(void *arg, bool watches, uint32_t *marked)
{
    (void)watches;
    struct snapshot *s = arg;
    const struct file *f = s->m->file;
    *marked = 0;
    s->size = f->shared.header->size;
    s->changed = f->pairing.identity.ctime;
    return 1;
}

static int begin(struct snapshot *s)
{
    struct file *f = s->m->file;
    if (file_check(f) < 0 || (f->reader && reader_run(f, begin_plain, s) < 0))
        return -1;
    if ((!f->reader || reader_watches(f)) && begin_numbered(s, f) < 0)
        return -1;
    if (s->size > f->max_size)
        return report_error(EFBIG,
                            "%s is %llu bytes long, and this process mapped it with a max_size of "
                            "%llu: map it with a larger max_size",
                            f->pairing.path, (unsigned long long)s->size,
                            (unsigned long long)f->limit);
    return s->entry ? views_reach(f, s->size) : 0;
}

static void end(struct snapshot *s)
{
    KEEP_ERRNO();
    mutex_lock(MUTEX_SNAPSHOTS);
    if (s->entry)
        __atomic_store_n(s->entry, UNDO_FREE, __ATOMIC_RELEASE);
    count_open(s->m, -1ull);
    s->m = NULL;
    mutex_unlock(MUTEX_SNAPSHOTS);
}

static ato_snapshot *begin_at(const void *addr, bool newest)
{
    struct mapping *m = table_expect(addr);
    if (!m)
        return NULL;
    CALL_ON(call, m);
    mutex_lock(MUTEX_SNAPSHOTS);
    struct snapshot *s = take_place();
    if (s) {
        s->m = m;
        s->newest = newest;
    }
    mutex_unlock(MUTEX_SNAPSHOTS);
    if (!s)
        return NULL;
    count_open(m, 1);
    if (begin(s) < 0) {
        end(s);
        return NULL;
    }
    __atomic_store_n(&s->handle, s->generation, __ATOMIC_RELEASE);
    return (ato_snapshot *)(uintptr_t)s->generation;
}

ato_snapshot *ato_snapshot_begin(const void *addr)
{
    return begin_at(addr, false);
}

ato_snapshot *ato_snapshot_newest(const void *addr)
{
    return begin_at(addr, true);
}

int ato_snapshot_end(ato_snapshot *handle)
{
    struct snapshot *s = find(handle);
    uint64_t is = (uint64_t)(uintptr_t)handle;
    if (!s ||
        !__atomic_compare_exchange_n(&s->handle, &is, 0, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
        return -1;
    end(s);
    return 0;
}

/* ---- read ---- */

static int say_stale(const struct file *f)
{
    return report_error(
        ESTALE,
        "this snapshot of %s is given up: what others have changed since takes more "
        "memory than snapshot_bytes (ATO_SNAPSHOT_BYTES), or /dev/shm is full; or "
        "the file was plain, and others write to it now. Take a new one",
        f->pairing.path);
}

/* What is read of a plain file. */
struct plain_read {
    const struct snapshot *s;
    uint64_t offset, n;
    char *to;
};

/* Implements reader_pass. Fails unless the plain file is still what it was. */
static int read_plain(void *arg, bool watches, uint32_t *marked)
{
    const struct plain_read *r = arg;
    struct file *f = r->s->m->file;
    const struct timespec *now = &f->pairing.identity.ctime, *then = &r->s->changed;
    char *to = r->to;
    *marked = 0;
    if (watches || now->tv_sec != then->tv_sec || now->tv_nsec != then->tv_nsec)
        return say_stale(f);
    FOR_EACH_PAGE(page, begin, bytes, r->offset, r->n)
    {
        if (read_by_word(f, page, (unsigned)begin, (unsigned)bytes, to) < 0)
            return -1;
        to += bytes;
    }
    return 1;
}

/* `alone`: the read is of this page. Then its state is loaded, for the next read; of many pages the states would take memory. */
static int read_page(const struct snapshot *s, uint64_t page, unsigned begin, unsigned n, char *dst,
                     bool alone)
{
    struct file *f = s->m->file;
    uint64_t began = 0;
    for (unsigned i = 0;; i++) {
        const struct page_state *at = shared_peek(&f->shared, page);
        const uint64_t version = at ? __atomic_load_n(&at->version, __ATOMIC_ACQUIRE) : 0;
        if (!version && alone && !f->reader && page * PAGE_BYTES < file_size(f)) {
            if (load_look(f, page))
                continue;
            if (errno != EFAULT) /* it was cut off just now */
                return -1;
            alone = false;
        }
        if (!version || ((version & 1) && page_content(version) <= s->number)) {
            int r = 0;
            seam_point(SEAM_VERSION, f);
            RACES_MEANT_BEGIN(); /* as in read_at_once() */
            if (version)
                r = read_copy(f, at, page, begin, n, dst, version);
            else
                r = read_by_word(f, page, begin, n, dst);
            RACES_MEANT_END(dst, n);
            seam_point(SEAM_CHECK, f);
            __atomic_thread_fence(__ATOMIC_ACQUIRE);
            at = at ? at : shared_peek(&f->shared, page);
            if (r < 0 ||
                (r == 0 && (at ? __atomic_load_n(&at->version, __ATOMIC_RELAXED) : 0) == version))
                return r;
            if (r > 0 && pause_for(f, at, i, &began) < 0)
                return -1;
            continue;
        }
        const int found = undo_find(f, s->number, page, begin, n, dst);
        /* Once the snapshot is given up its copies may be used anew, twice too: then they look as they were. */
        if (found == UNDO_FOUND && __atomic_load_n(s->entry, __ATOMIC_RELAXED) != s->number)
            return say_stale(f);
        if (found == UNDO_FOUND || found < 0)
            return found < 0 ? -1 : 0;
        if (found == UNDO_NONE && (version & 1) &&
            __atomic_load_n(&at->version, __ATOMIC_RELAXED) == version)
            return say_stale(f);
        if (pause_for(f, at, i, &began) < 0)
            return -1;
    }
}

ssize_t ato_snapshot_read(ato_snapshot *handle, void *dst, off_t offset, size_t n)
{
    const struct snapshot *s = find(handle);
    char *to = dst;
    if (!s)
        return -1;
    struct mapping *m = s->m;
    CALL_ON(call, m);
    if (offset < 0)
        return report_error(EINVAL, "%lld is not a valid offset", (long long)offset);
    const uint64_t from = (uint64_t)offset;
    n = from < s->size ? lesser(n, s->size - from) : 0;
    if (n == 0)
        return 0;
    if (!dst || !table_is_plain(dst, n))
        return report_error(EINVAL, "%p is not memory for what is read of a snapshot", dst);
    if (!s->entry) {
        struct plain_read plain = {.s = s, .offset = from, .n = n, .to = to};
        if (reader_run(m->file, read_plain, &plain) < 0)
            return -1;
    } else {
        const bool alone = from / PAGE_BYTES == (from + n - 1) / PAGE_BYTES;
        FOR_EACH_PAGE(page, begin, bytes, from, n)
        {
            if (read_page(s, page, (unsigned)begin, (unsigned)bytes, to, alone) < 0)
                return -1;
            to += bytes;
        }
    }
    if (file_check(m->file) < 0) /* after the copy (fault.h) */
        return -1;
    range_count_read(m, n);
    return (ssize_t)n;
}

int ato_snapshot_is_newest(const ato_snapshot *handle)
{
    const struct snapshot *s = find(handle);
    if (!s)
        return -1;
    if (!s->entry)
        return report_error(ENOTSUP, "whether a plain file is as in a snapshot is not known");
    const struct shared_undo *u = &s->m->file->shared.header->undo;
    return __atomic_load_n(&u->begun, __ATOMIC_ACQUIRE) <= s->number &&
           __atomic_load_n(&u->shown, __ATOMIC_ACQUIRE) == s->number;
}

/* ---- holes ---- */

off_t ato_snapshot_seek(ato_snapshot *handle, off_t offset, int whence)
{
    struct snapshot *s = find(handle);
    if (!s)
        return -1;
    CALL_ON(call, s->m);
    struct file *f = s->m->file;
    const uint64_t from = (uint64_t)offset, end = layout_pages(s->size);
    if (whence == SEEK_END && offset == 0)
        return (off_t)s->size;
    if (whence != SEEK_DATA || offset < 0)
        return report_error(EINVAL, "a snapshot has SEEK_DATA from 0 on, and SEEK_END with 0");
    /* A page with a state may have had data; one that gets it now was a hole. */
    uint64_t page = from < s->size ? from / PAGE_BYTES : end, next = page;
    const uint64_t stop = shared_next_state(&f->shared, &next, end) ? next - 1 : end;
    if (page < s->sought || s->sought == 0)
        s->words = (struct space_words){.end = UINT64_MAX};
    if (page < stop && space_skip_zeros(f, &page, stop, &s->words) < 0)
        return -1;
    s->sought = page;
    struct plain_read nothing = {.s = s};
    if (!s->entry && reader_run(f, read_plain, &nothing) < 0)
        return -1;
    /* What was read may be a mixture, if another program overwrote the file. */
    const struct manifest_guard guard = guard_of(f);
    if (f->pairing.reflection >= 0 && guard_check(&f->pairing, &guard, file_end(f)) < 0)
        return -1;
    if (page == end)
        return report_error(ENXIO, "a snapshot of %llu bytes has no data from byte %llu on",
                            (unsigned long long)s->size, (unsigned long long)from);
    return page * PAGE_BYTES > from ? (off_t)(page * PAGE_BYTES) : offset;
}
