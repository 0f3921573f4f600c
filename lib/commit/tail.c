/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/commit/tail.h"

#include "lib/file/space.h"
#include "lib/page/page_set.h"
#include "reflection/media/domain.h"
#include "reflection/media/report.h"

#include <errno.h>
#include <string.h>
#include <sys/vfs.h>

/* Clears the last page after its last slice. In O, since no bit is set there. */
static int clear_behind_slice(struct file *f, struct held_page *last, unsigned end)
{
    static const char zeros[PAGE_BYTES];
    char *o = file_o(f, last->page);
    unsigned behind = (unsigned)PAGE_BYTES - end;
    if (!behind)
        return 0;
    if (last->state->bitmap >> (end / 64))
        return report_error(EUCLEAN,
                            "the bitmap of page %llu of %s names slices beyond the end of the file",
                            (unsigned long long)last->page, f->pairing.path);
    if (memcmp(o + end, zeros, behind) == 0)
        return 0;
    if (space_make(f, last->page, last->state, PAGE_O_ALLOCATED) < 0)
        return -1;
    persist_copy(&f->persist, o + end, zeros, behind); /* I2: no slice is valid there */
    return 0;
}

/* Returns true if the file's last page must have all its space before the file grows: where reading a hole may be
 * SIGBUS, or where a store to a neighbour would need its space in the page cache (domain_make_storable()). With
 * blocks that are smaller than a page, the end of the page is a hole. */
static bool wants_whole_page(const struct file *f)
{
    struct statfs fs;
    return f->holes_fault ||
           (domain_is_cached(f->persist.domain) &&
            (fstatfs(f->pairing.original, &fs) < 0 || (uint64_t)fs.f_bsize < PAGE_BYTES));
}

/*
 * The bytes beyond the end may hold anything: the kernel lets any process that has the page mapped store there, and
 * some file systems keep it.
 */
int tail_clear(struct file *f, struct held_page *last)
{
    unsigned begin = (unsigned)(f->pairing.size % PAGE_BYTES), end = (begin + 63) / 64 * 64;
    /* Another process may have cut the page off, and made it anew without space. */
    if (wants_whole_page(f) && space_make(f, last->page, last->state, PAGE_O_ALLOCATED) < 0)
        return -1;
    if (clear_behind_slice(f, last, end) < 0)
        return -1;
    /* Visible zeros may have been stored by another process, and not be durable yet; G2 makes them
     * durable.
     * explorer: drop flush survives: no process in its worlds stores beyond the end of a file. */
    if (f->persist.domain == PERSIST_MSYNC)
        return 0;
    return persist_flush_any(&f->persist, file_o(f, last->page) + begin / 64 * 64,
                             PAGE_BYTES - begin / 64 * 64);
}
