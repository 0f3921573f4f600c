/* SPDX-License-Identifier: BSD-3-Clause */
/* A mapping of a database file: how large it is made, what is known of it, and how it is unmapped. */
#ifndef ATO_SQLITE_VIEW_H
#define ATO_SQLITE_VIEW_H

#include "ato.h"

#include <stdbool.h>
#include <stddef.h>

/* A mapping. */
struct view {
    void *at;        /* NULL: none */
    size_t length;   /* for ato_munmap() */
    size_t max_size; /* bytes that the file may grow to */
};

/* Maps all of a file of this length with these options, so that it can grow. If that fails, `at` is NULL, and errno is set.
 * `o->max_size` of 0: the default. */
struct view view_map(int fd, size_t length, struct ato_options *o);

/* Returns what ato_stat() says: all of it, which takes longer, or what comes before slices_in_reflection. If that is not known
 * there is an endless number of slices, and the rest is the default. */
struct ato_status view_status(void *view, bool all);

/* Unmaps it with ATO_UNMAP_FAST. Returns whether the mapping is gone: ato_munmap() may fail and take it away all the same. */
bool view_unmap_fast(const struct view *v);

/* Unmaps it. makes_plain: by ATO_UNMAP_SPATIAL, else by ATO_UNMAP_FAST. `fd`: the file, open for writing; only needed to make
 * it plain. is_locked: this process has SQLite's PENDING lock. A failure is logged, with `name`. */
void view_unmap(const struct view *v, bool makes_plain, int fd, bool is_locked, const char *name);

#endif
