/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/file/views.h"

#include "reflection/media/report.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

/* What the views are made for at least: most files need no more. */
#define LEAST (16ull << 20)

/* Bytes of the reflection that are viewed with so many of the original. I5: in shared memory somebody may set bits of a logged file's page,
 * which is then taken for one of a dense reflection. So its memory for pages is viewed as one: that takes addresses only. */
static uint64_t r_bytes(const struct file *f, uint64_t viewed)
{
    const uint64_t pages = f->logged ? file_scratch_words(viewed) * 64 * PAGE_BYTES : viewed;
    return f->sparse ? layout_meta_page(LAYOUT_SPARSE, FILE_NO_PLACE / CHUNK_SPARSE + 1)
                     : layout_reflection_bytes(LAYOUT_DENSE, pages);
}

/* Returns for how many bytes views are made, or made longer: twice as many, so that this is seldom. */
static uint64_t generous(const struct file *f, uint64_t size)
{
    const uint64_t twice = 2 * size > LEAST ? 2 * size : LEAST;
    return layout_pages(lesser(twice, f->max_size)) * PAGE_BYTES;
}

static int open_one(struct file *f, struct window *w, int fd, uint64_t n, uint64_t room,
                    const char *which)
{
    *w = (struct window){.domain = f->persist.domain,
                         .fd = fd,
                         .prot = f->reader ? PROT_READ : PROT_READ | PROT_WRITE};
    if (window_open(w, n, room, &f->pairing.faults) == 0)
        return 0;
    return window_no_room(errno, n, which, f->pairing.path);
}

int views_map(struct file *f, struct shared *s, uint64_t size)
{
    const uint64_t most = s->capacity * PAGE_BYTES, viewed = generous(f, size);
    if (most && f->max_size > most)
        return report_error(
            EFBIG,
            "other processes have %s mapped with room for %llu bytes: a mapping up to byte %llu "
            "does "
            "not fit. Use a smaller max_size, or map the file when they have unmapped it",
            f->pairing.path, (unsigned long long)most, (unsigned long long)f->limit);
    if ((most && shared_reach(s, layout_pages(f->max_size)) < 0) ||
        open_one(f, &f->o_window, f->pairing.original, viewed, f->max_size, "") < 0 ||
        open_one(f, &f->r_window, f->logged ? -1 : f->pairing.reflection, r_bytes(f, viewed),
                 r_bytes(f, f->max_size), "the reflection of ") < 0)
        return -1;
    f->o = f->o_window.base;
    f->r = f->r_window.base;
    f->chunks = calloc(layout_pages(f->max_size) / CHUNK_PAGES + 1, sizeof(*f->chunks));
    f->scratch = f->logged ? calloc(file_scratch_words(f->max_size), sizeof(*f->scratch)) : NULL;
    if (!f->chunks || (f->logged && !f->scratch))
        return report_error(ENOMEM, "no memory to map %s", f->pairing.path);
    __atomic_store_n(&f->viewed, viewed, __ATOMIC_RELEASE);
    return 0;
}

void views_unmap(struct file *f)
{
    window_close(&f->o_window);
    window_close(&f->r_window);
    window_close(&f->log_window);
    free(f->chunks);
    free(f->scratch);
    f->o = f->r = NULL;
    f->chunks = NULL;
    f->scratch = NULL;
}

static int reach(struct file *f, uint64_t viewed)
{
    if (window_reach(&f->o_window, viewed) < 0 ||
        window_reach(&f->r_window, r_bytes(f, viewed)) < 0)
        return -1;
    /* Release: pairs with file_size(). Another thread may have gone further. */
    uint64_t is = __atomic_load_n(&f->viewed, __ATOMIC_RELAXED);
    while (is < viewed && !__atomic_compare_exchange_n(&f->viewed, &is, viewed, false,
                                                       __ATOMIC_RELEASE, __ATOMIC_RELAXED))
        ;
    return 0;
}

int views_reach(struct file *f, uint64_t size)
{
    const uint64_t pages = layout_pages(size) * PAGE_BYTES;
    if (pages <= __atomic_load_n(&f->viewed, __ATOMIC_ACQUIRE) ||
        reach(f, generous(f, size)) == 0 || reach(f, pages) == 0)
        return 0;
    return window_no_room(errno, size, "", f->pairing.path);
}

bool views_follow(struct file *f)
{
    const uint64_t viewed = __atomic_load_n(&f->viewed, __ATOMIC_RELAXED);
    return f->o && file_end(f) > viewed && views_reach(f, file_end(f)) == 0;
}

int views_lengthen(struct file *f, uint64_t size)
{
    if (size <= f->max_size)
        return views_reach(f, size);
    views_unmap(f);
    f->limit = size;
    f->max_size = layout_pages(size) * PAGE_BYTES;
    return views_map(f, &f->shared, size);
}
