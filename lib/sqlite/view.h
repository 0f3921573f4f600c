/* SPDX-License-Identifier: BSD-3-Clause */
/* A mapping of a database file: how large it is made, what is known of it, and how it is unmapped. */
#ifndef ATO_SQLITE_VIEW_H
#define ATO_SQLITE_VIEW_H

#include "ato.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>

/* A mapping. */
struct view {
    void *at;        /* NULL: none */
    size_t length;   /* for ato_munmap() */
    size_t max_size; /* bytes that the file may grow to */
};

/* Maps all of the file, so that it can grow. max_size: bytes that it may grow to; 0: the default. flags: ato_options.flags.
 * If that fails, `at` is NULL, and errno is set. */
struct view view_map(int fd, size_t max_size, unsigned flags, const struct stat *st);

/* Returns its domain, ATO_DOMAIN_... */
int view_domain(void *view);

/* Returns its read policy; -1 if that is not known. */
int view_policy(void *view);

bool view_has_reflection(void *view);

/* Returns true if it can be unmapped and made plain while the process exits. */
bool view_is_quick(const struct view *v);

/* Unmaps it with ATO_UNMAP_FAST. Returns whether the mapping is gone: ato_munmap() may fail and take it away all the same. */
bool view_unmap_fast(const struct view *v);

/* Unmaps it. mode: ATO_UNMAP_... `fd`: the file, open for writing; only needed for ATO_UNMAP_SPATIAL. is_locked: this
 * process has SQLite's PENDING lock. A failure is logged, with `name`. */
void view_unmap(const struct view *v, int mode, int fd, bool is_locked, const char *name);

/* Makes a file plain whose last connection could only read: this process may be allowed to write to it all the same. */
void view_make_plain(const char *name);

#endif
