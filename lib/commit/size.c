/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Growing: the bytes beyond the end become zeros and the files get longer (growth.h); then one word on the media
 * says how long the file is, then one in memory. Space is not taken until it is written to, as in any sparse file.
 *
 * Shrinking: the pages that are cut off are drained; then the two words change; then the space is given back
 * (shrink.h).
 *
 * Writers and readers go by the word in memory. Writers read it again under their reservations (reservation_within()),
 * readers after the versions (read.c).
 */
#include "lib/commit/size.h"

#include "lib/commit/store.h"
#include "lib/file/page.h"
#include "lib/file/space.h"
#include "lib/page/load.h"
#include "lib/page/page_set.h"
#include "lib/page/reservation.h"
#include "reflection/media/bitmap.h"
#include "reflection/media/domain.h"
#include "reflection/media/fsops.h"
#include "reflection/media/report.h"
#include "reflection/pairing/growth.h"
#include "reflection/pairing/meta.h"
#include "reflection/pairing/shrink.h"

#include <errno.h>
#include <linux/falloc.h>
#include <stdlib.h>
#include <string.h>
#include <sys/vfs.h>
#include <unistd.h>

/* ---- what was within the file before it was made shorter ---- */

static uint64_t min(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Returns the number of pages that the file had at its longest since it was mapped; `size`: what it has now. */
static uint64_t once_pages(const struct file *f, uint64_t size)
{
    uint64_t longest = growth_longest(size, shrink_from(&f->pairing));
    return layout_pages(min(longest, f->max_size));
}

/* Clears the words of pages beyond `size`, and the bits of the last page beyond it; durable with the next
 * growth_prepare() or shrink_finish(). No other thread has these pages. */
static int clear_words(struct file *f, uint64_t size)
{
    uint64_t words[CHUNK_PAGES], first = size / PAGE_BYTES, end = once_pages(f, size);
    uint64_t chunks = (end + CHUNK_PAGES - 1) / CHUNK_PAGES;
    int fd = f->pairing.reflection;
    FOR_EACH_META(chunk, fd, first / CHUNK_PAGES, chunks)
    {
        if (chunk == UINT64_MAX)
            return report_errno(errno, "cannot search the bitmaps of %s", f->pairing.path);
        uint64_t page = chunk * CHUNK_PAGES < first ? first : chunk * CHUNK_PAGES;
        uint64_t n = min(end, (chunk + 1) * CHUNK_PAGES) - page;
        ssize_t got = pread(fd, words, n * 8, (off_t)layout_word(page));
        if (got < 0)
            return report_errno(errno, "cannot read the bitmaps of %s", f->pairing.path);
        for (uint64_t i = 0; i < (uint64_t)got / 8; i++) {
            uint64_t behind = ~bitmap_within(page + i, size);
            /* persist-order S3 (reader: the load of a page that is within the file again): words are 0 before the
             * size grows past them; the sync of growth_prepare() comes in between.
             * explorer: tear word survives: until the size grows no process reads what is beyond it, and before it
             * grows all of it is made 0 here again. */
            if (!(words[i] & behind))
                continue;
            if (space_make_meta(f, chunk) < 0)
                return -1;
            persist_store_word(&f->persist, file_word(f, page + i), words[i] & ~behind);
        }
    }
    return 0;
}

static void store_zeros(struct file *f, uint64_t from, uint64_t to)
{
    static const char zeros[PAGE_BYTES];
    for (; from < to; from += PAGE_BYTES)
        if (memcmp(f->o + from, zeros, PAGE_BYTES) != 0)
            persist_copy(&f->persist, f->o + from, zeros, PAGE_BYTES);
}

/* Stores zeros to those parts of [from, to), whole pages, that have space; they keep it. */
static int clear_in_place(struct file *f, uint64_t from, uint64_t to)
{
    int fd = f->pairing.original;
    while (from < to) {
        off_t data = lseek(fd, (off_t)from, SEEK_DATA), hole = -1;
        if (data >= 0 && (uint64_t)data < to)
            hole = lseek(fd, data, SEEK_HOLE);
        else if (data >= 0 || errno == ENXIO)
            break;
        if (hole < 0)
            return report_errno(errno, "cannot find out which parts of %s have space",
                                f->pairing.path);
        from = (uint64_t)data / PAGE_BYTES * PAGE_BYTES;
        const uint64_t end = min(to, layout_pages((uint64_t)hole) * PAGE_BYTES);
        if (f->holes_fault || fsops->fallocate(fd, FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE,
                                               (off_t)from, (off_t)(end - from)) < 0) {
            if (!f->holes_fault && errno != EOPNOTSUPP)
                return report_errno(errno, "cannot clear the bytes beyond the end of %s",
                                    f->pairing.path);
            store_zeros(f, from, end);
        }
        from = end;
    }
    /* S3: growth_prepare() syncs the original before the size grows. */
    return 0;
}

static int punch(int fd, uint64_t from, uint64_t to)
{
    return to <= from ? 0 : fsops_punch(fd, (off_t)from, (off_t)(to - from));
}

/*
 * Makes the bytes of the file beyond `size`, up to `to`, read as zeros.
 *
 * Pages that were in the file before have given their space back when they were cut off (size_clear_behind()). What is
 * left there is cleared and keeps its space: readers without a lock may still be there where reading a hole may be
 * SIGBUS, and other threads may store to the pages beside them at any time (domain_neighbours_end()).
 *
 * Pages that were never in the file may exist too: if a large page backs the file, as on tmpfs, there may be pages
 * after the last one, and a process may have stored to them.
 *
 * What an earlier step of the same growth has cleared stays as it is: the transaction may have pages there already,
 * and rely on their space.
 */
static int clear_behind(struct file *f, uint64_t size, uint64_t to)
{
    int fd = f->pairing.original;
    uint64_t from = layout_pages(file_end(f)) * PAGE_BYTES, end = layout_pages(to) * PAGE_BYTES;
    uint64_t once = once_pages(f, size) * PAGE_BYTES;
    if (shrink_from(&f->pairing) && clear_words(f, size) < 0)
        return -1;
    if (clear_in_place(f, from, min(once, end)) < 0)
        return -1;
    if (f->holes_fault && punch(fd, once > from ? once : from, end) < 0 && errno != EOPNOTSUPP)
        return report_errno(errno, "cannot clear the bytes beyond the end of %s", f->pairing.path);
    return 0;
}

/* ---- growing ---- */

/* A shrink takes space beyond the end away too: the last page, which is held, must ask for its space again. */
void size_forget_space(struct file *f)
{
    uint64_t size = f->pairing.size;
    struct page_state *s = size % PAGE_BYTES ? shared_peek(&f->shared, size / PAGE_BYTES) : NULL;
    if (s)
        __atomic_store_n(&s->flags, s->flags & (uint8_t)~PAGE_O_ALLOCATED, __ATOMIC_RELEASE);
}

int size_on_media(struct file *f, int (*step)(struct pairing *pr, uint64_t size), uint64_t size)
{
    pthread_mutex_lock(&f->medium);
    int r = step(&f->pairing, size);
    if (r == GROWTH_LOST)
        file_poison(f);
    pthread_mutex_unlock(&f->medium);
    return r < 0 ? -1 : 0;
}

int size_prepare_growth(struct file *f, uint64_t to)
{
    if (clear_behind(f, f->pairing.size, to) < 0)
        return -1;
    if (size_on_media(f, growth_prepare, to) == 0)
        return 0;
    size_forget_space(f);
    return -1;
}

/* ---- shrinking ---- */

static struct page_state *next_state(const struct size_range *r, uint64_t *page)
{
    return shared_next_state(&r->file->shared, page, r->end);
}

static bool is_ours(const struct size_range *r, const struct page_state *s)
{
    return page_set_is_of(r->file, s, r->tag);
}

static void note(const struct size_range *r, struct page_state *s)
{
    __atomic_store_n(&s->tx, page_set_note(r->tag, SIZE_DRAINED), __ATOMIC_RELAXED);
}

static void release_drained(const struct size_range *r)
{
    uint64_t page = r->first;
    for (struct page_state *s; (s = next_state(r, &page));)
        if (is_ours(r, s) && (uint32_t)s->tx == SIZE_DRAINED) {
            __atomic_store_n(&s->tx, 0, __ATOMIC_RELAXED);
            page_release(s);
        }
}

int size_drain(const struct size_range *r, const struct patience *patience)
{
    struct file *f = r->file;
    struct shared_header *h = f->shared.header;
    uint64_t page = r->first, before = h->cut;
    __atomic_store_n(&h->cut, r->first * PAGE_BYTES, __ATOMIC_RELEASE);
    /* Pairs with reservation_within(): a thread that is not seen to hold a page below sees `cut`. */
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    int result = 0;
    for (struct page_state *s; result == 0 && (s = next_state(r, &page));) {
        if (is_ours(r, s))
            continue;
        result = reservation_take(f, s, patience);
        if (result < 0)
            break;
        note(r, s);
        result = file_check(f); /* as in reserve_page() */
        /* Loaded here, since readers wait while a held page is not loaded (load_look()). */
        if (result == 0)
            result = load_page(f, page - 1, s);
    }
    if (result == 0)
        return 0;
    release_drained(r);
    __atomic_store_n(&h->cut, before, __ATOMIC_RELEASE);
    return -1;
}

void size_release(const struct size_range *r)
{
    release_drained(r);
    __atomic_store_n(&r->file->shared.header->cut, UINT64_MAX, __ATOMIC_RELEASE);
}

static int announce(struct pairing *pr, uint64_t unused)
{
    (void)unused;
    return shrink_announce(pr);
}

int size_announce(struct file *f)
{
    return size_on_media(f, announce, 0);
}

void size_mark(const struct size_range *r)
{
    struct file *f = r->file;
    uint64_t page = r->first;
    __atomic_store_n(&f->shared.header->gone, r->first * PAGE_BYTES, __ATOMIC_RELEASE);
    /* Pairs with may_load() in load.c: a page that is not seen to be loaded here will not be loaded. */
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    for (struct page_state *s; (s = next_state(r, &page));) {
        if (!is_ours(r, s)) {
            /* Its state is new since the drain. Its holder is about to release it. */
            if (reservation_take(f, s, &(struct patience){0}) < 0) {
                /* The holder is dead and its page cannot be freed: readers may still use the page. */
                file_poison(f);
                continue;
            }
            note(r, s);
        }
        if (s->version) /* 0: not loaded, so no reader uses it */
            page_mark_flipping(s);
    }
}

void size_unmark(const struct size_range *r)
{
    uint64_t page = r->first;
    for (struct page_state *s; (s = next_state(r, &page));) {
        if (!is_ours(r, s) || !s->version)
            continue;
        page_set_bitmap(s, 0);
        page_unmark_changed(s);
    }
    __atomic_store_n(&r->file->shared.header->gone, UINT64_MAX, __ATOMIC_RELEASE);
}

/* Gives back the space of RefPages [first, end), except for neighbours of those before them. Meta pages keep
 * their space. */
static void punch_reflection(struct file *f, uint64_t first, uint64_t end)
{
    int fd = f->pairing.reflection;
    uint64_t from = domain_neighbours_end(f->persist.domain, layout_reflected(first * PAGE_BYTES)),
             last = layout_reflection_bytes(end * PAGE_BYTES);
    while (from < last) {
        off_t data = lseek(fd, (off_t)from, SEEK_DATA);
        if (data < 0 || (uint64_t)data >= last)
            break;
        uint64_t chunk = (uint64_t)data / CHUNK_BYTES;
        uint64_t begin = layout_meta_page(chunk) + PAGE_BYTES, next = layout_meta_page(chunk + 1);
        if (begin < from)
            begin = from;
        if (punch(fd, begin, min(next, last)) < 0)
            break;
        from = next;
    }
}

void size_clear_behind(const struct size_range *r, uint64_t to)
{
    struct file *f = r->file;
    uint64_t first = layout_pages(to), end = once_pages(f, to), page = r->first;
    uint64_t behind = domain_neighbours_end(f->persist.domain, first * PAGE_BYTES);
    uint8_t keep = (uint8_t) ~((f->holes_fault ? 0 : PAGE_O_ALLOCATED) |
                               (f->r_holes_fault ? 0 : PAGE_R_ALLOCATED));
    (void)clear_words(f, to);
    space_note_lowest(f->shared.header, to);
    for (struct page_state *s; (s = next_state(r, &page));)
        if (is_ours(r, s))
            __atomic_store_n(&s->flags, s->flags & keep, __ATOMIC_RELEASE);
    if (!f->holes_fault)
        (void)punch(f->pairing.original, behind, end * PAGE_BYTES);
    if (!f->r_holes_fault && first < end)
        punch_reflection(f, first, end);
}
