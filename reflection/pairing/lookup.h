/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Where the pairing of a file lies: in which folder, under which names.
 *
 * Looks in the folders of lookup_place(). The first one with a manifest of the file's inode number and the attribute's id counts, else
 * the first one with a manifest of that number: adoption.h checks whether it is the file's. If there is none, looks for an
 * orphan (orphan.h). Changes nothing, except that it removes an attribute that is not preferred, and makes the folder. The rules
 * are at the head of pairing.h.
 */
#ifndef ATO_REFLECTION_PAIRING_LOOKUP_H
#define ATO_REFLECTION_PAIRING_LOOKUP_H

#include "reflection/pairing/pairing.h"

/* Stores the i-th folder (from 0) in which the pairing of the file `path`, absolute, may lie: where the attribute `a` (NULL: there is none) says,
 * below the file's present folder, and where it was made; then the folder beside the file; then `wish` (may be NULL). Returns 1; 0:
 * it is not used; -1 with ENAMETOOLONG. */
enum { LOOKUP_PLACES = 4 };
int lookup_place(const char *path, const struct attribute *a, const char *wish, unsigned i,
                 char to[PATH_MAX]);

/* For a plain file on a file system without attributes: returns a number that changes when a pairing of it is made or removed in a folder
 * where it is looked for; 0: there is a manifest. */
uint64_t lookup_stamp(const struct pairing *pr, const char *wish);

/* To be called before an attribute whose manifest is not to be found is removed, or a copy of a manifest used. Returns 0; -1 with EBUSY if a
 * living process uses the pairing with this id. */
int lookup_check_unused(const struct pairing *pr, const uint8_t id[16],
                        const struct pairing_wish *wish);

/* Sets pr->has_attributes and pr->names. Returns 1 with the folder of such a manifest open as pr->folder; if pr->orphan is set, it is an
 * orphan, to be reunited or set aside. If there is no pairing, makes a folder for one and returns 0 with that open; if
 * wish->only_looks, makes none, and returns 0 with none open; -1 with those errors of ato_mmap() that concern folders,
 * attributes and missing reflections; and, if wish->only_looks, with EAGAIN for a copied attribute. */
int lookup(struct pairing *pr, const struct pairing_wish *wish);

#endif
