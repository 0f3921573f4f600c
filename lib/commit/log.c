/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/commit/log.h"

#include "lib/commit/early.h"
#include "lib/commit/later.h"
#include "lib/commit/number.h"
#include "lib/commit/sync.h"
#include "lib/file/clock.h"
#include "lib/file/space.h"
#include "lib/file/under_way.h"
#include "lib/file/undo.h"
#include "lib/page/reservation.h"
#include "lib/recovery/takeover.h"
#include "reflection/format/log.h"
#include "reflection/media/domain.h"
#include "reflection/media/fsops.h"
#include "reflection/media/heap.h"
#include "reflection/media/report.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

static const struct patience plain = {0};

/* ---- the log, as shared memory describes it ---- */

/* On tmpfs, beside a file on a disk, the user has taken it for persistent memory (birth.c). */
static enum persist_domain medium_of(const struct file *f)
{
    const enum persist_domain is = domain_of(f->pairing.reflection);
    if (is != PERSIST_PROCESS)
        return is;
    return domain_of(f->pairing.original) == PERSIST_DISK ? PERSIST_PMEM : PERSIST_DISK;
}

static bool is_stored(const struct file *f)
{
    return sync_log(f)->medium != PERSIST_DISK;
}

int log_attach(struct file *f)
{
    struct shared_log *l = sync_log(f);
    if (file_load_log(f) < 0)
        return -1;
    l->tail = l->durable = l->start;
    l->medium = medium_of(f);
    return 0;
}

/* ---- appending ---- */

enum { BUFFER = 64 << 10 };

/* Bytes of a record on their way to the log. */
struct writer {
    const struct log_file *log;
    uint64_t position; /* of buffer[0] */
    uint64_t used;
    uint32_t checksum; /* of all so far */
    bool failed;
    char *buffer;
};

static void flush(struct writer *w)
{
    w->checksum = log_checksum(w->checksum, w->buffer, w->used);
    w->failed |= log_write(w->log, w->position, w->buffer, w->used) < 0;
    w->position += w->used;
    w->used = 0;
}

static void put(struct writer *w, const void *bytes, size_t n)
{
    if (w->used + n > BUFFER)
        flush(w);
    memcpy(w->buffer + w->used, bytes, n);
    w->used += n;
}

static int say_unwritten(const struct file *f)
{
    return report_errno(errno, "cannot write to the log of %s", f->pairing.path);
}

/* Lets log_write() store to a log on persistent memory: maps it, as long as it is now. The caller has `appending`. */
static int map_log(struct file *f, struct log_file *log)
{
    struct window *w = &f->log_window;
    const uint64_t bytes = LOG_RING_AT + log->header.capacity;
    if (w->base && w->bytes < bytes)
        window_close(w);
    if (!w->base) {
        *w = (struct window){.domain = (enum persist_domain)sync_log(f)->medium,
                             .fd = log->fd,
                             .prot = PROT_READ | PROT_WRITE};
        persist_init(&f->log_persist, w->domain);
        if (window_open(w, bytes, bytes, &f->pairing.faults) < 0)
            return window_no_room(errno, bytes, "the log of ", f->pairing.path);
    }
    log->map = w->base;
    log->persist = &f->log_persist;
    return 0;
}

/* Writes the record of a commit at the tail. */
static int write_record(const struct commit *c, struct log_record *r)
{
    static const char zeros[LOG_UNIT];
    struct file *f = c->m->file;
    struct shared_log *l = sync_log(f);
    struct log_file log;
    char *buffer HEAP = malloc(lesser(r->bytes, BUFFER));
    struct writer w = {.log = &log, .position = l->tail, .buffer = buffer};
    if (!buffer)
        return report_error(ENOMEM, "no memory to commit to %s", f->pairing.path);
    /* A cut log must not become as long as it was by what is written now. */
    if (file_log(f, &log) < 0 || (is_stored(f) ? map_log(f, &log) : sync_check_length(f)) < 0)
        return -1;
    r->magic = LOG_RECORD_MAGIC;
    r->salt = log.header.salt;
    r->position = l->tail;
    put(&w, r, sizeof(*r));
    for (uint64_t i = 0; i < c->set->n; i++) {
        const struct held_page *at = &c->set->pages[i];
        if (at->pending)
            put(&w, &(struct log_page){at->page, at->pending}, sizeof(struct log_page));
    }
    const uint64_t table = r->pages * sizeof(struct log_page) % LOG_UNIT;
    put(&w, zeros, table ? LOG_UNIT - table : 0);
    for (uint64_t i = 0; i < c->set->n; i++) {
        const struct held_page *at = &c->set->pages[i];
        for (uint64_t left = at->pending; left; left &= left - 1)
            put(&w, at->homes.r + (unsigned)__builtin_ctzll(left) * SLICE_BYTES, SLICE_BYTES);
    }
    /* The header comes last: only then is the checksum known. All of a short record is still in the buffer. */
    const bool is_short = w.position == l->tail;
    r->checksum = log_checksum(w.checksum, buffer, w.used);
    if (is_short)
        memcpy(buffer, r, sizeof(*r));
    flush(&w);
    if (w.failed || (!is_short && log_write(&log, l->tail, r, sizeof(*r)) < 0))
        return say_unwritten(f);
    if (!is_stored(f))
        return 0;
    /* persist-order L2 (log.h): here, since a fence of another thread would not do. */
    persist_fence(&f->log_persist);
    if (sync_check_length(f) < 0)
        return -1;
    __atomic_store_n(&l->durable, l->tail + r->bytes, __ATOMIC_RELEASE);
    return 0;
}

