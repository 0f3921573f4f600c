/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Where the pairing of a file lies: in which folder, under which names.
 *
 * Looks where the attribute says, then in the folder beside the file, then in the one that the caller wishes
 * for. The first one with a manifest for the file's inode number counts: adoption.h checks whether it is the file's. Changes
 * nothing, except that it removes an attribute that is not preferred, and makes the folder. The rules are at the head of
 * pairing.h.
 */
#ifndef ATO_REFLECTION_PAIRING_LOOKUP_H
#define ATO_REFLECTION_PAIRING_LOOKUP_H

#include "reflection/pairing/pairing.h"

/* Returns 1 if the reflection of `inode` in a folder holds any slice, else 0 (also if there is none); -1 with
 * a sentence. */
int lookup_holds_slices(const struct folder *f, uint64_t inode);

/* Sets pr->has_attributes. Returns 1 with the folder of such a manifest open as pr->folder. If there is no pairing, makes a folder
 * for one and returns 0 with that open; if wish->only_looks, makes none, and returns 0 with none open; -1 with those errors of
 * ato_mmap() that concern folders, attributes and missing reflections; and, if wish->only_looks, with EAGAIN for a copied
 * attribute. */
int lookup(struct pairing *pr, const struct pairing_wish *wish);

#endif
