/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How the demonstration reaches a file: through plain mmap and memcpy, or through libato.
 */
#include "view.h"

#include <ato.h>

#include <err.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* One exit for all: libato's functions leave a sentence, which says errno too. */
static _Noreturn void fail(const struct view *v, const char *call)
{
    if (v->way == WAY_MMAP)
        err(2, "%s", call);
    errx(2, "%s: %s", call, ato_errormsg());
}

static void *map(const struct view *v, int fd, int policy)
{
    struct ato_options options = {
        .struct_size = sizeof options,
        .read_policy = policy,
        .flags = v->way == WAY_ATO_JOURNAL ? ATO_NO_RTM : 0,
    };

    if (v->way == WAY_MMAP)
        return mmap(NULL, v->size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    return ato_mmap_opt(v->size, fd, 0, &options);
}

struct view view_open(enum way way, const char *path, size_t size, int policy)
{
    struct view v = {.way = way, .size = size};
    int fd = open(path, O_RDWR | O_CLOEXEC);

    if (fd < 0)
        err(2, "%s", path);
    v.base = map(&v, fd, policy);
    if (v.base == MAP_FAILED)
        fail(&v, way == WAY_MMAP ? "mmap" : "ato_mmap_opt");
    close(fd);
    return v;
}

void view_write(const struct view *v, size_t offset, const void *src, size_t n)
{
    if (v->way == WAY_MMAP)
        memcpy(v->base + offset, src, n);
    else if (!ato_memcpy(v->base + offset, src, n))
        fail(v, "ato_memcpy, writing");
}

void view_read(const struct view *v, size_t offset, void *dst, size_t n)
{
    if (v->way == WAY_MMAP)
        memcpy(dst, v->base + offset, n);
    else if (!ato_memcpy(dst, v->base + offset, n))
        fail(v, "ato_memcpy, reading");
}

enum commit_path view_commit_path(const struct view *v)
{
    struct ato_stat st = {.struct_size = sizeof st};

    if (v->way == WAY_MMAP)
        return COMMIT_UNKNOWN;
    if (ato_stat(v->base, &st) != 0)
        fail(v, "ato_stat");
    if (st.commits_journal)
        return COMMIT_JOURNAL;
    return st.commits_rtm ? COMMIT_RTM : COMMIT_UNKNOWN;
}

void view_close(struct view *v, bool spatial)
{
    int rc = v->way == WAY_MMAP
                 ? munmap(v->base, v->size)
                 : ato_munmap(v->base, v->size, spatial ? ATO_UNMAP_SPATIAL : ATO_UNMAP_FAST);

    if (rc != 0)
        fail(v, v->way == WAY_MMAP ? "munmap" : "ato_munmap");
}