/* Where the calling thread counts the records that it has appended: begun and over as in under_way.h. But while one is begun the thread
 * waits for no checkpoint, as it may in a commit. */
static struct tally records_of(const struct file *f)
{
    const unsigned thread = thread_number();
    return (struct tally){&f->threads[thread].records, thread == THREAD_SHARED};
}

static void end_record(const struct file *f, struct tally under_way)
{
    under_way_end(records_of(f));
    under_way_end(under_way);
}

/* May the commit become visible early? A record on persistent memory is durable at once. Writers and readers see a new size at the same time,
 * so only a relaxed commit may have one; and it is larger, without a shrink on the way, which keeps others out (resize.h). Views of plain
 * stores show the file itself, in which it would not be: only its own knows of it. */
static bool is_early(const struct commit *c)
{
    const struct file *f = c->m->file;
    const struct shared_header *h = f->shared.header;
    return (c->promise || c->relaxed) &&
           (!c->resizes || (c->relaxed && c->size > h->size && h->cut == UINT64_MAX)) &&
           !(__atomic_load_n(&h->views_used, __ATOMIC_ACQUIRE) & ~c->set->own_views) &&
           !is_stored(f) && number_is_ready(f);
}

/* Appends a record. Returns 0, and where it ends, and the commit is under way; 1: there is no room; -1 with errno, and nothing is
 * committed. *number: of one that is visible then, early; 0. */
static int append(const struct commit *c, struct log_record *r, uint64_t *end,
                  struct tally *under_way, uint64_t *number)
{
    struct file *f = c->m->file;
    struct shared_log *l = sync_log(f);
    if (reservation_take(f, &l->appending, &plain) < 0)
        return -1;
    int done = file_check(f);
    if (done == 0 &&
        l->tail + r->bytes - __atomic_load_n(&l->start, __ATOMIC_ACQUIRE) > l->capacity)
        done = 1;
    if (done == 0) {
        *under_way = under_way_begin(f);
        tally_add_at(records_of(f).of, under_way->shared, 1);
        done = write_record(c, r);
        if (done < 0)
            end_record(f, *under_way);
    }
    if (done == 0) {
        *end = l->tail + r->bytes;
        shared_log_note_size(l, *end, r->size);
        __atomic_store_n(&l->tail, *end, __ATOMIC_RELEASE);
        if (is_early(c))
            *number = early_show(c, *end);
        if (c->relaxed)
            undo_raise(f, *number);
    }
    page_release(&l->appending);
    return done;
}

/* ---- space ---- */

static int look_after(struct file *f, uint32_t holder, uint64_t until)
{
    if (file_check(f) < 0 || takeover(f, holder) < 0)
        return -1;
    return clock_ns() <= until
               ? 0
               : report_error(ETIMEDOUT,
                              "a commit of a process that is stopped keeps the log of %s from "
                              "being brought into the file",
                              f->pairing.path);
}

/* Waits until what is in the log now is in the file. */
static int wait_for_records(struct file *f)
{
    return under_way_wait_all(f, offsetof(struct shared_thread, records), look_after,
                              clock_ns() + reservation_patience_ms() * 1000000);
}

static const char in_log[] = "what is in the log";

