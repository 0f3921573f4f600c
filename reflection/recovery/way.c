/* SPDX-License-Identifier: BSD-3-Clause */
#include "reflection/recovery/way.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* The path of a folder, without links or dots. Returns false if the kernel does not tell. */
static bool find_path(const struct folder *f, char path[PATH_MAX])
{
    char link[64];
    snprintf(link, sizeof(link), "/proc/self/fd/%d", f->fd);
    ssize_t n = readlink(link, path, PATH_MAX);
    if (n <= 0 || n == PATH_MAX || path[0] != '/')
        return false;
    path[n] = '\0';
    return true;
}

/* Appends to a path of `*n` bytes. Returns false if it gets too long. */
static bool append(char path[PATH_MAX], size_t *n, const char *more, size_t bytes)
{
    if (bytes >= PATH_MAX - *n)
        return false;
    memcpy(path + *n, more, bytes);
    *n += bytes;
    path[*n] = '\0';
    return true;
}

static bool find_way(char way[PATH_MAX], const char *from, const char *to)
{
    /* Finds the last `/` that both share. The end of a path counts as one. */
    size_t shared = 0, n = 0;
    for (size_t i = 0; from[i] == to[i] || !from[i] || !to[i]; i++) {
        bool ends = (!from[i] || from[i] == '/') && (!to[i] || to[i] == '/');
        if (ends)
            shared = i;
        if (!from[i] || !to[i])
            break;
    }
    way[0] = '\0';
    bool up = true;
    for (const char *at = from + shared; up && *at; at++)
        if (*at == '/' && at[1])
            up = append(way, &n, "../", 3);
    const char *rest = to + shared;
    rest += *rest == '/';
    return up && append(way, &n, rest, strlen(rest));
}

void route_make(struct route *r, const struct folder *from, const struct folder *to)
{
    char path[PATH_MAX];
    r->relative[0] = '\0';
    r->inode = 0;
    if (!find_path(to, r->absolute)) {
        strcpy(r->absolute, to->path);
    } else if (!find_path(from, path) || !find_way(r->relative, path, r->absolute)) {
        r->relative[0] = '\0';
    }
}

/* Follows the way as the kernel does, except for links: a path of find_path() has none. */
static bool follow(char path[PATH_MAX], const char *way)
{
    size_t n = strlen(path);
    for (; strncmp(way, "../", 3) == 0; way += 3) {
        while (n > 0 && path[n - 1] != '/')
            n--;
        n -= n > 1;
        path[n] = '\0';
    }
    bool slash = n > 0 && path[n - 1] == '/';
    return (slash || append(path, &n, "/", 1)) && append(path, &n, way, strlen(way));
}

int route_open(const struct route *r, const struct folder *from, int which, struct folder *to)
{
    char path[PATH_MAX];
    to->fd = -1;
    if (which == ROUTE_ABSOLUTE)
        return folder_open(to, r->absolute, false);
    if (!r->relative[0] || !find_path(from, path) || !follow(path, r->relative)) {
        errno = ENOENT;
        return -1;
    }
    return folder_open(to, path, false);
}
