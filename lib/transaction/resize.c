/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/transaction/resize.h"

#include "lib/commit/log.h"
#include "lib/file/page.h"
#include "lib/file/space.h"
#include "lib/file/views.h"
#include "lib/page/handle.h"
#include "lib/page/page_set.h"
#include "lib/page/page_set_reserve.h"
#include "lib/page/reservation.h"
#include "lib/read/guard.h"
#include "lib/transaction/claim.h"
#include "lib/transaction/notes.h"
#include "lib/transaction/staging.h"
#include "reflection/media/bitmap.h"
#include "reflection/media/fsops.h"
#include "reflection/media/report.h"
#include "reflection/pairing/length.h"

#include <errno.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static const char zeros[PAGE_BYTES];

/* ---- begin and end ---- */

/* Runs a step that syncs: growth_end(), for example. The kernel reports an earlier failed write-back once, possibly to
 * these syncs: so one at a time, and a lost write poisons the file, as in file_sync(). Returns 0; -1: errors of the
 * step. */
static int on_media(struct file *f, int (*step)(struct pairing *pr, uint64_t size), uint64_t size)
{
    pthread_mutex_lock(&f->medium);
    int r = step(&f->pairing, size);
    if (r == GROWTH_LOST)
        file_poison(f);
    pthread_mutex_unlock(&f->medium);
    return r < 0 ? -1 : 0;
}

/* Another process may have changed the size. */
static int refresh_size(struct file *f)
{
    if (file_refresh_size(f) < 0)
        return -1;
    if (f->pairing.size <= f->max_size)
        return views_reach(f, f->pairing.size);
    return report_error(EFBIG,
                        "%s is now %llu bytes long, and this process mapped it with a max_size of "
                        "%llu: map it with a larger max_size to change its size",
                        f->pairing.path, (unsigned long long)f->pairing.size,
                        (unsigned long long)f->limit);
}

/* Cuts off what an earlier growth or shrink has left beyond the end. `to`: as growth_end(). */
static int cut_back(struct file *f, uint64_t to)
{
    sync_log(f)->ahead = 0;
    /* A power cut must not take the size (of a relaxed commit) and leave the length: no word of the manifest would explain it. */
    if (f->logged && log_settle_size(f) < 0)
        return -1;
    return on_media(f, growth_end, to);
}

/* Has the file a length that it got by a growth, and is the transaction to make use of it, or to give it a larger one? */
static bool goes_on(const struct tx *t, const struct file *f, uint64_t size)
{
    const uint64_t ahead = sync_log(f)->ahead;
    return ahead && !(t->flags & TX_EXACT) && size > f->pairing.size &&
           growth_reached(&f->pairing) == ahead;
}

/* Reserves `sizing`, for a change to `size`. */
static int begin(struct tx *t, struct file *f, uint64_t size)
{
    struct page_state *s = &f->shared.header->sizing;
    struct patience patience = claim_patience(t);
    if (claim_waited(t, reservation_take(f, s, &patience)) < 0)
        return -1;
    __atomic_store_n(&s->tx, page_set_note(t->set.tag, 0), __ATOMIC_RELAXED);
    /* Nobody else changes the size from now on. Has it changed since the transaction read it, or what it read beyond the end? */
    if (file_check(f) < 0 || notes_hold(t) < 0 || refresh_size(f) < 0 ||
        (!goes_on(t, f, size) && cut_back(f, size) < 0)) {
        resize_end(t, f);
        return -1;
    }
    t->sized = true;
    t->size = t->low = f->pairing.size;
    return 0;
}

void resize_end(struct tx *t, struct file *f)
{
    struct page_state *s = &f->shared.header->sizing;
    KEEP_ERRNO(); /* it may end a transaction that failed */
    reservation_end_shrink(f);
    const uint64_t growing = f->growing;
    f->growing = 0;
    /* Cut off what the file got longer by and does not need: otherwise other programs see it longer than it is
     * until its size changes again. No reader has seen those bytes. If this fails, the file
     * stays longer. */
    if (growing > file_size(f) && file_check(f) == 0 && refresh_size(f) == 0)
        (void)cut_back(f, 0);
    __atomic_store_n(&s->tx, 0, __ATOMIC_RELAXED);
    page_release(s);
    t->sized = t->resizes = false;
}

/* ---- shorter ---- */

/* Keeps all others from the pages of the file from `first` on, by `cut`, and waits for those who hold one before `end`. Returns
 * 0; -1 with EIO, or an error of reservation_wait(): `cut` is as it was. */
