/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How one reflection folder is found from another: by its absolute path, and by the way, a path relative to
 * the other folder. The way stays the same when what contains both folders is moved, or mounted elsewhere.
 *
 * The way is tried first: in a copy of the whole it leads to the copy. Neither is believed: linked.h checks
 * that the folder found is the one that was meant.
 */
#ifndef ATO_REFLECTION_ROUTE_H
#define ATO_REFLECTION_ROUTE_H

#include "folder.h"

#include <stddef.h>
#include <stdint.h>

struct route {
    char absolute[PATH_MAX];
    char relative[PATH_MAX]; /* the way, "../../y/.ato"; "": unknown */
    uint64_t inode;          /* of the folder; 0: unknown */
};

/* Makes the route from `from` to `to`, both where they lie now; without the inode. */
void route_make(struct route *r, const struct folder *from, const struct folder *to);

/* Writes the absolute path and a 0; then, while there is room, the way and a 0, and the inode's number
 * (decimal) and a 0: at most `room` bytes. Returns how many; 0 if there is no room for the path. */
size_t route_write(const struct route *r, char *to, size_t room);

/* Reads such bytes, which zeros may follow. Returns false if they are not valid. */
bool route_read(struct route *r, const char *bytes, size_t n);

/* Opens the folder that a route leads to from `from`, by the way or by the absolute path. Returns 0; -1 with
 * errno: ENOENT (also if the way is unknown), EACCES, ... */
enum { ROUTE_RELATIVE, ROUTE_ABSOLUTE, ROUTES };
int route_open(const struct route *r, const struct folder *from, int which, struct folder *to);

#endif
