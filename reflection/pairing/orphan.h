/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Orphans: manifests whose file is not there, of which another file may be a restored copy.
 *
 * A backup gives each file that it restores a new inode number. If it restores a file that was not plain together with its
 * reflection folder, nothing leads from the file to its reflection, which has the old number. Without the reflection the file
 * has outdated bytes.
 *
 * A manifest is the orphan of a file if
 *   1. it is valid, not `deployed`, and its record has the inode number that is in its name
 *   2. the file carries an attribute with its id and another inode; or no attribute, and has the size in the manifest, and one of the two
 *      was restored: the manifest is a copy (area_is_copy()), or the file has an mtime before its birth, as tar, rsync -a and
 *      cp -p leave it. So a new file is not taken for a removed one of the same size. Where it has its mtime, that is the one in a
 *      record `clean`; and it has the mask, if there is a guard
 *   3. no living process has a slot of it
 *   4. content would be missing without it: slices, commits in lanes, or guarded bytes under a mask
 *   5. its own file is not there: in the folder around no file has that number and birth time, or carries its id. The files of
 *      another folder than `.ato` may be anywhere: there only a copy counts
 *
 * Without an attribute, a file may have several such manifests, and a manifest several such files: then none is taken.
 *
 * A choice of the user decides: reunion.h. Takes no lock, and opens no file but manifests and reflections: closing a descriptor of a file drops locks
 * of fcntl(2) that the process has on it.
 */
#ifndef ATO_REFLECTION_PAIRING_ORPHAN_H
#define ATO_REFLECTION_PAIRING_ORPHAN_H

#include "reflection/pairing/pairing.h"

/* The file of which an orphan is looked for. */
struct orphan_of {
    const struct identity *identity;
    const char *path;                  /* absolute */
    int file;                          /* open */
    const struct attribute *attribute; /* with another inode; NULL: the file carries none */
};

enum orphan_finding {
    ORPHAN_FAILED = -1, /* with a sentence */
    ORPHAN_NONE,
    ORPHAN_FOUND,
    ORPHAN_SEVERAL, /* it is not known which one is the file's, or whose it is */
    ORPHAN_BEGUN, /* a reunion was interrupted when it was decided: the manifest has another number, and names the file */
};

/* Returns true if there may be one. False for most files that carry no attribute, quickly. */
bool orphan_is_due(struct folder *f, const struct orphan_of *of);

/* Looks for the orphan of a file in a folder. *number: that of its names, if FOUND or BEGUN. */
enum orphan_finding orphan_find(struct folder *f, const struct orphan_of *of, uint64_t *number);

/* Looks whether the manifest `lock`, which has that number, is the orphan of the file. */
enum orphan_finding orphan_look(const struct folder *f, const struct orphan_of *of, uint64_t number,
                                int lock);

/* Returns true if the folder may have an orphan of a file that was restored: a manifest that is a copy, and holds content. */
bool orphan_any(const struct folder *f);

/* Returns true if the folder is `.ato` beside the file with that absolute path. */
bool orphan_is_beside(const struct folder *f, const char *path);

/* Returns 1 if another file around the folder than that of `path` and `inode` carries the id of this record; else 0; -1 with a
 * sentence. (Restored files may have got one another's inode numbers.) */
int orphan_is_claimed(const struct folder *f, const char *path, uint64_t inode,
                      const struct manifest_record *record);

/* Returns 1 if content would be missing without the manifest `lock` of that number and its reflection; else 0; -1 with a sentence.
 * `file`: the original; -1: not known. */
int orphan_holds(const struct folder *f, uint64_t number, int lock,
                 const struct manifest_record *record, int file);

#endif