int log_settle_size(struct file *f)
{
    const uint64_t size = __atomic_load_n(&f->shared.header->size, __ATOMIC_ACQUIRE);
    if (!shared_log_has_size(sync_log(f)))
        return 0;
    /* I5: a process that may write to it may have stored anything there. */
    if (size != __atomic_load_n(&sync_log(f)->said, __ATOMIC_RELAXED))
        return report_error(EUCLEAN,
                            "the shared memory of %s is damaged: it tells a size of %llu, and not "
                            "that of its log",
                            f->pairing.path, (unsigned long long)size);
    if (sync_wait(f, sync_tail(f)) < 0)
        return -1;
    /* explorer: tear word survives: the record says the size, until a checkpoint has made the word durable. */
    persist_store_word(&f->persist, show_size_word(f), manifest_encode_size(size));
    return 0;
}

/* The first half of L3: makes durable in the file, and in the manifest, what the records say, which end at `tail`. The word is durable
 * as it is if none of them says a size. */
static int bring_home(struct file *f, uint64_t tail)
{
    if (wait_for_records(f) < 0 || sync_wait(f, tail) < 0 || log_settle_size(f) < 0 ||
        early_bring_home(f) < 0 || file_fdatasync(f, f->pairing.original, in_log) < 0)
        return -1;
    return shared_log_has_size(sync_log(f)) ? file_fdatasync(f, f->pairing.lock, in_log) : 0;
}

/* With `checking`, and `appending`: what becomes visible early meanwhile would not be durable. */
static int check(struct file *f)
{
    struct shared_log *l = sync_log(f);
    struct log_file log;
    const uint64_t tail = l->tail;
    if (bring_home(f, tail) < 0 || file_log(f, &log) < 0)
        return -1;
    log.header.start = tail; /* L3 */
    /* After an error either header may hold, and both are right: the space before the new start is not used again until a later
     * checkpoint has written its header, to the same copy. */
    if (log_write_header(&log) < 0)
        return say_unwritten(f);
    if (file_fdatasync(f, log.fd, in_log) < 0)
        return -1;
    __atomic_store_n(&l->edition, log.header.edition, __ATOMIC_RELAXED);
    __atomic_store_n(&l->start, tail, __ATOMIC_RELEASE);
    return 0;
}

/* For speed alone. */
static int sync_before(struct file *f, int fd)
{
    /* explorer: drop fsync survives: what has to be durable is synced once more. */
    return file_fdatasync(f, fd, in_log);
}

/* Makes the ring as long as `capacity`, which is more than it is. The caller has `checking`. */
static int lengthen(struct file *f, uint64_t capacity)
{
    struct shared_log *l = sync_log(f);
    struct log_file log;
    if (file_log(f, &log) < 0 || sync_check_length(f) < 0)
        return -1;
    const uint64_t was = log.header.capacity;
    if (fsops->fallocate(log.fd, 0, (off_t)(LOG_RING_AT + was), (off_t)(capacity - was)) < 0) {
        const int why = errno;
        /* On a full disk the log may have got all space that was left, which the file may need. */
        (void)fsops->ftruncate(log.fd, (off_t)(LOG_RING_AT + was));
        return report_errno(why, "cannot make the log of %s %llu bytes long", f->pairing.path,
                            (unsigned long long)capacity);
    }
    log.header.capacity = capacity;
    if (log_clear(&log, was, capacity - was) < 0)
        return say_unwritten(f);
    /* The syncs of later commits find nothing but bytes to write. */
    if (sync_before(f, log.fd) < 0)
        return -1;
    if (reservation_take(f, &l->appending, &plain) < 0)
        return -1;
    int r = check(f);
    if (r == 0) {
        log.header = (struct log_header){.edition = l->edition,
                                         .salt = l->salt,
                                         .capacity = capacity,
                                         .origin = l->tail,
                                         .start = l->tail};
        /* Durable with the next record, if that is synced. The header before it says the same of an empty log.
         * persist-order L5 (reader: log_recover): else now, as a fence makes only stores durable: the record has another place than the
         * header before would tell. */
        if (log_write_header(&log) == 0) {
            if (is_stored(f))
                r = file_fdatasync(f, log.fd, in_log);
            __atomic_store_n(&l->edition, log.header.edition, __ATOMIC_RELAXED);
            l->origin = l->tail;
            __atomic_store_n(&l->capacity, capacity, __ATOMIC_RELAXED);
        } else {
            r = say_unwritten(f);
            /* The log may have it nevertheless. Then records have other places. */
            if (file_load_log(f) < 0)
                r = file_in_doubt(f, in_log);
        }
    }
    page_release(&l->appending);
    return r;
}

/* The longest ring that a file gets by itself. */
#define RING_BYTES (16ull << 20)