static int keep_out(const struct tx *t, struct file *f, uint64_t first, uint64_t end)
{
    struct shared_header *h = f->shared.header;
    struct patience patience = claim_patience(t);
    uint64_t page = first, before = h->cut;
    __atomic_store_n(&h->cut, first * PAGE_BYTES, __ATOMIC_RELEASE);
    /* Pairs with reservation_within(): a thread that is not seen to hold a page below sees `cut`. */
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    int result = 0;
    for (struct page_state *s; result == 0 && (s = shared_next_state(&f->shared, &page, end));) {
        if (!__atomic_load_n(&s->holder, __ATOMIC_ACQUIRE) || page_set_is_of(f, s, t->set.tag))
            continue;
        result = reservation_take(f, s, &patience);
        if (result == 0)
            page_release(s);
    }
    if (result == 0)
        return file_check(f);
    __atomic_store_n(&h->cut, before, __ATOMIC_RELEASE);
    return -1;
}

static int shrink(struct tx *t, uint64_t size)
{
    struct file *f = t->written->file;
    const uint64_t last = size / PAGE_BYTES;
    const struct manifest_guard guard = guard_of(f);
    if (guard.bytes && guard.offset + guard.bytes > size)
        return report_error(EINVAL,
                            "%s has guarded bytes, %u at %llu, and cannot be made %llu bytes long: "
                            "remove the guard first",
                            f->pairing.path, guard.bytes, (unsigned long long)guard.offset,
                            (unsigned long long)size);
    /* The last page keeps its bytes up to the end, so it is held. All others are kept from the pages behind it. */
    if (size < t->low &&
        ((size % PAGE_BYTES && claim_range(t, f, last, last) < 0) ||
         claim_waited(t, keep_out(t, f, layout_pages(size), layout_pages(t->low))) < 0))
        return -1;
    t->low = lesser(size, t->low);
    /* What the transaction wrote beyond the new end is forgotten. */
    for (struct held_page *at = t->set.pages; at < t->set.pages + t->set.n; at++) {
        const uint64_t stays = at->file == f ? bitmap_within(at->page, size) : UINT64_MAX;
        if (at->pending & ~stays)
            t->set.forgotten = &f->persist; /* W4 */
        at->pending &= stays;
    }
    return 0;
}

/* ---- longer ---- */

/* Forgets the pages behind the original's end, and makes the bytes there zeros: any process that has its last page mapped may
 * have stored there, and some file systems keep that. If a large page backs the file, as on tmpfs, there may be more pages behind the last one.
 * No reader goes there, and no slice wholly behind the end is valid. */
static int clear_behind(struct file *f, uint64_t to)
{
    const uint64_t end = f->growing ? f->growing : f->pairing.size,
                   was = growth_longest(end, shrink_from(&f->pairing)),
                   from = (was + SLICE_BYTES - 1) / SLICE_BYTES * SLICE_BYTES,
                   n = layout_pages(was) * PAGE_BYTES - from;
    space_forget(f, layout_pages(was), layout_pages(to));
    if (f->holes_fault) {
        if (from < to && fsops_punch(f->pairing.original, (off_t)from, (off_t)(to - from)) < 0 &&
            errno != EOPNOTSUPP)
            return report_errno(errno, "cannot clear the bytes behind the end of %s",
                                f->pairing.path);
    } else if (from < to && memcmp(f->o + from, zeros, n) != 0) {
        persist_copy(&f->persist, f->o + from, zeros, n); /* durable with G2 */
        sync_log(f)->ahead = 0;
    }
    return 0;
}

/* Writes zeros from the transaction's end to its new end, as far as there may be anything else: in what it cut off, in what the
 * file had before it was made shorter, and in the last page, whose end any process can store to. Elsewhere nothing is written
 * and no space is taken: a file may grow on a full disk. */
