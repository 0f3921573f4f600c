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
 * A choice of the user decides. Looking takes no lock, and opens no file but manifests and reflections: closing a descriptor of a file drops locks
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

/*
 * Reunites a restored file with its orphan: the manifest gets the file's identity, and the names its inode number.
 *
 *   1. the file has the attribute of the orphan: its id, and its number. What a restore has left visible is durable (persist-order U1)
 *   2. the record names the file, with a new id: the step that decides                                            (persist-order U2)
 *   3. the reflection gets the new name, then the manifest                                                        (persist-order U3)
 *   4. the file gets the attribute of the new pairing                                                             (persist-order U4)
 *
 * Each is durable before the next. Before step 2 a map refuses the file again, and the user may choose the other side. After it each map
 * finishes the rest: the attribute leads to the manifest as long as that has its old number; on a file system without attributes
 * the search for orphans does. The id is new since the source may be in use: its shared memory has its id in its name. If the restored
 * file has its old number, the id stays, and step 1 decides.
 *
 * For pairing_open.c, and adopt(). The caller holds the attach lock and all slots of the orphan's manifest, which is mapped. Results: 0, or -1
 * with a sentence. An orphan whose place is taken by another one is refused: that has to be reunited first.
 */

/* Steps 1 and 2. adopt() has succeeded: all lanes are replayed, and the reflection fits. */
int orphan_adopt(struct pairing *pr);

/* Steps 3 and 4. The next pairing_find() finds the file's own pairing. */
int orphan_rename(struct pairing *pr);

/* Step 4 alone: of a reunion, or a birth, whose process died before it. */
int orphan_end(struct pairing *pr);

#endif