static int checkpoint_held(struct file *f, uint64_t record)
{
    struct shared_log *l = sync_log(f);
    struct log_file log;
    if (file_log(f, &log) < 0)
        return -1;
    uint64_t capacity = log.header.capacity;
    const uint64_t bound = f->pairing.record.log_bytes;
    const bool fits = record <= capacity;
    if (!fits && bound)
        return report_error(
            ENOSPC,
            "a commit of %llu bytes does not fit into the log of %s, which has %llu "
            "(log_bytes, ATO_LOG_BYTES)",
            (unsigned long long)record, f->pairing.path, (unsigned long long)capacity);
    while (capacity < record && capacity < LAYOUT_MAX_BYTES)
        capacity *= 2;
    if (fits && record && !bound && capacity < RING_BYTES)
        capacity *= 2;
    /* On a full disk a ring that is empty again will do. */
    if (capacity > log.header.capacity) {
        if (lengthen(f, capacity) == 0)
            return 0;
        if (!fits || (errno != ENOSPC && errno != EDQUOT && errno != EFBIG))
            return -1;
    }
    /* Nobody commits while `appending` is held, and this leaves little to sync then. */
    if (record && (sync_wait(f, sync_tail(f)) < 0 || sync_before(f, f->pairing.original) < 0))
        return -1;
    if (reservation_take(f, &l->appending, &plain) < 0)
        return -1;
    const int r = l->tail == l->start ? 0 : check(f);
    page_release(&l->appending);
    return r;
}

/* `record`: bytes that shall fit afterwards. */
static int checkpoint(struct file *f, uint64_t record)
{
    struct shared_log *l = sync_log(f);
    if (reservation_take(f, &l->checking, &plain) < 0)
        return -1;
    /* Another process may just have done it. */
    const bool fits =
        record && __atomic_load_n(&l->tail, __ATOMIC_ACQUIRE) + record - l->start <= l->capacity;
    const int r = fits ? 0 : checkpoint_held(f, record);
    page_release(&l->checking);
    return r;
}

bool log_is_empty(const struct file *f)
{
    const struct shared_log *l = sync_log(f);
    return __atomic_load_n(&l->tail, __ATOMIC_ACQUIRE) ==
           __atomic_load_n(&l->start, __ATOMIC_ACQUIRE);
}

int log_checkpoint(struct file *f)
{
    return checkpoint(f, 0);
}

int log_bring_home(struct file *f)
{
    return log_is_empty(f) ? 0 : bring_home(f, sync_tail(f));
}

/* ---- the commit ---- */

/* A page that was written back takes a fault at its next store, which in a large page of the page cache takes as long as one for all of
 * it: several microseconds. If nothing of a chunk is mapped, the first fault maps a large page as a whole. So at the first commit to a chunk
 * after a checkpoint this view gives up what it has mapped of it. */
static void map_anew(struct file *f, const struct page_set *h)
{
    const uint64_t viewed = __atomic_load_n(&f->viewed, __ATOMIC_ACQUIRE);
    const uint32_t edition =
        (uint32_t)(__atomic_load_n(&sync_log(f)->edition, __ATOMIC_RELAXED) << 16) & CHUNK_EDITION;
    for (uint64_t i = 0; i < h->n; i++) {
        const uint64_t chunk = h->pages[i].page / CHUNK_PAGES, bytes = CHUNK_PAGES * PAGE_BYTES,
                       at = chunk * bytes;
        uint32_t known = __atomic_load_n(&f->chunks[chunk], __ATOMIC_RELAXED);
        if (!h->pages[i].pending || (known & CHUNK_EDITION) == edition)
            continue;
        /* If another thread changes it, the next commit tries again. */
        (void)__atomic_compare_exchange_n(&f->chunks[chunk], &known,
                                          (known & ~CHUNK_EDITION) | edition, false,
                                          __ATOMIC_RELAXED, __ATOMIC_RELAXED);
        (void)madvise(f->o + at, lesser(bytes, viewed - at), MADV_DONTNEED);
    }
}

/* Before the commit point: afterwards a store that meets no space would be too late. */
static int make_storable(struct file *f, const struct page_set *h)
{
    map_anew(f, h);
    for (uint64_t i = 0, n; i < h->n; i += n) {
        const struct held_page *at = &h->pages[i];
        for (n = 1; at->pending && i + n < h->n && at[n].pending && at[n].page == at->page + n;)
            n++;
        if (at->pending && space_keep(at->file, at->page, n) < 0)
            return -1;
    }
    return 0;
}

