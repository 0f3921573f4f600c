/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reading without a lock.
 *
 * The problem: while a reader copies slices from the homes that a bitmap names, a writer may flip the page, and
 * another one may begin to overwrite the homes that were valid. And an operation on several pages must be seen
 * whole or not at all.
 *
 * The reader notes the version of every page, copies, and reads every version again. Why this is enough:
 *
 *   1. A writer that has not flipped stores to invalid homes only (I2), and the reader copies from homes that
 *      the bitmap calls valid. So they touch different bytes, and a reader never waits for a writer's copy.
 *   2. A home that is valid by bitmap B is overwritten only by a later write, after the flip that made it
 *      invalid has become visible: version even, bitmap, version odd. So if a page's version is the same odd
 *      number before and after the copy, no byte that was copied from it was free to be overwritten during
 *      the copy. (Between that flip and the overwriting lies a new reservation, or W3 in deploy.c.)
 *   3. A read of several pages goes over them in passes. A pass copies each page whose version is not the one noted
 *      at its last copy, and notes the new one; the read is over when a pass finds nothing to copy. Let t be the
 *      beginning of that pass. Each page has, after t, the version that was noted before its copy, and its copy was
 *      over before t: so all pages were copied as they were at t, and none was marked. An operation on several pages
 *      marks all of them before it changes the first bitmap, and unmarks the first one after it has changed the last
 *      bitmap: so at t it had not begun to become visible, or was entirely visible.
 *   4. Bitmaps in memory change only when the flip is durable (I4): bytes that were read cannot be lost.
 *   5. The end of the file is checked after the version is noted, and before the copy. A shrink leaves
 *      what it cuts off as it is, so a reader that saw the old size copies what the file had then. A growth stores zeros
 *      there, as a commit like others. A page without a state, or one that is not loaded, must be loaded first, under a
 *      reservation (load_look()).
 *
 * No barriers are needed: x86 does not let a load pass an earlier load. The fence below is for the compiler, and
 * for ports to other CPUs. A stale version (the load was executed before another CPU's store was visible) only
 * means that the reader's moment t is a little earlier.
 *
 * The model read.pml checks this together with all that writers do meanwhile (tools/check-models). Its steps have
 * the names of the functions here: if you change the order of steps in one, change both.
 *
 * Progress: a reader copies again what a commit changed in between. After some passes it reserves the pages, so it waits
 * only for the writers ahead of it. It does not wait for pages of open transactions: no other thread can reserve
 * them, and they do not change before the commit.
 */
#include "lib/read/read.h"

#include "lib/commit/deploy.h"
#include "lib/commit/log.h"
#include "lib/file/place.h"
#include "lib/page/page_set_reserve.h"
#include "lib/page/reservation.h"
#include "reflection/media/report.h"
#include "reflection/pairing/meta.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PASSES = 10 };

int read_versions_init(struct read_versions *v, uint64_t pages)
{
    v->of = v->few;
    if (pages > READ_FEW)
        v->of = malloc(pages * sizeof(*v->of));
    if (!v->of)
        return report_error(ENOMEM, "no memory for a read of %llu pages",
                            (unsigned long long)pages);
    memset(v->of, 0xff, pages * sizeof(*v->of)); /* READ_NOT_COPIED */
    return 0;
}

void read_versions_free(struct read_versions *v)
{
    if (v->of != v->few)
        free(v->of);
}

static int say_truncated(const struct file *f, int fd)
{
    return report_error(ESTALE, "%s%s was truncated by another program while the file was mapped",
                        fd == f->pairing.original ? "" : "the reflection of ", f->pairing.path);
}

/* What is behind the end of the original reads as zeros. */
static int read_exactly(const struct file *f, int fd, char *to, uint64_t n, uint64_t at)
{
    const uint64_t size = file_size(f); /* before: the file may get longer */
    ssize_t got = pread(fd, to, n, (off_t)at);
    if (got < 0)
        return report_errno(errno, "cannot read %s", f->pairing.path);
    if ((uint64_t)got < n && (fd != f->pairing.original || at + (uint64_t)got < size))
        return say_truncated(f, fd);
    memset(to + got, 0, n - (uint64_t)got);
    return 0;
}

int read_by_word(struct file *f, uint64_t page, unsigned begin, unsigned n, char *dst)
{
    char r[PAGE_BYTES];
    const unsigned from = begin / SLICE_BYTES * SLICE_BYTES;
    const uint64_t bytes = (begin + n + SLICE_BYTES - 1) / SLICE_BYTES * SLICE_BYTES - from;
    const uint32_t format = file_format(f);
    const uint64_t place = place_find(f, page);
    /* A page may have that number. */
    const bool has_place = !f->logged && (!f->sparse || place != FILE_NO_PLACE);
    const int reflection = has_place ? f->pairing.reflection : -1;
    uint64_t word = 0, of = page;
    const int64_t words = reflection < 0 ? 1 : meta_read(reflection, format, place, 1, &word, &of);
    if (words < 1)
        return words < 0 ? report_errno(errno, "cannot read the bitmaps of %s", f->pairing.path)
                         : say_truncated(f, reflection);
    if (of != page) /* I5 */
        return report_error(EUCLEAN, "place %llu of the reflection of %s is not of page %llu",
                            (unsigned long long)place, f->pairing.path, (unsigned long long)page);
    /* R4, also of a word that is 0. Flushing a line changes nothing on the media, so a reader may do it. */
    if (reflection >= 0 && !f->shared.header->settled &&
        meta_has_space(reflection, format, place) &&
        page_flush_word(f, (const uint64_t *)(f->r + layout_word(format, place))) < 0)
        return -1;
    const uint64_t touched = word & bitmap_touched(begin, n);
    if (read_exactly(f, f->pairing.original, dst, n, page * PAGE_BYTES + begin) < 0 ||
        (touched &&
         read_exactly(f, reflection, r + from, bytes, layout_refpage(format, place) + from) < 0))
        return -1;
    for (uint64_t left = touched; left; left &= left - 1) {
        const unsigned slice = (unsigned)__builtin_ctzll(left) * SLICE_BYTES,
                       at = slice > begin ? slice : begin;
        memcpy(dst + at - begin, r + at, lesser(slice + SLICE_BYTES, begin + n) - at);
    }
    return 0;
}

static uint64_t moment_of(const struct file *f)
{
    return __atomic_load_n(&f->shared.header->undo.moment, __ATOMIC_ACQUIRE);
}

/* Returns whether the content that a page has with this version may not be durable yet, or may be part of a commit that is not. */
static bool is_early(const struct file *f, uint64_t version)
{
    return f->logged && file_is_numbered(f) && page_content(version) > moment_of(f);
}

/* In the version that is noted: the rest is the moment at which the page was read. No version has it. */
#define AT_MOMENT (1ull << 63)

int read_pass(struct file *f, uint64_t offset, char *dst, uint64_t n, uint64_t *version,
              uint32_t *marked, bool newest)
{
    int r = 1;
    seam_point(SEAM_CHECK, f);
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    FOR_EACH_PAGE(page, begin, bytes, offset, n)
    {
        const struct page_state *s = !marked && *version == READ_NOT_COPIED
                                         ? load_look(f, page)
                                         : shared_peek(&f->shared, page);
        if (!s && !marked) { /* there is an error, or the page has no state any more */
            if (*version == READ_NOT_COPIED || file_check(f) < 0)
                return -1;
            return report_error(EUCLEAN, "the shared memory of %s is damaged", f->pairing.path);
        }
        uint64_t now = s ? __atomic_load_n(&s->version, __ATOMIC_ACQUIRE) : 0; /* 0: not loaded */
        const bool is_marked = marked && now && !(now & 1);
        if (is_marked)
            *marked = __atomic_load_n(&s->holder, __ATOMIC_RELAXED);
        /* A process that may only read cannot make early commits durable: it reads what was before. */
        if (marked && (now & 1) && is_early(f, now))
            now = AT_MOMENT | moment_of(f);
        if (now != *version)
            r = 0;
        if (now != *version && !is_marked) {
            if (!marked && !(now = read_steady_version(f, s)))
                return -1;
            /* It takes as long as a sync. The loop also waits for a commit that is just becoming visible. */
            for (unsigned i = 0; !marked && !newest && undo_is_early(f, s) && is_early(f, now); i++)
                if (log_settle(f) < 0 || reservation_await(f, s, i) < 0)
                    return -1;
            if (reservation_reaches(f, offset + n) < 0) /* after the version is noted */
                return -1;
            *version = now;
            seam_point(SEAM_VERSION, f);
            RACES_MEANT_BEGIN(); /* as in read_at_once() */
            int copied = 0;
            if (now & AT_MOMENT) {
                copied = undo_map(f) < 0 ? -1
                                         : undo_find(f, now & ~AT_MOMENT, page, (unsigned)begin,
                                                     (unsigned)bytes, dst);
                copied = copied < 0 ? -1 : copied != UNDO_FOUND;
            } else if (now)
                copied = read_copy(f, s, page, (unsigned)begin, (unsigned)bytes, dst, now);
            else if (read_by_word(f, page, (unsigned)begin, (unsigned)bytes, dst) < 0)
                r = -1;
            RACES_MEANT_END(dst, bytes);
            if (r < 0 || copied < 0)
                return -1;
            if (copied > 0) { /* try again */
                const struct page_state *showing = &f->shared.header->undo.showing;
                const uint32_t holder = __atomic_load_n(&showing->holder, __ATOMIC_RELAXED);
                *version = READ_NOT_COPIED;
                page_pause(PAGE_SPINS);
                if (!marked && holder && reservation_look_after(f, showing, holder) < 0)
                    return -1;
            }
        }
        dst += bytes;
        version++;
    }
    return r;
}

/* Reads pages while they are held, so they cannot change. Pages of an open transaction are not waited for: only its
 * commit changes them, and after that they can be held. */
static int read_reserved(struct file *f, uint64_t offset, char *dst, uint64_t n, uint64_t *versions,
                         bool newest)
{
    const struct patience patience = {.not_for_tx = true};
    int r = 0;
    while (r == 0) {
        struct page_set h;
        page_set_init(&h);
        r = page_set_make_room(&h, page_span_count(offset, n));
        for (uint64_t at = offset / PAGE_BYTES; r >= 0 && at * PAGE_BYTES < offset + n; at++)
            r = page_set_take(&h, f, at, at * PAGE_BYTES + 1, &patience);
        r = r < 0 ? -1 : 0; /* pages that a transaction has, or is about to cut off, are skipped */
        for (int i = 0; r == 0 && i < 2; i++)
            r = read_pass(f, offset, dst, n, versions, NULL, newest);
        page_set_release(&h);
    }
    return r;
}

/* Of one page, so many bytes that lie in two homes are read faster from one, although deployed slices may bypass the
 * CPU's caches, and have to be fetched again. What is shorter, or lies in R alone, is read first and deployed after. */
enum { DEPLOY_FIRST = 2048 };

static bool lies_apart(struct file *f, uint64_t offset, uint64_t n)
{
    const unsigned begin = (unsigned)(offset % PAGE_BYTES);
    if (n < DEPLOY_FIRST || begin + n > PAGE_BYTES)
        return false;
    const struct page_state *s = load_look(f, offset / PAGE_BYTES);
    const uint64_t asked = bitmap_touched(begin, (unsigned)n);
    const uint64_t away = s ? __atomic_load_n(&s->bitmap, __ATOMIC_RELAXED) & asked : 0;
    return away && away != asked;
}

int read_bytes(struct mapping *m, uint64_t offset, char *dst, uint64_t n,
               struct read_versions *versions, bool newest)
{
    struct read_versions own, *v = versions ? versions : &own;
    const bool deploys = !versions && policy_of(m) != ATO_READ_GATHER; /* as read_at_once() */
    const bool first = deploys && lies_apart(m->file, offset, n);
    unsigned passes = 0;
    int r = 0;
    if (first)
        deploy_for_reader(m->file, offset, n);
    if (read_versions_init(v, page_span_count(offset, n)) < 0)
        return -1;
    for (; r == 0 && passes < PASSES; passes++)
        r = read_pass(m->file, offset, dst, n, v->of, NULL, newest);
    if (r == 0)
        r = read_reserved(m->file, offset, dst, n, v->of, newest);
    if (r >= 0 && file_check(m->file) < 0) /* after the copy (fault.h) */
        r = -1;
    if (r < 0 || !versions)
        read_versions_free(v);
    if (r < 0)
        return -1;
    if (deploys && !first)
        deploy_for_reader(m->file, offset, n);
    if (passes > 2)
        count(m->file, COUNT_READ_RETRIES, passes - 2);
    if (__atomic_load_n(&m->quick, __ATOMIC_RELAXED) - 1 <
        offset + n - 1) /* the views have grown since */
        mapping_read_quickly(m);
    return 0;
}
