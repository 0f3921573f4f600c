/* SPDX-License-Identifier: BSD-3-Clause */
#include "reflection/format/route.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Appends a text and a 0, if there is room. Returns the new length. */
static size_t write_part(char *to, size_t at, size_t room, const char *text)
{
    size_t n = strlen(text) + 1;
    if (n > room - at)
        return at;
    memcpy(to + at, text, n);
    return at + n;
}

size_t route_write(const struct route *r, char *to, size_t room)
{
    char inode[24];
    size_t path = write_part(to, 0, room, r->absolute);
    if (!path || (!r->relative[0] && !r->inode))
        return path;
    size_t way = write_part(to, path, room, r->relative);
    if (way == path || !r->inode)
        return way;
    snprintf(inode, sizeof(inode), "%" PRIu64, r->inode);
    return write_part(to, way, room, inode);
}

/* Returns the text at *at, if it ends before `end`, and sets *at to the byte after it; NULL if
 * there is no such text. */
static const char *read_part(const char **at, const char *end)
{
    const char *text = *at, *last = text < end ? memchr(text, 0, (size_t)(end - text)) : NULL;
    if (!last || (size_t)(last - text) >= PATH_MAX)
        return NULL;
    *at = last + 1;
    return text;
}

bool route_read(struct route *r, const char *bytes, size_t n)
{
    const char *at = bytes, *end = bytes + n;
    const char *path = read_part(&at, end), *way = path ? read_part(&at, end) : NULL;
    const char *inode = way ? read_part(&at, end) : NULL;
    if (!path || path[0] != '/')
        return false;
    strcpy(r->absolute, path);
    strcpy(r->relative, way ? way : "");
    r->inode = 0;
    for (; inode && *inode >= '0' && *inode <= '9'; inode++)
        r->inode = r->inode * 10 + (uint64_t)(*inode - '0');
    return true;
}
