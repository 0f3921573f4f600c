/* SPDX-License-Identifier: BSD-3-Clause */
#include "space.h"

#include "../reflection/fsops.h"
#include "../reflection/report.h"

#include <errno.h>
#include <linux/falloc.h>
#include <unistd.h>

static uint64_t min(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Is [from, to) of a file free of holes? 1 yes, 0 no, -1 error: not knowing is no answer, since a
 * meta page without space means that its words are 0. Unwritten extents may count as holes: then a
 * needless fallocate() follows, no harm. */
static int is_dense(const struct file *f, int fd, uint64_t from, uint64_t to)
{
    off_t hole = lseek(fd, (off_t)from, SEEK_HOLE);
    if (hole < 0)
        return report_errno(errno, "cannot find out which parts of %s%s have space",
                            fd == f->pairing.original ? "" : "the reflection of ", f->pairing.path);
    return (uint64_t)hole >= to;
}

/* The chunk's bits, or -1. */
static int ask_chunk(struct file *f, uint64_t chunk)
{
    uint16_t known = __atomic_load_n(&f->chunks[chunk], __ATOMIC_RELAXED);
    if (known & CHUNK_ASKED)
        return known;
    uint16_t found = CHUNK_ASKED;
    uint64_t meta = layout_meta_page(chunk), from = chunk * CHUNK_PAGES * PAGE_BYTES;
    /* Whole pages: of a last one that is not, what lies beyond the end may have no space, and be
     * within it soon. */
    uint64_t pages = min(file_size(f) / PAGE_BYTES - chunk * CHUNK_PAGES, CHUNK_PAGES);
    int words = is_dense(f, f->pairing.reflection, meta, meta + PAGE_BYTES);
    int o = pages ? is_dense(f, f->pairing.original, from, from + pages * PAGE_BYTES) : 0;
    if (words < 0 || o < 0)
        return -1;
    if (words)
        found |= CHUNK_META_SPACE;
    if (o)
        found |= (uint16_t)pages;
    /* Another thread may have asked meanwhile, of a file that was shorter or longer: either answer
     * is right, a mixture might not be. */
    while (!__atomic_compare_exchange_n(&f->chunks[chunk], &known, known | found, false,
                                        __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        if (known & CHUNK_ASKED)
            return known;
    return known | found;
}

static int allocate(struct file *f, int fd, uint64_t at, uint64_t n, const char *what)
{
    if (fsops->fallocate(fd, FALLOC_FL_KEEP_SIZE, (off_t)at, (off_t)n) < 0)
        return report_errno(errno, "no space for %llu bytes at %llu of %s %s",
                            (unsigned long long)n, (unsigned long long)at, what, f->pairing.path);
    return 0;
}

static int allocate_o(struct file *f, uint64_t page, uint64_t n)
{
    uint64_t from = page * PAGE_BYTES;
    uint64_t to = min(from + n * PAGE_BYTES, layout_pages(file_size(f)) * PAGE_BYTES);
    return allocate(f, f->pairing.original, from, to - from, "the file");
}

int space_look(struct file *f, uint64_t page, uint8_t *flags)
{
    int chunk = ask_chunk(f, page / CHUNK_PAGES);
    *flags = 0;
    if (chunk < 0)
        return -1;
    if (page % CHUNK_PAGES < (chunk & CHUNK_O_PAGES)) {
        *flags = PAGE_O_ALLOCATED;
    } else if (f->holes_fault) {
        uint64_t from = page * PAGE_BYTES;
        /* Such file systems give out whole pages: up to the end is the whole of a last one. */
        int dense = is_dense(f, f->pairing.original, from, min(from + PAGE_BYTES, file_size(f)));
        if (dense < 0 || (!dense && allocate_o(f, page, 1) < 0))
            return -1;
        *flags = PAGE_O_ALLOCATED;
    }
    return 0;
}

static int make_meta(struct file *f, uint64_t chunk)
{
    if (__atomic_load_n(&f->chunks[chunk], __ATOMIC_RELAXED) & CHUNK_META_SPACE)
        return 0;
    if (allocate(f, f->pairing.reflection, layout_meta_page(chunk), PAGE_BYTES,
                 "a meta page of the reflection of") < 0)
        return -1;
    __atomic_or_fetch(&f->chunks[chunk], (uint16_t)CHUNK_META_SPACE, __ATOMIC_RELAXED);
    return 0;
}

int space_make_run(struct file *f, uint64_t page, uint64_t n, uint8_t need)
{
    if ((need & PAGE_O_ALLOCATED) && allocate_o(f, page, n) < 0)
        return -1;
    while ((need & PAGE_R_ALLOCATED) && n) {
        uint64_t here = min(n, CHUNK_PAGES - page % CHUNK_PAGES);
        if (make_meta(f, page / CHUNK_PAGES) < 0 ||
            allocate(f, f->pairing.reflection, layout_reflected(page * PAGE_BYTES),
                     here * PAGE_BYTES, "the reflection of") < 0)
            return -1;
        page += here;
        n -= here;
    }
    return 0;
}

int space_make(struct file *f, uint64_t page, struct page_state *s, uint8_t need)
{
    if (space_make_run(f, page, 1, need) < 0)
        return -1;
    __atomic_store_n(&s->flags, s->flags | need, __ATOMIC_RELEASE);
    return 0;
}
