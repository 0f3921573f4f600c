/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Where the pairing of a file lies: in which folder, under which names.
 *
 * The attribute is asked first, then the folder beside the file, then the one that the caller
 * wishes for. Looks at manifests without locking them: whoever uses what was found locks it and
 * looks again. Changes nothing but a copied attribute, which it drops, and the folder, which it
 * makes. The rules are at the head of pairing.h.
 */
#ifndef ATO_REFLECTION_PLACE_H
#define ATO_REFLECTION_PLACE_H

#include "pairing.h"

struct place_names {
    char reflection[24], manifest[40];
};

struct place_names place_names(uint64_t inode);

/* Does the reflection of `inode` in a folder hold any slice? 1, 0 (or there is none); -1 with a
 * sentence. */
int place_holds_slices(const struct folder *f, uint64_t inode);

/* Is pr->folder the one beside the file, or the one that is wished for? */
bool place_is_own(const struct pairing *pr, const struct pairing_wish *wish);

/* Opens pr->folder, and finds out pr->has_attributes. `name` points into pr->path, behind its last
 * slash. Errors: those of ato_mmap() that are about folders, attributes and missing reflections. */
int place_open(struct pairing *pr, const char *name, const struct pairing_wish *wish);

/* The same for who only looks: changes nothing. 1, and pr->folder is open: there is a manifest of this file;
 * 0: there is none; -1: as place_open(), and EAGAIN for a copied attribute. */
int place_find(struct pairing *pr, const char *name, const struct pairing_wish *wish);

#endif
