/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/file/views.h"

#include "reflection/media/domain.h"
#include "reflection/media/report.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

static char *map_one(const struct file *f, int fd, uint64_t n, int prot, const char *which)
{
    char *at = domain_map(f->persist.domain, NULL, n, prot, fd, 0);
    if (at != MAP_FAILED)
        return at;
    report_errno(errno, "cannot map %s%s for %s", which, f->pairing.path,
                 prot & PROT_WRITE ? "writing" : "reading");
    return NULL;
}

int views_map(struct file *f, const struct shared *s)
{
    const int prot = f->reader ? PROT_READ : PROT_READ | PROT_WRITE;
    const uint64_t most = s->capacity * PAGE_BYTES;
    if (most && f->max_size > most)
        return report_error(
            EFBIG,
            "other processes have %s mapped with room for %llu bytes: a mapping up to byte %llu "
            "does "
            "not fit. Use a smaller max_size, or map the file when they have unmapped it",
            f->pairing.path, (unsigned long long)most, (unsigned long long)f->limit);
    f->o = map_one(f, f->pairing.original, f->max_size, prot, "");
    if (!f->o)
        return -1;
    f->r = map_one(f, f->pairing.reflection, file_r_bytes(f), prot, "the reflection of ");
    if (!f->r)
        return -1;
    f->chunks = calloc(layout_pages(f->max_size) / CHUNK_PAGES + 1, sizeof(*f->chunks));
    if (!f->chunks)
        return report_error(ENOMEM, "no memory to map %s", f->pairing.path);
    return 0;
}

void views_unmap(struct file *f)
{
    if (f->o)
        munmap(f->o, f->max_size);
    if (f->r)
        munmap(f->r, file_r_bytes(f));
    free(f->chunks);
    f->o = f->r = NULL;
    f->chunks = NULL;
}

int views_lengthen(struct file *f, uint64_t size)
{
    if (size <= f->max_size)
        return 0;
    views_unmap(f);
    f->limit = size;
    f->max_size = layout_pages(size) * PAGE_BYTES;
    return views_map(f, &f->shared);
}
