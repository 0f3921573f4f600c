/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How one reflection folder is found from another: by its absolute path, and by the way, a path relative to
 * the other folder. The way stays the same when what contains both folders is moved, or mounted elsewhere.
 *
 * Its bytes, as they are in a journal's folder table and in a pointer. way.h makes and follows routes.
 */
#ifndef ATO_REFLECTION_FORMAT_ROUTE_H
#define ATO_REFLECTION_FORMAT_ROUTE_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct route {
    char absolute[PATH_MAX];
    char relative[PATH_MAX]; /* the way, "../../y/.ato"; "": unknown */
    uint64_t inode;          /* of the folder; 0: unknown */
};

/* Writes the absolute path and a 0; then, while there is room, the way and a 0, and the inode's number
 * (decimal) and a 0: at most `room` bytes. Returns how many; 0 if there is no room for the path. */
size_t route_write(const struct route *r, char *to, size_t room);

/* Reads such bytes, which zeros may follow. Returns false if they are not valid. */
bool route_read(struct route *r, const char *bytes, size_t n);

#endif
