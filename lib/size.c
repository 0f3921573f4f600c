/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Growing: the bytes behind the end become zeros, the files longer (growth.h), then one word on the
 * media says how long the file is, and one in memory.
 *
 * Writers and readers go by the word in memory, and look at it before they begin. It only grows, so
 * that what they found within the file stays within it. Space is not taken until it is written to,
 * as in any file with a hole.
 */
#include "ato.h"

#include "../reflection/fsops.h"
#include "../reflection/growth.h"
#include "../reflection/report.h"
#include "calls.h"
#include "hold.h"
#include "space.h"
#include "table.h"
#include "write.h"

#include <errno.h>
#include <linux/falloc.h>
#include <string.h>

/*
 * Behind the end of a file its last page may hold anything: the kernel lets everybody store there who
 * has the page mapped, and some file systems keep it. Zeros from now on: of the last slice, which is
 * written as a whole, in the home that is valid; of those behind it in O, since no bit names them.
 */
static int clear_tail(struct mapping *m, uint64_t size)
{
    struct file *f = m->file;
    uint64_t page = size / PAGE_BYTES;
    unsigned begin = (unsigned)(size % PAGE_BYTES), end = (begin + 63) / 64 * 64;
    unsigned behind = (unsigned)PAGE_BYTES - end;
    static const char zeros[PAGE_BYTES];
    char tail[PAGE_BYTES] = {0};
    struct hold h;
    if (!begin)
        return 0;
    hold_init(&h);
    int r = hold_range(&h, f, page, page);
    /* Others may have cut the page off, and made it anew without space. */
    if (r == 0 && f->holes_fault)
        r = space_make(f, page, h.pages[0].state, PAGE_O_ALLOCATED);
    if (r == 0) {
        struct page_state *s = h.pages[0].state;
        char *o = file_o(f, page);
        copy_gather_range(f->persist.kernel, tail, o, file_r(f, page), s->bitmap, begin,
                          end - begin);
        if (behind && s->bitmap >> (end / 64))
            r = report_error(
                EUCLEAN, "the bitmap of page %llu of %s names slices beyond the end of the file",
                (unsigned long long)page, f->pairing.path);
        if (r == 0 && behind && memcmp(o + end, zeros, behind) != 0) {
            r = space_make(f, page, s, PAGE_O_ALLOCATED);
            if (r == 0)
                persist_copy(&f->persist, o + end, zeros, behind); /* I2: content of nothing */
        }
        /* Zeros that can be seen may be others' and not durable; with G2 they are.
         * explorer: drop flush survives: nobody in its worlds stores behind the end of a file. */
        if (r == 0 && f->persist.domain != PERSIST_MSYNC)
            r = persist_flush_any(&f->persist, o + begin / 64 * 64, PAGE_BYTES - begin / 64 * 64);
    }
    hold_release(&h);
    if (r == 0 && memcmp(tail, zeros, end - begin) != 0)
        r = write_fill(m, size, 0, end - begin, 0);
    return r;
}

/* Where a large page backs the file, as tmpfs may have it, the pages behind the last one may be
 * there, too, and be stored to. */
static int clear_behind(struct file *f, uint64_t size, uint64_t to)
{
    uint64_t from = layout_pages(size) * PAGE_BYTES;
    if (!f->holes_fault || to <= from)
        return 0;
    if (fsops->fallocate(f->pairing.original, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                         (off_t)from, (off_t)(to - from)) < 0 &&
        errno != EOPNOTSUPP)
        return report_errno(errno, "cannot clear what lies behind the end of %s", f->pairing.path);
    return 0;
}

/* Whoever makes a file shorter takes space behind its end away too: that of the last page is to be
 * asked for anew. */
static void forget_space(struct file *f, uint64_t size)
{
    struct page_state *s = size % PAGE_BYTES ? shared_state(&f->shared, size / PAGE_BYTES) : NULL;
    if (!s)
        return;
    pages_reserve(f, s);
    __atomic_store_n(&s->flags, s->flags & (uint8_t)~PAGE_O_ALLOCATED, __ATOMIC_RELEASE);
    pages_release(s);
}

/* growth_settle() for size 0, else growth_prepare(). Their syncs may be what the kernel tells of an
 * earlier failure, once: as in file_msync(). */
static int on_media(struct file *f, uint64_t size)
{
    struct pairing *pr = &f->pairing;
    pthread_mutex_lock(&f->medium);
    int r = size ? growth_prepare(pr, size) : growth_settle(pr, growth_last(pr));
    if (r == GROWTH_LOST)
        file_poison(f);
    pthread_mutex_unlock(&f->medium);
    if (r < 0 || size == 0)
        forget_space(f, pr->size);
    return r < 0 ? -1 : 0;
}

/* `sizing` is held. */
static int grow(struct mapping *m, uint64_t size)
{
    struct file *f = m->file;
    struct pairing *pr = &f->pairing;
    uint64_t *word = growth_size_word(pr);
    if (clear_tail(m, pr->size) < 0 || clear_behind(f, pr->size, size) < 0 || on_media(f, size) < 0)
        return -1;
    persist_store_word(&f->persist, word, manifest_encode_size(size));
    if (file_flush_word(f, word) < 0)
        return file_in_doubt(f, "a new size");
    /* persist-order G4 (reader: the first write beyond the old end): the file is durably that long
     * before anybody is told. */
    persist_fence(&f->persist);
    pr->size = size;
    return 0;
}

static int change(struct mapping *m, uint64_t size)
{
    struct file *f = m->file;
    struct shared_header *h = f->shared.header;
    struct page_state *s = &h->sizing;
    pages_reserve(f, s);
    int r = file_check(f);
    if (r == 0 && size < h->size)
        r = report_error(ENOTSUP, "%s is %llu bytes long, and this version cannot make it shorter",
                         f->pairing.path, (unsigned long long)h->size);
    if (r == 0 && size > f->limit)
        r = report_error(ENOSPC,
                         "%s is mapped with a largest size of %llu bytes, and cannot grow to %llu: "
                         "map it with a larger max_size",
                         f->pairing.path, (unsigned long long)f->limit, (unsigned long long)size);
    /* First of all: what others put behind the end is theirs, and the end may be gone. */
    if (r == 0)
        r = on_media(f, 0);
    if (r == 0 && size > h->size) {
        __atomic_store_n(&f->written, true, __ATOMIC_RELAXED);
        r = grow(m, size);
        if (r == 0) {
            pages_mark_flipping(s);
            /* Release: pairs with file_size(); who sees the size sees the longer files. */
            __atomic_store_n(&h->size, size, __ATOMIC_RELEASE);
            pages_unmark_flipping(s);
        }
    }
    pages_release(s);
    return r;
}

int ato_ftruncate(void *addr, off_t size)
{
    struct mapping *m = table_find_to_change(addr);
    if (!m)
        return -1;
    CALL_ON(call, m);
    if (size < 0)
        return report_error(EINVAL, "a size of %lld bytes", (long long)size);
    return change(m, (uint64_t)size);
}
