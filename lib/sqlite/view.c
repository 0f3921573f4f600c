/* SPDX-License-Identifier: BSD-3-Clause */
#include "view.h"

#include "api.h"
#include "fault.h"
#include "mask.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

/* What a file may grow to by default. It is address space, three times: for two mappings and the reflection. */
#define DEFAULT_MAX_SIZE (64ull << 30)
/* Without so much address space a quarter is tried, and so on, down to this, or to LEAST_GROWTH times the length. */
#define LEAST_MAX_SIZE (16ull << 20)
enum { LEAST_GROWTH = 4 };

/* The length that an empty file is mapped with. */
enum { LEAST_LENGTH = 4096 };

struct ato_status view_status(void *view, bool all)
{
    const struct ato_status unknown = {.domain = ATO_DOMAIN_PROCESS,
                                       .read_policy = ATO_READ_GATHER,
                                       .slices_in_reflection = UINT64_MAX};
    /* The short struct_size saves counting slices. */
    struct ato_status st = {.struct_size = all ? sizeof(st)
                                               : offsetof(struct ato_status, slices_in_reflection)};
    return ato_stat(view, &st) < 0 ? unknown : st;
}

struct view view_map(int fd, size_t length, struct ato_options *o)
{
    const size_t wanted = length * LEAST_GROWTH;
    const size_t least = wanted > LEAST_MAX_SIZE ? wanted : LEAST_MAX_SIZE;
    const bool may_shrink = !o->max_size;
    struct view v = {.length = length ? length : LEAST_LENGTH};
    /* No descriptor of the file may be closed (database.h). */
    o->flags |= ATO_BORROW_FD;
    /* SQLite caches pages that it has read: deploying them for the next read would not pay. */
    const char *policy =
        secure_getenv("ATO_READ_POLICY"); /* libato applies it to the default policy only */
    o->read_policy = policy && *policy ? ATO_READ_LAZY : ATO_READ_GATHER;
    if (!o->max_size)
        o->max_size = least > DEFAULT_MAX_SIZE ? least : DEFAULT_MAX_SIZE;
    v.at = ato_mmap_opt(v.length, fd, 0, o);
    /* EFBIG: other processes have mapped it with a smaller max_size. */
    while (v.at == MAP_FAILED && (errno == EFBIG || (errno == ENOMEM && may_shrink)) &&
           o->max_size / 4 > least) {
        o->max_size /= 4;
        v.at = ato_mmap_opt(v.length, fd, 0, o);
    }
    if (v.at == MAP_FAILED)
        v.at = NULL;
    v.max_size = o->max_size > v.length ? o->max_size : v.length;
    return v;
}

bool view_unmap_fast(const struct view *v)
{
    return ato_munmap(v->at, v->length, ATO_UNMAP_FAST) == 0 || ato_size(v->at) < 0;
}

void view_unmap(const struct view *v, bool makes_plain, int fd, bool is_locked, const char *name)
{
    unsigned char plain[MASK_GUARDED] = {0};
    const int r = makes_plain ? mask_refresh(v->at, fd, is_locked, plain) : 0;
    if (r < 0)
        fault_ignored("cannot bring the guard up to date of", name);
    /* The guard is out of date, or another connection writes: the file must not be made plain. */
    const struct ato_unmap_options o = {.struct_size = sizeof(o),
                                        .mode = makes_plain && r == 0 ? ATO_UNMAP_SPATIAL
                                                                      : ATO_UNMAP_FAST,
                                        .guard_plain = *plain ? plain : NULL};
    if (ato_munmap_opt(v->at, v->length, &o) < 0) {
        fault_ignored("cannot make plain", name);
        /* There may be no space to deploy the file. Nothing is lost: the file only is not plain. If this fails as well, the
         * mapping is gone, and the next process to map the file completes what is left. */
        (void)ato_munmap(v->at, v->length, ATO_UNMAP_FAST);
    }
    if (makes_plain && !is_locked)
        mask_unlock(fd);
}