/* Has a commit been early since the last checkpoint? */
static bool has_early(const struct file *f)
{
    return __atomic_load_n(&f->shared.header->undo.end, __ATOMIC_ACQUIRE) >
           __atomic_load_n(&sync_log(f)->start, __ATOMIC_ACQUIRE);
}

int log_await(struct file *f, const struct ato_promise *promise)
{
    if (promise->end > sync_tail(f) || promise->number > log_shown(f).number)
        return report_error(EINVAL, "the promise is not one of %s as it is mapped now",
                            f->pairing.path);
    if (sync_wait(f, promise->end) < 0)
        return -1;
    undo_raise(f, promise->number);
    return 0;
}

struct ato_promise log_visible(struct file *f)
{
    enum { PAUSES = 1 << 16 }; /* some 100 ms */
    const struct page_state *showing = &f->shared.header->undo.showing;
    const uint64_t before = log_shown(f).number;
    const uint32_t holder = __atomic_load_n(&showing->holder, __ATOMIC_ACQUIRE);
    /* What the caller has read may be of a commit that is just becoming visible, and has no number yet. Not for ever: its process may be
     * stopped. */
    for (unsigned i = 0; i < PAUSES && holder && log_shown(f).number == before &&
                         __atomic_load_n(&showing->holder, __ATOMIC_ACQUIRE) == holder;
         i++)
        if (reservation_await(f, showing, i) < 0)
            break;
    return log_shown(f);
}

int log_commit_nothing(const struct commit *c)
{
    struct file *f = c->m->file;
    if (c->promise)
        *c->promise = log_visible(f);
    else if (c->relaxed)
        undo_raise(f, log_visible(f).number);
    else
        return log_settle(f);
    return file_check(f);
}

int log_show_begin(struct file *f, const struct held_page *pages, uint64_t n, bool late,
                   uint64_t *number)
{
    struct shared_undo *u = &f->shared.header->undo;
    *number = 0;
    if (!file_is_numbered(f))
        return 0;
    if (show_take(f, late) < 0)
        return -1;
    /* By a sync of its own: others may need `showing` to wake it. */
    if (!sync_reaches(f, __atomic_load_n(&u->end, __ATOMIC_ACQUIRE)) &&
        sync_now(f, sync_tail(f)) < 0) {
        page_release(&u->showing);
        return -1;
    }
    /* Before a page changes: readers may go by `moment`. */
    undo_raise(f, u->shown);
    *number = show_number(f, pages, n);
    return 0;
}

int log_commit(const struct commit *c, uint64_t pages, uint64_t slices)
{
    struct file *f = c->m->file;
    struct log_record r = {.bytes = log_record_bytes(pages, slices),
                           .pages = pages,
                           .size = c->resizes ? c->size : LOG_NO_SIZE};
    struct tally under_way = {0};
    uint64_t end = 0, number = 0;
    int done;
    if (c->relaxed && !is_stored(f) && !number_is_ready(f) &&
        !__atomic_load_n(&f->has_no_numbers, __ATOMIC_RELAXED)) {
        KEEP_REPORT();
        if (number_commits(f) < 0)
            __atomic_store_n(&f->has_no_numbers, true, __ATOMIC_RELAXED);
    }
    /* Pages of an early one come home by writes, which may fail: then they stay where they are, and in the log. */
    const bool early = is_early(c);
    if (!early && make_storable(f, c->set) < 0)
        return -1;
    while ((done = append(c, &r, &end, &under_way, &number)) > 0)
        if (checkpoint(f, r.bytes) < 0)
            return -1;
    if (done < 0)
        return -1;
    const bool is_full = early && !number; /* there was no room for another early copy */
    if (number && c->promise) {
        *c->promise = (struct ato_promise){.number = number, .end = end};
    } else if (number) {
        done = later_sync(f) ? 0 : sync_wait(f, end);
    } else {
        /* If it found no room to be early it is in the log already. */
        done = early && make_storable(f, c->set) < 0 ? file_in_doubt(f, "a commit")
                                                     : sync_wait(f, end); /* L2 */
        if (done == 0)
            done = log_show_begin(f, c->set->pages, c->set->n, true, &number);
        if (done == 0) {
            show(c, number);
            show_end(f, number);
        }
    }
    if (done == 0 && pages)
        show_account(f, pages + c->resizes > 1 ? COUNT_COMMITS_JOURNAL : COUNT_COMMITS_SINGLE,
                     slices, pages);
    end_record(f, under_way);
    /* If there was no room for another early copy, those that there are come home. The commit is done, whatever becomes of that. */
    if (done == 0 && c->relaxed && is_full && has_early(f))
        (void)checkpoint(f, 0);
    return done;
}
