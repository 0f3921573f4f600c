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

#include "../reflection/growth.h"
#include "../reflection/report.h"
#include "hold.h"
#include "table.h"
#include "write.h"

#include <errno.h>
#include <string.h>

/*
 * Behind the end of a file its last page may hold anything: the kernel lets everybody store there who
 * has the page mapped, and some file systems keep it. Zeros from now on, in the homes that are valid;
 * slices are written whole, and take what is there along.
 */
static int clear_tail(struct mapping *m, uint64_t size)
{
    struct file *f = m->file;
    uint64_t page = size / PAGE_BYTES;
    unsigned begin = (unsigned)(size % PAGE_BYTES), n = (unsigned)PAGE_BYTES - begin;
    static const char zeros[PAGE_BYTES];
    char tail[PAGE_BYTES];
    struct hold h;
    if (!begin)
        return 0;
    hold_init(&h);
    int r = hold_range(&h, f, page, page);
    if (r == 0) {
        uint64_t bitmap = h.pages[0].state->bitmap;
        copy_gather_range(f->persist.kernel, tail, file_o(f, page), file_r(f, page), bitmap, begin,
                          n);
        /* Zeros that can be seen may be others' and not durable; with G2 they are.
         * explorer: drop flush survives: nobody in its worlds stores behind the end of a file. */
        if (f->persist.domain != PERSIST_MSYNC)
            r = persist_flush_any(&f->persist, file_o(f, page) + begin / 64 * 64,
                                  PAGE_BYTES - begin / 64 * 64);
    }
    hold_release(&h);
    if (r == 0 && memcmp(tail, zeros, n) != 0)
        r = write_fill(m, size, 0, n, 0);
    return r;
}

/* growth_settle() for size 0, else growth_prepare(). Their syncs may be what the kernel tells of an
 * earlier failure, once: as in file_msync(). */
static int on_media(struct file *f, uint64_t size)
{
    struct pairing *pr = &f->pairing;
    pthread_mutex_lock(&f->medium);
    int r = size ? growth_prepare(pr, size) : growth_settle(pr, growth_last(pr));
    if (r < 0 && errno == EIO)
        file_poison(f);
    pthread_mutex_unlock(&f->medium);
    return r;
}

/* `sizing` is held. */
static int grow(struct mapping *m, uint64_t size)
{
    struct file *f = m->file;
    struct pairing *pr = &f->pairing;
    uint64_t *word = growth_size_word(pr);
    /* Settled first: what others put behind the end is theirs, and the end may be gone. */
    if (on_media(f, 0) < 0 || clear_tail(m, pr->size) < 0 || on_media(f, size) < 0)
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
    if (r == 0 && size > f->max_size)
        r = report_error(ENOSPC,
                         "%s is mapped with a largest size of %llu bytes, and cannot grow to %llu: "
                         "map it with a larger max_size",
                         f->pairing.path, (unsigned long long)f->max_size,
                         (unsigned long long)size);
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
    if (size < 0)
        return report_error(EINVAL, "a size of %lld bytes", (long long)size);
    return change(m, (uint64_t)size);
}
