/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Makes and follows the routes from one reflection folder to another (route.h).
 *
 * The way is tried first: in a copy of the whole it leads to the copy. A route alone is not trusted:
 * linked.h checks that the folder found is the one that was meant.
 */
#ifndef ATO_REFLECTION_RECOVERY_WAY_H
#define ATO_REFLECTION_RECOVERY_WAY_H

#include "reflection/format/route.h"
#include "reflection/pairing/folder.h"

/* Makes the route from `from` to `to`, both where they lie now; without the inode. */
void route_make(struct route *r, const struct folder *from, const struct folder *to);

/* Opens the folder that a route leads to from `from`, by the way or by the absolute path. Returns 0; -1 with
 * errno: ENOENT (also if the way is unknown), EACCES, ... */
enum { ROUTE_RELATIVE, ROUTE_ABSOLUTE, ROUTES };
int route_open(const struct route *r, const struct folder *from, int which, struct folder *to);

#endif