static int write_zeros(struct tx *t, uint64_t size)
{
    struct file *f = t->written->file;
    const uint64_t once = growth_longest(f->pairing.size, shrink_from(&f->pairing)),
                   end = lesser(layout_pages(once) * PAGE_BYTES, size);
    struct space_words words = {.end = layout_pages(end)};
    /* What was cut off may be in early copies only: then the file has a hole there. */
    if (layout_pages(t->size) * PAGE_BYTES < end && f->logged && file_is_numbered(f) &&
        log_checkpoint(f) < 0)
        return -1;
    for (uint64_t at = t->size; at < end;) {
        uint64_t page = at / PAGE_BYTES;
        if (at % PAGE_BYTES == 0 && space_skip_zeros(f, &page, layout_pages(end), &words) < 0)
            return -1;
        if (at < page * PAGE_BYTES)
            at = page * PAGE_BYTES;
        if (at >= end)
            break;
        const uint64_t n = lesser(PAGE_BYTES - at % PAGE_BYTES, end - at);
        const struct staging_write w = {.to = {t->written, at}, .n = n, .bytes = zeros};
        if (staging_ready(t, &w, false) < 0)
            return -1;
        staging_put(t, &w, ATO_SKIP_EQUAL);
        at += n;
    }
    return 0;
}

/* The length that the file gets for `size`, if it grows again and again. */
static uint64_t ahead_of(const struct file *f, uint64_t size)
{
    enum { LEAST = 256 << 10, MOST = 4 << 20 };
    const uint64_t more = size / 8 < LEAST ? LEAST : lesser(size / 8, MOST),
                   to = lesser(layout_pages(size + more) * PAGE_BYTES, f->max_size);
    struct rlimit most; /* behind which the kernel kills the process */
    return getrlimit(RLIMIT_FSIZE, &most) == 0 && to <= most.rlim_cur ? to : size;
}

/* Gives both files the new length on the media, unless the original has it, durably (G2). */
static int give_length(struct file *f, uint64_t size)
{
    uint64_t *ahead = &sync_log(f)->ahead, to = *ahead ? ahead_of(f, size) : size;
    if (size <= *ahead)
        return 0;
    int r = on_media(f, growth_prepare, to);
    if (r < 0 && to > size && (errno == ENOSPC || errno == EDQUOT || errno == EFBIG))
        r = on_media(f, growth_prepare, size);
    *ahead = r == 0 && f->logged ? growth_reached(&f->pairing) : 0;
    return r;
}

static int grow(struct tx *t, uint64_t size)
{
    struct file *f = t->written->file;
    if (size > f->limit)
        return report_error(ENOSPC,
                            "%s is mapped with a max_size of %llu bytes, and cannot grow to %llu: "
                            "map it with a larger max_size",
                            f->pairing.path, (unsigned long long)f->limit,
                            (unsigned long long)size);
    if (views_reach(f, size) < 0)
        return -1;
    /* The new bytes are zeros, except where the file had others since it was mapped. */
    if (size > f->pairing.size && size > f->growing) {
        const uint64_t last = f->pairing.size / PAGE_BYTES;
        /* The last page needs all its space: with blocks that are smaller than a page, what is behind the end is a hole. */
        if (!f->growing && f->pairing.size % PAGE_BYTES &&
            (claim_range(t, f, last, last) < 0 || space_make(f, last, PAGE_O_ALLOCATED) < 0))
            return -1;
        if (clear_behind(f, size) < 0 || give_length(f, size) < 0)
            return -1;
        f->growing = size;
    }
    return write_zeros(t, size);
}

/* ---- both ---- */

int resize_begin(struct tx *t, struct mapping *m, uint64_t size)
{
    if (claim_mapping(t, m, true) < 0 || (!t->sized && begin(t, m->file, size) < 0))
        return -1;
    t->written = m;
    return 0;
}

int resize(struct tx *t, struct mapping *m, off_t to)
{
    const uint64_t size = (uint64_t)to, before = t->set.n;
    if (to < 0)
        return report_error(EINVAL, "%lld bytes is not a valid size", (long long)to);
    if (claim_mapping(t, m, true) < 0)
        return -1;
    queue_drain(t); /* queued writes may lie beyond the new end */
    struct mapping *written = t->written;
    const bool begun = t->sized;
    if (!begun && begin(t, m->file, size) < 0)
        return -1;
    const uint64_t growing = m->file->growing; /* `sizing` is held: no other thread changes this */
    int r = 0;
    t->written = m;
    if (size < t->size)
        r = shrink(t, size);
    else if (size > t->size)
        r = grow(t, size);
    if (r < 0) {
        page_set_release_from(&t->set, before);
        m->file->growing = growing;
        t->written = written;
        if (!begun)
            resize_end(t, m->file);
        return -1;
    }
    file_note_written(m->file);
    t->size = size;
    t->resizes = size != m->file->pairing.size;
    return 0;
}

int resize_announce(const struct tx *t)
{
    return on_media(t->written->file, shrink_announce, t->size);
}
