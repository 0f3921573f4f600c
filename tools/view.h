/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How the demonstration reaches a file: through plain mmap and memcpy, or through libato.
 *
 * Every function ends the process with a sentence on stderr and status 2 when something fails.
 */
#ifndef ATO_TOOLS_VIEW_H
#define ATO_TOOLS_VIEW_H

#include <stdbool.h>
#include <stddef.h>

enum way {
    WAY_MMAP,        /* mmap(2) and memcpy(3) */
    WAY_ATO,         /* libato, committing as it thinks best */
    WAY_ATO_JOURNAL, /* libato, without hardware transactions */
};

struct view {
    enum way way;
    unsigned char *base;
    size_t size;
};

/* Which commit a libato view used for what it wrote so far. */
enum commit_path { COMMIT_UNKNOWN, COMMIT_RTM, COMMIT_JOURNAL };

/* `policy`: enum ato_read_policy; no meaning to WAY_MMAP. */
struct view view_open(enum way way, const char *path, size_t size, int policy);

void view_write(const struct view *v, size_t offset, const void *src, size_t n);
void view_read(const struct view *v, size_t offset, void *dst, size_t n);
enum commit_path view_commit_path(const struct view *v);

/* `spatial`: leave a plain file behind; no meaning to WAY_MMAP. */
void view_close(struct view *v, bool spatial);

#endif
