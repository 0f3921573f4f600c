/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How one reflection folder is found from another: by its absolute path, and by the way from one to the
 * other, which stays as it is when what they both lie in is moved, or mounted elsewhere.
 *
 * The way is tried first: in a copy of the whole it leads to the copy. Neither is believed: linked.h tells
 * whether what lies there is what was meant.
 */
#ifndef ATO_REFLECTION_ROUTE_H
#define ATO_REFLECTION_ROUTE_H

#include "folder.h"

#include <stddef.h>
#include <stdint.h>

struct route {
    char absolute[PATH_MAX];
    char relative[PATH_MAX]; /* "../../y/.ato"; "": it is not known */
    uint64_t inode;          /* of the folder; 0: it is not known */
};

/* From `from` to `to`, both as they lie now. Leaves out the inode. */
void route_make(struct route *r, const struct folder *from, const struct folder *to);

/* The absolute path and a 0; where there is room, the way and a 0; and likewise the inode's number, decimal: at
 * most `room` bytes. How many; 0: there is no room for the path. */
size_t route_write(const struct route *r, char *to, size_t room);

/* Reads such bytes, which may be followed by zeros. false: they are none. */
bool route_read(struct route *r, const char *bytes, size_t n);

/* Opens what a route leads to from `from`, by the way or by the absolute path. -1 with errno: ENOENT, also
 * where no way is known, EACCES, ... */
enum { ROUTE_RELATIVE, ROUTE_ABSOLUTE, ROUTES };
int route_open(const struct route *r, const struct folder *from, int which, struct folder *to);

#endif
