/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/file/views.h"

#include "reflection/media/domain.h"
#include "reflection/media/report.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

int views_map(struct file *f)
{
    const struct pairing *pr = &f->pairing;
    const uint64_t r_bytes = layout_reflection_bytes(f->max_size);
    void *o =
        domain_map(f->persist.domain, NULL, f->max_size, PROT_READ | PROT_WRITE, pr->original, 0);
    if (o == MAP_FAILED)
        return report_errno(errno, "cannot map %s for writing", pr->path);
    f->o = o;
    void *r =
        domain_map(f->persist.domain, NULL, r_bytes, PROT_READ | PROT_WRITE, pr->reflection, 0);
    if (r == MAP_FAILED)
        return report_errno(errno, "cannot map the reflection of %s", pr->path);
    f->r = r;
    madvise(f->o, f->max_size, MADV_DONTFORK);
    madvise(f->r, r_bytes, MADV_DONTFORK);
    f->chunks = calloc(layout_pages(f->max_size) / CHUNK_PAGES + 1, sizeof(*f->chunks));
    if (!f->chunks)
        return report_error(ENOMEM, "no memory to map %s", pr->path);
    return 0;
}

void views_unmap(struct file *f)
{
    if (f->o)
        munmap(f->o, f->max_size);
    if (f->r)
        munmap(f->r, layout_reflection_bytes(f->max_size));
    free(f->chunks);
    f->o = f->r = NULL;
    f->chunks = NULL;
}

int views_lengthen(struct file *f, uint64_t size)
{
    if (size <= f->max_size)
        return 0;
    struct file before = *f;
    f->o = f->r = NULL;
    f->chunks = NULL;
    f->limit = size;
    f->max_size = layout_pages(size) * PAGE_BYTES;
    if (views_map(f) == 0) {
        views_unmap(&before);
        return 0;
    }
    views_unmap(f);
    f->o = before.o;
    f->r = before.r;
    f->chunks = before.chunks;
    f->limit = before.limit;
    f->max_size = before.max_size;
    return -1;
}
